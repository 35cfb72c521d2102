//! All functions of the running kernel at once, as `/proc/kallsyms` lists them.

use std::sync::Arc;

use crate::kernel::KernelFunction;

/// More lines than any kernel has; what comes then is left out.
const MAX_FUNCTIONS: usize = 4 << 20;

/// Functions of the kernel by address, as `/proc/kallsyms` lists them.
#[derive(Debug, Clone, Default)]
pub struct Kallsyms {
    rows: Vec<Row>,
    names: String,
    modules: Vec<Arc<str>>,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    address: u64,
    name: u32,
    name_bytes: u16,
    /// 0: the kernel itself; else one more than the position of its module.
    module: u16,
}

impl Kallsyms {
    /// Of `/proc/kallsyms`. Where addresses are hidden (all are zero) there is none.
    #[must_use]
    pub fn of(kallsyms: &[u8]) -> Self {
        let mut all = Self::default();
        for line in kallsyms.split(|byte| *byte == b'\n').take(MAX_FUNCTIONS) {
            all.line(line);
        }
        all.rows.sort_by_key(|row| row.address);
        all.rows.dedup_by_key(|row| row.address);
        all
    }

    /// The function that an address is of: the last one that begins before it, up to the next.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<KernelFunction> {
        let behind = self.rows.partition_point(|row| row.address <= address);
        let row = self.rows.get(behind.checked_sub(1)?)?;
        let begin = usize::try_from(row.name).ok()?;
        let name = self.names.get(begin..begin + usize::from(row.name_bytes))?;
        let module = usize::from(row.module).checked_sub(1).and_then(|at| self.modules.get(at));
        let end = self.rows.get(behind).map_or(u64::MAX, |next| next.address);
        let module = module.map(|module| Box::from(&**module));
        Some(KernelFunction { name: name.into(), module, begin: row.address, end })
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// `address type name`, and behind a tab the module in brackets.
    fn line(&mut self, line: &[u8]) {
        let Ok(line) = std::str::from_utf8(line) else { return };
        let mut words = line.split_ascii_whitespace();
        let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next())
        else {
            return;
        };
        let address = u64::from_str_radix(address, 16).unwrap_or(0);
        if address == 0 || !matches!(kind, "t" | "T" | "w" | "W") {
            return;
        }
        let module = words.next().map(|it| it.trim_matches(['[', ']']));
        let (Ok(begin), Ok(name_bytes)) =
            (u32::try_from(self.names.len()), u16::try_from(name.len()))
        else {
            return;
        };
        let module = module.map_or(0, |module| self.module(module));
        self.names.push_str(name);
        self.rows.push(Row { address, name: begin, name_bytes, module });
    }

    fn module(&mut self, name: &str) -> u16 {
        let known = self.modules.iter().rposition(|module| **module == *name);
        let at = known.unwrap_or_else(|| {
            self.modules.push(name.into());
            self.modules.len() - 1
        });
        u16::try_from(at + 1).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_up_to_the_next_one_with_their_module() {
        let kernel = Kallsyms::of(
            b"ffffffff81000000 T _stext\nffffffff81000100 t do_one\nffffffff81000180 D data\n\
              ffffffffc0000000 t probe\t[virtio]\nffffffffc0001000 t bpf_prog_1\t[bpf]\nnonsense\n",
        );
        let name = |address| {
            let found = kernel.find(address)?;
            Some((found.name.to_string(), found.module.map(String::from), found.begin))
        };
        let named = |name: &str, module: Option<&str>, begin| {
            Some((name.to_owned(), module.map(str::to_owned), begin))
        };
        assert_eq!(name(0xffff_ffff_80ff_ffff), None);
        assert_eq!(name(0xffff_ffff_8100_00ff), named("_stext", None, 0xffff_ffff_8100_0000));
        assert_eq!(name(0xffff_ffff_8100_0190), named("do_one", None, 0xffff_ffff_8100_0100));
        let probe = named("probe", Some("virtio"), 0xffff_ffff_c000_0000);
        assert_eq!(name(0xffff_ffff_c000_0010), probe);
        let program = named("bpf_prog_1", Some("bpf"), 0xffff_ffff_c000_1000);
        assert_eq!(name(0xffff_ffff_c000_1000), program);
        assert_eq!(kernel.find(0xffff_ffff_8100_0101).unwrap().end, 0xffff_ffff_c000_0000);
    }

    #[test]
    fn hidden_addresses_give_no_names() {
        let kernel = Kallsyms::of(b"0000000000000000 T _stext\n0000000000000000 T _text\n");
        assert!(kernel.is_empty());
        assert!(kernel.find(1).is_none());
    }
}
