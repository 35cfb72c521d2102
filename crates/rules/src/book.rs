//! A tenant's rules over time.

use std::collections::BTreeMap;

use export::Prefix;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::rule::{Draft, Rule, id_of};

/// How many rules a tenant may have, and how many versions of them are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BookLimits {
    /// Rules, those of the configuration among them.
    pub rules: usize,
    /// Versions, those in force among them.
    pub versions: usize,
}

impl Default for BookLimits {
    /// As many rules as Pyroscope has by default.
    fn default() -> Self {
        Self { rules: 25, versions: 1_000 }
    }
}

/// A rule from one cell's begin to another's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// What it says.
    pub rule: Rule,
    /// The how manieth version of this rule it is, from 1 on.
    pub generation: u64,
    /// Whether it comes from the configuration, and is changed only there.
    pub is_provisioned: bool,
    /// The first cell that it is for: the time at which the cell begins, milliseconds since 1970.
    pub from_ms: i64,
    /// The first cell that it is not for; none while it is in force.
    pub until_ms: Option<i64>,
}

/// A tenant's rules, those that are in force and those that cells still need.
///
/// Each change counts one [generation](Self::generation), so that whoever keeps books can refuse one that was made of another than the
/// kept one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Book {
    generation: u64,
    /// In the order in which they were made.
    versions: Vec<Version>,
}

impl Book {
    /// How often it was changed.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// All that are kept, in the order in which they were made.
    #[must_use]
    pub fn versions(&self) -> &[Version] {
        &self.versions
    }

    /// The earliest version of a rule that is kept, whether it is in force or not. One that is not the first
    /// ([`Version::generation`]) had others before it.
    #[must_use]
    pub fn earliest(&self, id: &str) -> Option<&Version> {
        self.versions.iter().filter(|it| it.rule.id() == id).min_by_key(|it| it.from_ms)
    }

    /// What is in force, by id.
    #[must_use]
    pub fn present(&self) -> Vec<&Version> {
        let mut present: Vec<_> =
            self.versions.iter().filter(|version| version.until_ms.is_none()).collect();
        present.sort_by(|a, b| a.rule.id().cmp(b.rule.id()));
        present
    }

    /// A rule that is in force.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Version> {
        self.versions.iter().find(|it| it.until_ms.is_none() && it.rule.id() == id)
    }

    /// The rules of a cell that begins at a time, by id.
    #[must_use]
    pub fn at(&self, cell_ms: i64) -> Vec<&Rule> {
        let is_of = |it: &&Version| {
            it.from_ms <= cell_ms && it.until_ms.is_none_or(|until_ms| cell_ms < until_ms)
        };
        let mut rules: Vec<&Rule> =
            self.versions.iter().filter(is_of).map(|version| &version.rule).collect();
        rules.sort_by(|a, b| a.id().cmp(b.id()));
        rules
    }

    /// Puts a rule in the place of the one with its id, or makes it, from a cell on. `expected` is the generation that the rule is
    /// believed to have, 0 when there is none; it is not looked at when it is not said.
    ///
    /// A draft without an id gets one of ten letters.
    ///
    /// # Errors
    ///
    /// [`Error::Field`], [`Error::Conflict`], [`Error::Provisioned`], [`Error::TooMany`], [`Error::TooOften`], [`Error::Clash`].
    /// Nothing is changed then.
    pub fn upsert(
        &mut self,
        mut draft: Draft,
        expected: Option<u64>,
        from_ms: i64,
        limits: &BookLimits,
    ) -> Result<&Version, Error> {
        if draft.id.is_empty() {
            let numbers = self.generation..;
            let mut ids = numbers.map(|number| id_of(&draft, number));
            let free = ids.find(|id| self.versions.iter().all(|it| it.rule.id() != id.as_str()));
            draft.id = free.unwrap_or_default();
        }
        let rule = Rule::try_from(draft)?;
        let found = self.editable(rule.id(), expected)?;
        if found == 0 && self.present().len() >= limits.rules {
            return Err(Error::TooMany { limit: limits.rules });
        }
        if self.versions.len() >= limits.versions {
            return Err(Error::TooOften { limit: limits.versions });
        }
        let others = self.present().into_iter().map(|it| &it.rule);
        clash(&rule, others.filter(|other| other.id() != rule.id()))?;
        self.close(rule.id(), from_ms);
        self.generation += 1;
        self.add(rule, found + 1, false, from_ms)
    }

    /// Ends a rule with the cell before one.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`], [`Error::Conflict`], [`Error::Provisioned`]. Nothing is changed then.
    pub fn delete(&mut self, id: &str, expected: Option<u64>, from_ms: i64) -> Result<(), Error> {
        if self.editable(id, expected)? == 0 {
            return Err(Error::Missing { id: id.to_owned() });
        }
        self.close(id, from_ms);
        self.generation += 1;
        Ok(())
    }

    /// Makes the rules of the configuration those that are in force from a cell on. A rule that the same id has goes. Says whether anything changed.
    ///
    /// # Errors
    ///
    /// [`Error::Clash`], [`Error::Twice`], [`Error::TooMany`]. Nothing is changed then.
    pub fn provision<'a>(
        &mut self,
        rules: impl IntoIterator<Item = &'a Rule>,
        from_ms: i64,
        limits: &BookLimits,
    ) -> Result<bool, Error> {
        let rules: Vec<&Rule> = rules.into_iter().collect();
        let mut by_id: BTreeMap<&str, &Rule> = BTreeMap::new();
        for rule in &rules {
            if by_id.insert(rule.id(), rule).is_some() {
                return Err(Error::Twice { id: rule.id().to_owned() });
            }
        }
        let stays = |it: &&&Version| !it.is_provisioned && !by_id.contains_key(it.rule.id());
        let present = self.present();
        let others: Vec<&Rule> = present.iter().filter(stays).map(|it| &it.rule).collect();
        if rules.len() + others.len() > limits.rules {
            return Err(Error::TooMany { limit: limits.rules });
        }
        for (at, rule) in rules.iter().enumerate() {
            clash(rule, others.iter().chain(rules.iter().take(at)).copied())?;
        }
        let is_same =
            |it: &Version| it.is_provisioned && by_id.get(it.rule.id()) == Some(&&it.rule);
        let is_taken = |it: &Version| it.is_provisioned || by_id.contains_key(it.rule.id());
        let leaving: Vec<String> = present
            .iter()
            .filter(|it| is_taken(it) && !is_same(it))
            .map(|it| it.rule.id().to_owned())
            .collect();
        let coming: Vec<(u64, Rule)> = by_id
            .values()
            .map(|rule| (self.get(rule.id()), *rule))
            .filter(|(known, _)| !known.is_some_and(is_same))
            .map(|(known, rule)| (known.map_or(1, |known| known.generation + 1), rule.clone()))
            .collect();
        let is_changed = !leaving.is_empty() || !coming.is_empty();
        leaving.iter().for_each(|id| self.close(id, from_ms));
        for (generation, rule) in coming {
            self.add(rule, generation, true, from_ms)?;
        }
        self.generation += u64::from(is_changed);
        Ok(is_changed)
    }

    /// Forgets versions that no cell needs which begins at this time or later. Says whether there were any.
    pub fn forget(&mut self, before_ms: i64) -> bool {
        let count = self.versions.len();
        self.versions.retain(|it| it.until_ms.is_none_or(|until_ms| until_ms > before_ms));
        let is_changed = self.versions.len() < count;
        self.generation += u64::from(is_changed);
        is_changed
    }

    /// The generation of a rule that may be changed; 0 when there is none.
    fn editable(&self, id: &str, expected: Option<u64>) -> Result<u64, Error> {
        let known = self.get(id);
        if known.is_some_and(|known| known.is_provisioned) {
            return Err(Error::Provisioned { id: id.to_owned() });
        }
        let found = known.map_or(0, |known| known.generation);
        match expected {
            Some(expected) if expected != found => {
                Err(Error::Conflict { id: id.to_owned(), expected, found })
            }
            _ => Ok(found),
        }
    }

    /// Ends what is in force of a rule. A version that no cell had is not kept.
    fn close(&mut self, id: &str, from_ms: i64) {
        for version in &mut self.versions {
            if version.until_ms.is_none() && version.rule.id() == id {
                // A clock that went back ends nothing before it began.
                version.until_ms = Some(from_ms.max(version.from_ms));
            }
        }
        self.versions.retain(|it| it.until_ms != Some(it.from_ms));
    }

    fn add(
        &mut self,
        rule: Rule,
        generation: u64,
        is_provisioned: bool,
        from_ms: i64,
    ) -> Result<&Version, Error> {
        // No cell has two versions of a rule.
        let ends = self.versions.iter().filter(|it| it.rule.id() == rule.id());
        let from_ms = ends.filter_map(|it| it.until_ms).fold(from_ms, i64::max);
        let id = rule.id().to_owned();
        let version = Version { rule, generation, is_provisioned, from_ms, until_ms: None };
        self.versions.push(version);
        self.versions.last().ok_or(Error::Missing { id })
    }
}

/// Refuses a rule whose metric in the default form is another's of another profile type or of something else: all that is neither letter
/// nor digit is an underscore there, so that names of different types may be the same.
fn clash<'a>(rule: &Rule, others: impl IntoIterator<Item = &'a Rule>) -> Result<(), Error> {
    let prefix = Prefix::default();
    let names = |rule: &Rule| {
        let delta = prefix.metric(rule.kind(), &rule.draft().profile_type);
        [format!("{delta}_total"), delta]
    };
    let has_default = |rule: &&Rule| rule.draft().metric.is_none();
    if !has_default(&rule) {
        return Ok(());
    }
    let own = names(rule);
    for other in others.into_iter().filter(has_default) {
        let is_same = rule.kind() == other.kind() && rule.profile_type() == other.profile_type();
        let mut theirs = names(other).into_iter();
        if !is_same && let Some(metric) = theirs.find(|name| own.contains(name)) {
            return Err(Error::Clash { metric, other: other.id().to_owned() });
        }
    }
    Ok(())
}
