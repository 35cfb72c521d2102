//! What functions cost.

use std::collections::{BTreeMap, BTreeSet};

use super::weights::{Label, Weights, percent};

/// What a function costs: in itself, and with all that it called. A function that calls itself counts once for each sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "said above")]
pub struct Cost {
    pub self_value: i64,
    pub total: i64,
}

/// Cost of each function by name and module. Processes are not functions.
#[must_use]
pub fn functions(weights: &Weights) -> BTreeMap<(String, String), Cost> {
    let mut costs: BTreeMap<(&str, &str), Cost> = BTreeMap::new();
    let is_function = |label: &&&Label| label.kind != "process";
    let stacks = weights.stacks();
    for (stack, value) in &stacks {
        let frames = stack.iter().filter(is_function);
        let distinct: BTreeSet<_> = frames.map(|l| (l.name.as_str(), l.module.as_str())).collect();
        for function in distinct {
            let cost = costs.entry(function).or_default();
            cost.total = cost.total.saturating_add(*value);
        }
        if let Some(leaf) = stack.last().filter(|label| is_function(label)) {
            let cost = costs.entry((&leaf.name, &leaf.module)).or_default();
            cost.self_value = cost.self_value.saturating_add(*value);
        }
    }
    costs
        .into_iter()
        .map(|((name, module), cost)| ((name.to_owned(), module.to_owned()), cost))
        .collect()
}

/// All functions as a table, at most `most` of them in lines of at most `width` columns: those first in which the most was spent, then those that called the most.
#[must_use]
pub fn functions_text(weights: &Weights, most: usize, width: usize) -> String {
    let total = weights.total();
    let mut all: Vec<_> = functions(weights).into_iter().collect();
    all.sort_by_key(|(_, cost)| std::cmp::Reverse((cost.self_value, cost.total)));
    let mut out = String::new();
    if !all.is_empty() {
        push(&mut out, &format!("{:>18}  {:>18}  function", "self", "total"), width);
    }
    for ((name, module), cost) in all.into_iter().take(most) {
        let part = |value| format!("{:5.1} %  {:>9}", percent(value, total), weights.amount(value));
        let module = module.rsplit('/').next().unwrap_or_default();
        let place = if module.is_empty() { String::new() } else { format!("  ({module})") };
        let name: String =
            name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        let line = format!("{}  {}  {name}{place}", part(cost.self_value), part(cost.total));
        push(&mut out, &line, width);
    }
    out
}

/// Appends a line, cut to so many columns.
pub(super) fn push(out: &mut String, line: &str, width: usize) {
    if line.chars().count() > width {
        out.extend(line.chars().take(width.saturating_sub(1)));
        out.push('…');
    } else {
        out.push_str(line);
    }
    out.push('\n');
}
