//! Call sites: what their records are, and whether they are wanted.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::kept::{Held, Kept};
use crate::layout::{FieldType, MAX_DESCRIPTION_LEN, MAX_SITES, Severity, SiteKind};

/// A call site. [`tracepoint!`](crate::tracepoint) makes a static of each.
#[derive(Debug)]
pub struct Site {
    kind: SiteKind,
    name: &'static str,
    target: &'static str,
    file: &'static str,
    line: u32,
    severity: Severity,
    fields: &'static [FieldInfo],
    /// [`NEW`], [`OFF`], or the site's number and one.
    state: AtomicU32,
    /// [`NEW`], [`NONE_LEFT`], or its number and one.
    number: AtomicU32,
    is_judged: AtomicBool,
    /// The one that was registered before.
    next: AtomicPtr<Site>,
}

/// A field of a call site.
#[derive(Debug, Clone, Copy)]
pub struct FieldInfo {
    /// As it is written in the source.
    pub name: &'static str,
    /// Of each value.
    pub kind: FieldType,
}

/// Its records are not wanted.
pub(crate) const OFF: u32 = 0;
/// Nobody has come by.
const NEW: u32 = u32::MAX;
/// There were as many sites as there may be.
const NONE_LEFT: u32 = u32::MAX - 1;

/// How many sites have a number.
static NUMBERED: AtomicU32 = AtomicU32::new(0);
/// The site that was registered last.
static LAST: AtomicPtr<Site> = AtomicPtr::new(ptr::null_mut());
/// None: all sites are on.
static RULES: Kept<Rules> = Kept::none();
/// Sites were registered that nobody has judged.
static IS_UNJUDGED: AtomicBool = AtomicBool::new(false);

/// The most rules, and the longest.
pub const MAX_RULES: usize = 256;
/// See [`MAX_RULES`].
pub const MAX_RULE_LEN: usize = 256;

/// Which call sites are on: of the rules that match a site's name, the last holds. Without one it is on.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    is_on: bool,
    /// A name, or what names begin with and `*`.
    pattern: String,
}

impl Rules {
    /// From lines `+NAME` and `-NAME`, where a name may end with `*`; `None` when a line is none of these, or there are too many.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rule = |line: &str| {
            let (sign, pattern) = line.split_at_checked(1)?;
            let is_on = match sign {
                "+" => true,
                "-" => false,
                _ => return None,
            };
            let is_fit = !pattern.is_empty() && pattern.len() <= MAX_RULE_LEN;
            is_fit.then(|| Rule { is_on, pattern: pattern.to_owned() })
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let rules: Option<Vec<Rule>> = lines.map(rule).collect();
        rules.filter(|rules| rules.len() <= MAX_RULES).map(Self)
    }

    fn is_on(&self, name: &str) -> bool {
        let holds = |rule: &&Rule| match rule.pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == rule.pattern,
        };
        self.0.iter().rev().find(holds).is_none_or(|rule| rule.is_on)
    }
}

impl Site {
    /// Of a place in the source; [`tracepoint!`](crate::tracepoint) and the other macros call this.
    #[must_use]
    pub const fn new(
        kind: SiteKind,
        name: &'static str,
        target: &'static str,
        (file, line): (&'static str, u32),
        fields: &'static [FieldInfo],
    ) -> Self {
        Self {
            kind,
            severity: Severity::Unspecified,
            name,
            target,
            file,
            line,
            fields,
            state: AtomicU32::new(NEW),
            number: AtomicU32::new(NEW),
            is_judged: AtomicBool::new(false),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Its records are that severe.
    #[cfg(feature = "tracing")]
    #[must_use]
    pub(crate) const fn with_severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// Whether records would be written now, which an unused site does not know. For values that take time to find.
    #[inline(always)]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.state() != OFF
    }

    /// [`OFF`], or the site's number and one if it is registered.
    #[inline(always)]
    pub(crate) fn state(&self) -> u32 {
        self.state.load(Ordering::Relaxed)
    }

    /// Gives it a number, and asks the rules whether it is on; `None` when there is no number left.
    pub(crate) fn register(&'static self) -> Option<u16> {
        if self.number.load(Ordering::Acquire) == NEW {
            self.take_number();
        }
        let number = self.number.load(Ordering::Acquire);
        u16::try_from(number.checked_sub(1)?).ok()
    }

    /// Waits for nobody: of two threads at once, one loses a number.
    fn take_number(&'static self) {
        let taken = NUMBERED.fetch_add(1, Ordering::Relaxed);
        if taken >= MAX_SITES {
            NUMBERED.fetch_sub(1, Ordering::Relaxed);
            // Asked for again: it costs little, and nothing else would count what it does not write.
            self.number.compare_exchange(NEW, NONE_LEFT, Ordering::AcqRel, Ordering::Relaxed).ok();
            return;
        }
        let is_first = self
            .number
            .compare_exchange(NEW, taken + 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if is_first {
            self.state.store(taken + 1, Ordering::Relaxed);
            self.enlist();
            judge();
        }
    }

    fn enlist(&'static self) {
        let mut last = LAST.load(Ordering::Acquire);
        loop {
            self.next.store(last, Ordering::Relaxed);
            let this = ptr::from_ref(self).cast_mut();
            match LAST.compare_exchange_weak(last, this, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => last = other,
            }
        }
    }

    fn set(&self, is_on: bool) {
        let number = self.number.load(Ordering::Relaxed);
        self.state.store(if is_on { number } else { OFF }, Ordering::Relaxed);
    }

    /// Its description, as `docs/formats/rings.md` draws it; `None` when it is too long.
    pub(crate) fn describe(
        &self,
        number: u16,
        out: &mut [u8; MAX_DESCRIPTION_LEN],
    ) -> Option<usize> {
        let mut at = Filling { out, len: 2 };
        at.put(&number.to_ne_bytes())?;
        at.put(&[self.kind as u8, u8::try_from(self.fields.len()).ok()?])?;
        at.put(&[self.severity as u8, 0])?;
        at.put(&self.line.to_ne_bytes())?;
        for text in [self.name, self.target, self.file] {
            at.text(text)?;
        }
        for field in self.fields {
            at.put(&[field.kind as u8])?;
            at.text(field.name)?;
        }
        let len = at.len.next_multiple_of(8);
        while at.len < len {
            at.put(&[0])?;
        }
        let announced = u16::try_from(len).ok()?;
        out.first_chunk_mut::<2>()?.copy_from_slice(&announced.to_ne_bytes());
        Some(len)
    }
}

struct Filling<'a> {
    out: &'a mut [u8; MAX_DESCRIPTION_LEN],
    len: usize,
}

impl Filling<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len.checked_add(bytes.len())?;
        self.out.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }

    fn text(&mut self, text: &str) -> Option<()> {
        self.put(&u16::try_from(text.len()).ok()?.to_ne_bytes())?;
        self.put(text.as_bytes())
    }
}

/// Goes by other rules from now on.
pub(crate) fn obey(rules: Rules) {
    let mut held = RULES.hold();
    held.set(rules);
    judge_all(&held);
    drop(held);
    // Those that were registered meanwhile.
    judge();
}

/// Who held the rules is not in the child, and may have judged some of the sites only.
pub(crate) fn in_child() {
    if RULES.take_back() {
        if let Some(held) = RULES.try_hold() {
            judge_all(&held);
        }
        judge();
    }
}

fn judge_all(rules: &Held<'_, Rules>) {
    each(|site| site.set(is_on(rules, site.name)));
}

fn is_on(rules: &Held<'_, Rules>, name: &str) -> bool {
    rules.get().is_none_or(|rules| rules.is_on(name))
}

/// Asks the rules about sites that nobody has asked about. Waits for nobody: who holds the rules looks again.
fn judge() {
    IS_UNJUDGED.store(true, Ordering::SeqCst);
    while IS_UNJUDGED.load(Ordering::SeqCst) {
        let Some(rules) = RULES.try_hold() else { return };
        IS_UNJUDGED.store(false, Ordering::SeqCst);
        each(|site| {
            if !site.is_judged.swap(true, Ordering::Relaxed) {
                site.set(is_on(&rules, site.name));
            }
        });
    }
}

#[expect(unsafe_code, reason = "the list of statics is a list of pointers")]
fn each(mut act: impl FnMut(&'static Site)) {
    let mut next = LAST.load(Ordering::Acquire);
    // SAFETY: the list holds only pointers made of `&'static Site`, and null.
    while let Some(site) = unsafe { next.cast_const().as_ref() } {
        act(site);
        next = site.next.load(Ordering::Acquire);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_that_matches_holds() {
        let rules = Rules::parse("-*\n+sql.*\n-sql.commit\n").unwrap();
        let on = |name| rules.is_on(name);
        assert_eq!(["sql.begin", "sql.commit", "http"].map(on), [true, false, false]);
        assert!(Rules::default().is_on("anything"));
    }

    #[test]
    fn rules_have_signs_names_and_bounds() {
        let long = "x".repeat(MAX_RULE_LEN + 1);
        for wrong in ["sql", "+", "*sql", &format!("+{long}"), &"+a\n".repeat(MAX_RULES + 1)] {
            assert_eq!(Rules::parse(wrong), None, "{}", &wrong[..wrong.len().min(9)]);
        }
        assert_eq!(Rules::parse("\n"), Some(Rules::default()));
    }
}
