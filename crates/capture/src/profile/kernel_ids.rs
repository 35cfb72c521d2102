//! Build ids of the running kernel and its modules, which it keeps for whom wants to know.

use std::collections::HashMap;
use std::fs;

/// Those that were asked for.
#[derive(Debug, Default)]
pub(super) struct KernelIds {
    /// By module, that of the kernel itself under no name. As many as modules are loaded, which the kernel's memory bounds.
    known: HashMap<Box<str>, Option<String>>,
}

impl KernelIds {
    /// That of a module, or of the kernel itself, in hexadecimal digits; `None` when it has none or does not tell.
    pub(super) fn of(&mut self, module: Option<&str>) -> Option<String> {
        let key = module.unwrap_or_default();
        if let Some(known) = self.known.get(key) {
            return known.clone();
        }
        let found = read(module);
        self.known.insert(key.into(), found.clone());
        found
    }
}

fn read(module: Option<&str>) -> Option<String> {
    let path = match module {
        None => "/sys/kernel/notes".to_owned(),
        // Names come from the kernel, but a path is made of them.
        Some(module) if module.contains('/') || module.starts_with('.') => return None,
        Some(module) => format!("/sys/module/{module}/notes/.note.gnu.build-id"),
    };
    let notes = fs::read(path).ok()?;
    symbols::build_id_of_notes(&notes).map(super::code::hex)
}
