//! Two profiles compared by function.

use super::functions::{Cost, functions};
use super::weights::{Weights, amount, percent};

/// A function in two profiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Name and module.
    pub function: (String, String),
    /// Cost in the first.
    pub before: Cost,
    /// Cost in the second.
    pub after: Cost,
}

/// Functions whose cost differs, the largest difference in self value first, then in total.
#[must_use]
pub fn diff(before: &Weights, after: &Weights) -> Vec<Change> {
    let (mut old, new) = (functions(before), functions(after));
    let mut changes: Vec<Change> = new
        .into_iter()
        .map(|(function, after)| Change {
            before: old.remove(&function).unwrap_or_default(),
            function,
            after,
        })
        .collect();
    let gone = old.into_iter();
    changes.extend(gone.map(|(function, before)| Change {
        function,
        before,
        after: Cost::default(),
    }));
    changes.retain(|change| change.before != change.after);
    changes.sort_by(|a, b| {
        let size = |c: &Change| {
            let self_value = c.after.self_value.abs_diff(c.before.self_value);
            (self_value, c.after.total.abs_diff(c.before.total))
        };
        size(b).cmp(&size(a)).then_with(|| a.function.cmp(&b.function))
    });
    changes
}

/// The `most` largest changes as a table: difference in self value and in total, absolute and in shares of all that each profile
/// holds, so that profiles of different length compare.
#[must_use]
pub fn diff_text(before: &Weights, after: &Weights, most: usize) -> String {
    let (old, new) = (before.total(), after.total());
    let unit = after.kind().1;
    let mut out = format!(
        "before {} in {} samples, after {} in {} samples\n\n{:>11} {:>8} {:>11} {:>8}  function\n",
        before.amount(old),
        before.samples(),
        after.amount(new),
        after.samples(),
        "self",
        "points",
        "total",
        "points"
    );
    for change in diff(before, after).into_iter().take(most) {
        let points = |b: i64, a: i64| percent(a, new) - percent(b, old);
        let signed = |b: i64, a: i64| {
            let difference = a.saturating_sub(b);
            let sign = if difference > 0 { "+" } else { "" };
            format!("{sign}{}", amount(difference, unit))
        };
        let (b, a) = (change.before, change.after);
        let name: String =
            change.function.0.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        out.push_str(&format!(
            "{:>11} {:>+8.2} {:>11} {:>+8.2}  {name}\n",
            signed(b.self_value, a.self_value),
            points(b.self_value, a.self_value),
            signed(b.total, a.total),
            points(b.total, a.total),
        ));
    }
    out
}
