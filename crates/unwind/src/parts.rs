//! Stretches of code of one function.

use std::ops::Range;

use gimli::{CieOrFde, EhFrame, NativeEndian, UnwindContext, UnwindSection};

use crate::build::{aarch64_rule, bases, vendor, x86_64_rule};
use crate::image::{Architecture, Image};
use crate::rule::Cfa;

/// The stretches that the compiler made of the function at `begin`, itself first, by `.eh_frame`; at most `max`.
///
/// What is rarely run of a function may lie far from it (GCC's `.cold`), with an entry of its own right behind the function's. A function's
/// frame address is at its begin 8 bytes above the stack pointer (x86-64), or there (aarch64), which a part from its middle rarely has.
#[must_use]
pub fn parts(image: &Image<'_>, begin: u64, max: usize) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    let Some(section) = image.eh_frame else { return parts };
    let mut frames = EhFrame::new(section.bytes, NativeEndian);
    frames.set_address_size(8);
    frames.set_vendor(vendor(image.architecture()));
    let bases = bases(image, section);
    let mut context = UnwindContext::new();
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(function) = entry else { continue };
        let Ok(function) = function.parse(EhFrame::cie_from_offset) else { continue };
        let first = function.initial_address();
        if parts.is_empty() {
            if first != begin {
                continue;
            }
        } else {
            let Ok(mut rows) = function.rows(&frames, &bases, &mut context) else { break };
            let Ok(Some(row)) = rows.next_row() else { break };
            let (rule, at_begin) = match image.architecture() {
                Architecture::X86_64 => (x86_64_rule(&frames, row), Cfa::StackPointer(8)),
                Architecture::Aarch64 => (aarch64_rule(row), Cfa::StackPointer(0)),
            };
            if rule.is_none_or(|rule| rule.cfa() == at_begin) {
                break;
            }
        }
        if parts.len() >= max {
            break;
        }
        parts.push(first..first.saturating_add(function.len()));
    }
    parts
}
