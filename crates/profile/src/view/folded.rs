//! Folded stacks: one line for each stack, root first, as flame graph scripts read them.

use super::weights::{Label, Weights};

/// `process;outermost;…;leaf VALUE` lines, sorted, with values in the unit of [`Weights::kind`]. As is usual, frames of the kernel end with `_[k]` and inlined ones with `_[i]`.
/// What would break the form in a name is replaced: `;` by `:`, ends of lines by spaces.
#[must_use]
pub fn folded(weights: &Weights) -> String {
    let mut out = String::new();
    for (stack, value) in weights.stacks() {
        for (at, label) in stack.iter().enumerate() {
            if at != 0 {
                out.push(';');
            }
            line(label, &mut out);
        }
        out.push_str(&format!(" {value}\n"));
    }
    out
}

fn line(label: &Label, out: &mut String) {
    out.extend(label.name.chars().map(|c| match c {
        ';' => ':',
        c if c.is_control() => ' ',
        c => c,
    }));
    out.push_str(match (label.kind.as_str(), label.inlined) {
        (_, true) => "_[i]",
        ("kernel", false) => "_[k]",
        _ => "",
    });
}
