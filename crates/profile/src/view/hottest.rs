//! The hottest functions and stacks for a terminal.

use super::functions::{functions_text, push};
use super::weights::{Label, Weights, percent};

/// Frames of a stack that are shown, from the leaf.
const SHOWN: usize = 8;

/// The `most` heaviest functions and stacks as text of at most `width` columns, stacks leaf first, below a line that says what was counted, and how
/// much of it was lost or is not whole.
#[must_use]
pub fn hottest(weights: &Weights, most: usize, width: usize) -> String {
    let total = weights.total();
    let mut stacks = weights.stacks();
    stacks.sort_by_key(|(_, value)| std::cmp::Reverse(*value));
    let count = stacks.len();
    let mut out = head(weights, total, count);
    let functions = functions_text(weights, most, width);
    if !functions.is_empty() {
        out.push('\n');
        out.push_str(&functions);
    }
    for (stack, value) in stacks.into_iter().take(most) {
        let share = format!("{:5.1} %  {:>9}  ", percent(value, total), weights.amount(value));
        let indent = " ".repeat(share.chars().count());
        let (process, frames) =
            stack.split_first().map_or(("", &[] as &[_]), |(p, rest)| (p.name.as_str(), rest));
        out.push('\n');
        push(&mut out, &format!("{share}{process}"), width);
        for label in frames.iter().rev().take(SHOWN) {
            push(&mut out, &format!("{indent}{}", shown(label)), width);
        }
        if frames.len() > SHOWN {
            push(
                &mut out,
                &format!("{indent}… {} more up to the root", frames.len() - SHOWN),
                width,
            );
        }
        if frames.is_empty() {
            push(&mut out, &format!("{indent}(no stack)"), width);
        }
    }
    out
}

fn head(weights: &Weights, total: i64, stacks: usize) -> String {
    let (kind, _) = weights.kind();
    let mut out = format!(
        "{} of {} in {} samples, {stacks} stacks, {:.1} % of the samples to the root\n",
        weights.amount(total),
        if kind.is_empty() { "nothing" } else { kind },
        weights.samples(),
        percent(
            weights.whole().try_into().unwrap_or(i64::MAX),
            weights.samples().try_into().unwrap_or(i64::MAX)
        ),
    );
    for (class, count) in weights.lost() {
        out.push_str(&format!("lost: {count} samples ({class})\n"));
    }
    if weights.other_kinds() != 0 {
        out.push_str(&format!("not counted: {} samples of another kind\n", weights.other_kinds()));
    }
    if weights.left_out() != 0 {
        out.push_str(&format!(
            "not counted: {} samples for which there was no room\n",
            weights.left_out()
        ));
    }
    out
}

fn shown(label: &Label) -> String {
    let name: String =
        label.name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let mark = match (label.kind.as_str(), label.inlined) {
        (_, true) => "  (inlined)",
        ("kernel", false) => "  (kernel)",
        ("cpython", false) => "  (Python)",
        _ => "",
    };
    name + mark
}
