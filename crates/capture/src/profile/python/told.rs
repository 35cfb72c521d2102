//! What the program was told of interpreters.

use cpython::{Interpreter, Layout};
use libbpf_rs::{MapCore, MapFlags};
use model::Pid;

use crate::error::{Error, Result};
use crate::profile::processes::Process;

/// Layouts that the program has room for: `MAX_PYTHON_LAYOUTS` of `bpf/sample.h`. Builds of one version share theirs.
const MAX_LAYOUTS: usize = 64;

/// The layouts that the program knows, by number.
#[derive(Debug, Default)]
pub(in crate::profile) struct Told {
    layouts: Vec<Layout>,
    /// Processes that found no room.
    pub(in crate::profile) left_out: u64,
}

impl Told {
    /// Tells the maps of layouts and of interpreters which one a process has, by the files that were read; that it has none, if so.
    ///
    /// # Errors
    /// [`Error::Bpf`] when the kernel does not take the layout.
    pub(in crate::profile) fn tell(
        &mut self,
        (layouts, processes): (&impl MapCore, &impl MapCore),
        pid: Pid,
        process: &Process,
    ) -> Result<()> {
        let key = pid.get().to_ne_bytes();
        let value = match interpreter(process) {
            Some((interpreter, moved_by)) => {
                let number = self.number(&interpreter.layout, layouts)?;
                number.map(|number| value(interpreter, moved_by, process.changed_ns, number))
            }
            None => {
                // Mostly it had none before.
                drop(processes.delete(&key));
                return Ok(());
            }
        };
        // The map takes a fixed number of processes.
        let told = value.is_some_and(|value| processes.update(&key, &value, MapFlags::ANY).is_ok());
        self.left_out += u64::from(!told);
        Ok(())
    }

    /// The number of a layout; `None` when there are too many.
    fn number(&mut self, layout: &Layout, layouts: &impl MapCore) -> Result<Option<u32>> {
        let number = |at: usize| u32::try_from(at).ok();
        if let Some(known) = self.layouts.iter().position(|it| it == layout) {
            return Ok(number(known));
        }
        let next = number(self.layouts.len()).filter(|_| self.layouts.len() < MAX_LAYOUTS);
        if let Some(next) = next {
            layouts
                .update(&next.to_ne_bytes(), &layout.to_bytes(), MapFlags::ANY)
                .map_err(Error::bpf("tell of a version of CPython"))?;
            self.layouts.push(*layout);
        }
        Ok(next)
    }
}

/// Whether a process has mapped what is called as CPython is, or what was found to be it.
pub(in crate::profile) fn is_expected(process: &Process) -> bool {
    process.code.values().any(|mapping| {
        let name = mapping.file.path.file_name().unwrap_or_default().to_string_lossy();
        Interpreter::is_file_name(&name)
            || mapping.file.code().is_some_and(|code| matches!(code.known_python(), Some(Ok(_))))
    })
}

/// The interpreter that a process has mapped, of the files that were read already, and how far its file was moved.
fn interpreter(process: &Process) -> Option<(&Interpreter, u64)> {
    process.code.iter().find_map(|(begin, mapping)| {
        let code = mapping.file.code()?;
        let interpreter = code.known_python()?.ok()?;
        Some((interpreter, code.moved_by(*begin, mapping.file_offset)?))
    })
}

/// `struct python` of `bpf/sample.h`.
fn value(interpreter: &Interpreter, moved_by: u64, known_ns: u64, layout: u32) -> [u8; 40] {
    let mapped = |address: u64| address.wrapping_add(moved_by);
    let words = [
        known_ns,
        mapped(interpreter.interpreters),
        interpreter.key.map_or(0, mapped),
        mapped(interpreter.code_type),
        layout.into(),
    ];
    let mut bytes = [0; 40];
    for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *to = word.to_ne_bytes();
    }
    bytes
}
