//! Rules of a configuration.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Deserialize;
use toml::Spanned;

use crate::error::Error;
use crate::rule::{Draft, Rule};

/// Rules that a text in TOML has: `[[rule]]` for all tenants, `[[tenant.NAME.rule]]` for one more.
///
/// ```toml
/// [[rule]]
/// profile_type = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
/// matchers = ['service_name=~"shop-.*"']
///
/// [[tenant.acme.rule]]
/// id = "checkout"
/// metric = "profiles_recorded_checkout_cpu"
/// profile_type = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
/// group_by = ["service_name", "pod"]
/// external_labels = { team = "payments" }
/// functions = { package = "shop/checkout" }
/// value = "self"
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    all: Vec<Rule>,
    tenants: BTreeMap<String, Vec<Rule>>,
}

/// What is wrong with a configuration of rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is no such table.
    #[error("line {line}: {words}")]
    Toml {
        /// Where, from 1 on.
        line: usize,
        /// What the parser says.
        words: String,
    },
    /// A rule cannot be used.
    #[error("line {line}: rule {name}: {error}")]
    Rule {
        /// Where the rule begins, from 1 on.
        line: usize,
        /// Its id, or its number among its neighbours.
        name: String,
        /// Why not.
        error: Error,
    },
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    rule: Vec<Spanned<Draft>>,
    tenant: BTreeMap<String, Tenant>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Tenant {
    rule: Vec<Spanned<Draft>>,
}

impl FromStr for Config {
    type Err = ConfigError;

    /// # Errors
    ///
    /// For text that is no such table, for a rule that cannot be used, for two of one id that one tenant would have; with the line.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let line_of = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
        let file: File = toml::from_str(text).map_err(|error| ConfigError::Toml {
            line: line_of(error.span().map_or(0, |span| span.start)),
            words: error.message().to_owned(),
        })?;
        let rules = |drafts: Vec<Spanned<Draft>>, before: &[Rule]| {
            let mut rules: Vec<Rule> = Vec::new();
            for (number, draft) in (1..).zip(drafts) {
                let line = line_of(draft.span().start);
                let draft = draft.into_inner();
                let name = if draft.id.is_empty() { number.to_string() } else { draft.id.clone() };
                let wrong = |error| ConfigError::Rule { line, name: name.clone(), error };
                let rule = Rule::try_from(draft).map_err(wrong)?;
                if before.iter().chain(&rules).any(|other| other.id() == rule.id()) {
                    return Err(wrong(Error::Twice { id: rule.id().to_owned() }));
                }
                rules.push(rule);
            }
            Ok(rules)
        };
        let all = rules(file.rule, &[])?;
        let tenants = file.tenant.into_iter();
        let tenants = tenants.map(|(name, tenant)| Ok((name, rules(tenant.rule, &all)?)));
        Ok(Self { tenants: tenants.collect::<Result<_, _>>()?, all })
    }
}

impl Config {
    /// The rules of a tenant.
    pub fn of(&self, tenant: &str) -> impl Iterator<Item = &Rule> + Clone {
        self.all.iter().chain(self.tenants.get(tenant).into_iter().flatten())
    }

    /// Tenants that have rules of their own.
    pub fn tenants(&self) -> impl Iterator<Item = &str> {
        self.tenants.keys().map(String::as_str)
    }
}
