//! Names of the kernel's functions, as they were when a sample was taken.
//!
//! The kernel is asked for an address when a sample has one that nothing is known of: an eBPF program prints it as a back trace would.
//! So `/proc/kallsyms`, which takes the kernel 30 ms and more to write, is not read where programs are allowed, and code that came a moment ago has its name at
//! once. Of eBPF programs the side band says by time when they come and go.

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, OpenObject, ProgramInput};
use model::with_causes;
use profile::Unnamed;
use symbols::{Kallsyms, KernelFunction, KernelFunctions};

use super::KernelFrame;
use super::change::{Change, Timed};
use super::sample::RawSample;
use crate::error::{Error, Result};
use crate::object;

/// Addresses that the kernel is asked for between two ticks, at some 2 µs each; what is beyond has no name.
const MAX_QUESTIONS: usize = 8192;

/// Code that went is remembered for so long behind the last sample: one may come late.
const REMEMBERED_NS: u64 = 1_000_000_000;

/// The kernel's functions, as far as samples had them.
#[derive(Debug, Default)]
pub(super) struct KernelCode {
    functions: KernelFunctions,
    namer: Namer,
    /// What it was asked for since the last tick, at most [`MAX_QUESTIONS`].
    asked: HashSet<u64>,
    /// Of records from before this moment none can be lost any more.
    whole_until_ns: u64,
}

impl KernelCode {
    /// Asks the kernel for what the samples have and nothing is known of. Comes before the side bands are read, so that these hold
    /// all that happened before an answer.
    pub(super) fn look_up(&mut self, samples: &[(u64, Vec<u8>)], now: impl Fn() -> u64) {
        self.asked.clear();
        for sample in samples.iter().filter_map(|(_, bytes)| RawSample::read(bytes)) {
            let mut place = Place::Innermost;
            for address in sample.kernel_frames() {
                let address = place.instruction(address);
                self.ask(address, sample.time_ns, &now);
                place = Place::above(self.functions.find(address, sample.time_ns));
            }
        }
    }

    fn ask(&mut self, address: u64, time_ns: u64, now: impl Fn() -> u64) {
        let is_known = self.functions.find(address, time_ns).is_some();
        if is_known || self.asked.len() >= MAX_QUESTIONS || !self.asked.insert(address) {
            return;
        }
        let at_ns = now();
        if let Some(function) = self.namer.ask(address) {
            self.functions.answered(function, at_ns);
        }
    }

    /// Takes in what happened.
    pub(super) fn apply(&mut self, Timed { at_ns, change }: &Timed) {
        match change {
            Change::KernelCode { function, is_gone: false } => {
                self.functions.came(function.clone(), *at_ns);
            }
            Change::KernelCode { function, is_gone: true } => {
                self.functions.went(function.clone(), *at_ns);
            }
            Change::Lost(_) => self.functions.lost(self.whole_until_ns, *at_ns),
            _ => {}
        }
    }

    /// The frames of a sample.
    pub(super) fn frames(&self, sample: &RawSample<'_>) -> Vec<KernelFrame> {
        let mut place = Place::Innermost;
        let frame = |address| {
            let address = place.instruction(address);
            let known = self.functions.find(address, sample.time_ns);
            place = Place::above(known);
            let function = known.map(Arc::clone).ok_or_else(|| self.why_not(address));
            KernelFrame { address, function }
        };
        sample.kernel_frames().map(frame).collect()
    }

    fn why_not(&self, address: u64) -> Unnamed {
        match self.namer {
            Namer::Refused(_) => Unnamed::Hidden,
            _ if self.asked.contains(&address) => Unnamed::NoSymbol,
            _ => Unnamed::Budget,
        }
    }

    /// Samples of before this moment have been named, and the side bands were read after it.
    pub(super) fn forget(&mut self, before_ns: u64) {
        self.whole_until_ns = before_ns;
        self.functions.forget(before_ns.saturating_sub(REMEMBERED_NS));
    }

    /// Functions that found no room.
    pub(super) const fn left_out(&self) -> u64 {
        self.functions.left_out()
    }
}

/// What an address of a stack is.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// The instruction that ran.
    Innermost,
    /// The one that was interrupted.
    Interrupted,
    /// The one behind a call: that may be another function's first.
    Returned,
}

impl Place {
    /// That of the address above a function's.
    fn above(function: Option<&Arc<KernelFunction>>) -> Self {
        // What the processor enters at an interrupt: arch/x86/include/asm/idtentry.h, arch/arm64/kernel/entry.S.
        let x86_64 = ["asm_sysvec_", "asm_exc_", "asm_common_interrupt", "asm_spurious_interrupt"];
        let aarch64 = ["el1h_64_irq", "el1h_64_fiq", "el1h_64_sync", "el1h_64_error"];
        let is_entry = |name: &str| {
            aarch64.contains(&name) || x86_64.iter().any(|entry| name.starts_with(entry))
        };
        if function.is_some_and(|function| is_entry(&function.name)) {
            Self::Interrupted
        } else {
            Self::Returned
        }
    }

    const fn instruction(self, address: u64) -> u64 {
        match self {
            Self::Innermost | Self::Interrupted => address,
            Self::Returned => address.saturating_sub(1),
        }
    }
}

/// The program that asks.
#[derive(Debug, Default)]
enum Namer {
    #[default]
    NotLoaded,
    Loaded(Object),
    /// The kernel refused it: what it said of all its functions at that moment. Nothing where it hides them.
    Refused(Kallsyms),
}

impl Namer {
    /// The function of an address.
    fn ask(&mut self, address: u64) -> Option<KernelFunction> {
        if matches!(self, Self::NotLoaded) {
            *self = match load() {
                Ok(object) => Self::Loaded(object),
                Err(error) => {
                    let error = with_causes(&error);
                    tracing::debug!(error, "the kernel's functions are listed");
                    Self::Refused(Kallsyms::of(&fs::read("/proc/kallsyms").unwrap_or_default()))
                }
            };
        }
        let object = match self {
            Self::Loaded(object) => object,
            Self::Refused(all) => return all.find(address),
            Self::NotLoaded => return None,
        };
        let mut question = address.to_ne_bytes();
        let input = ProgramInput { context_in: Some(&mut question), ..ProgramInput::default() };
        object.progs_mut().next()?.test_run(input).ok()?;
        let names = object.maps().find(|map| map.name() == "names")?;
        let text = names.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()??;
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        KernelFunction::printed(&String::from_utf8_lossy(text), address)
    }
}

fn load() -> Result<Object> {
    let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/names.bpf.o"));
    object::load(|| {
        let loaded = ObjectBuilder::default().open_memory(bytes).and_then(OpenObject::load);
        loaded.map_err(Error::bpf("load the program that names the kernel's functions"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(begin: u64) -> KernelFunction {
        KernelFunction { name: "x".into(), module: Some("bpf".into()), begin, end: begin + 64 }
    }

    /// The one behind a call may be another function's first, the one that was interrupted may be its own function's first.
    #[test]
    fn callers_are_looked_up_inside_the_call_and_interrupted_code_where_it_was() {
        let named = |name: &str| Arc::new(KernelFunction { name: name.into(), ..function(0) });
        let instruction = |inner: &str| Place::above(Some(&named(inner))).instruction(0x1000);
        assert_eq!(Place::Innermost.instruction(0x1000), 0x1000);
        assert_eq!(instruction("schedule"), 0xfff);
        assert_eq!(instruction("asm_sysvec_apic_timer_interrupt"), 0x1000);
        assert_eq!(instruction("asm_load_gs_index"), 0xfff);
        assert_eq!(instruction("el1h_64_irq"), 0x1000);
        assert_eq!(instruction("el1h_64_irq_handler"), 0xfff);
        assert_eq!(Place::above(None).instruction(0x1000), 0xfff);
    }

    #[test]
    fn records_are_taken_in_and_what_went_is_forgotten_after_a_while() {
        let mut kernel = KernelCode::default();
        let change = |at_ns, is_gone| Timed {
            at_ns,
            change: Change::KernelCode { function: function(0x1000), is_gone },
        };
        kernel.apply(&change(10, false));
        kernel.apply(&change(20, true));
        kernel.forget(20 + REMEMBERED_NS);
        assert!(kernel.functions.find(0x1010, 15).is_some());
        kernel.forget(21 + REMEMBERED_NS);
        assert!(kernel.functions.find(0x1010, 15).is_none());
        let mut kernel = KernelCode::default();
        kernel.apply(&change(30, false));
        kernel.forget(35);
        kernel.apply(&Timed { at_ns: 40, change: Change::Lost(1) });
        assert!(kernel.functions.find(0x1010, 34).is_some());
        assert!(kernel.functions.find(0x1010, 35).is_none());
    }
}
