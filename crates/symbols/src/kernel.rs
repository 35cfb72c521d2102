//! Functions of the running kernel, by time: beside its own code there is such that comes and goes while it runs (modules, eBPF
//! programs, trampolines).

use std::collections::BTreeMap;
use std::sync::Arc;

/// Functions that are known, with those that went since [`KernelFunctions::forget`]; more are counted and left out.
const MAX_FUNCTIONS: usize = 65_536;
/// How long an answer holds for code whose going nobody tells of: a module's. In nanoseconds.
const MODULE_HOLDS_NS: u64 = 1_000_000_000;
/// The module that `/proc/kallsyms` says eBPF programs are of.
const BPF: &str = "bpf";
/// How the kernel begins the names of modules that are none: code that its own parts write.
const BUILT_IN: &str = "__builtin__";
/// How the kernel names what it made for eBPF: behind it come 16 hexadecimal digits, or a decimal number.
const BPF_PROGRAM: &str = "bpf_prog_";
const BPF_TRAMPOLINE: &str = "bpf_trampoline_";

/// A function of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KernelFunction {
    /// Its name.
    pub name: Box<str>,
    /// The module that it is of; `bpf` for programs, `None` for the kernel itself.
    pub module: Option<Box<str>>,
    /// Its first address.
    pub begin: u64,
    /// The first address behind it.
    pub end: u64,
}

impl KernelFunction {
    /// Of what the kernel prints for an address in its back traces (`%pS`): `name+0x1f/0x40`, and behind a blank the module in
    /// brackets. It says none for eBPF programs, which are known by their names. `None` when it prints the address, because nothing
    /// has it.
    #[must_use]
    pub fn printed(text: &str, address: u64) -> Option<Self> {
        let (symbol, rest) =
            text.split_once(' ').map_or((text, ""), |(symbol, rest)| (symbol, rest));
        let (name, place) = symbol.rsplit_once("+0x")?;
        let (offset, bytes) = place.split_once("/0x")?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let begin = address.checked_sub(number(offset)?)?;
        let end = begin.checked_add(number(bytes)?)?.max(address.checked_add(1)?);
        let module = rest.strip_prefix('[').and_then(|rest| rest.split_once([' ', ']']));
        let module = module.map(|(module, _)| module.into());
        let module = module.or_else(|| is_of_bpf(name).then(|| BPF.into()));
        (!name.is_empty()).then(|| Self { name: name.into(), module, begin, end })
    }
}

fn is_of_bpf(name: &str) -> bool {
    let tag = name.strip_prefix(BPF_PROGRAM).and_then(|rest| rest.get(..16));
    let number = name.strip_prefix(BPF_TRAMPOLINE).filter(|number| !number.is_empty());
    tag.is_some_and(|tag| tag.bytes().all(|byte| byte.is_ascii_hexdigit()))
        || number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Functions of the kernel that are known, by address and time.
///
/// The kernel answers when it is asked for an address. Of eBPF programs and the like it also tells when they come and go. Answers and
/// records may be taken in in any order, as long as all records from before an answer are taken in before [`find`](Self::find) is
/// asked. Times are of one clock, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct KernelFunctions {
    /// By begin and by the time from which on it is there.
    known: BTreeMap<(u64, u64), Known>,
    /// Nothing is known of the time before.
    since_ns: u64,
    left_out: u64,
}

#[derive(Debug, Clone)]
struct Known {
    until_ns: u64,
    /// When it was there for sure.
    seen_ns: u64,
    function: Arc<KernelFunction>,
}

impl KernelFunctions {
    /// The function that an address was of.
    #[must_use]
    pub fn find(&self, address: u64, at_ns: u64) -> Option<&Arc<KernelFunction>> {
        let mut below = self.known.range(..=(address, at_ns)).rev();
        // Of those that were there at one moment none overlapped another, so that only the nearest can have it.
        let was_there =
            |((_, from_ns), it): &(&(u64, u64), &Known)| (*from_ns..it.until_ns).contains(&at_ns);
        let (_, nearest) = below.find(was_there)?;
        (address < nearest.function.end).then_some(&nearest.function)
    }

    /// The kernel was asked at `at_ns`, and said this.
    pub fn answered(&mut self, function: KernelFunction, at_ns: u64) {
        let begin = function.begin;
        let is_known = |(_, it): (_, &Known)| it.until_ns > at_ns;
        if self.known.range((begin, 0)..=(begin, u64::MAX)).any(is_known) {
            return;
        }
        let until_ns = match function.module.as_deref() {
            Some(module) if module != BPF && !module.starts_with(BUILT_IN) => {
                at_ns.saturating_add(MODULE_HOLDS_NS)
            }
            // It stays, or a record says when it goes.
            _ => u64::MAX,
        };
        let from_ns = self.last_end(begin, at_ns);
        self.insert(from_ns, Known { until_ns, seen_ns: at_ns, function: Arc::new(function) });
    }

    /// The function came at `at_ns`.
    pub fn came(&mut self, function: KernelFunction, at_ns: u64) {
        self.changes(function.begin, at_ns);
        let function = Arc::new(function);
        self.insert(at_ns, Known { until_ns: u64::MAX, seen_ns: at_ns, function });
    }

    /// The function went at `at_ns`; so it was there before, also when nothing had told of it.
    pub fn went(&mut self, function: KernelFunction, at_ns: u64) {
        if !self.changes(function.begin, at_ns) {
            let from_ns = self.last_end(function.begin, at_ns);
            let function = Arc::new(function);
            self.insert(from_ns, Known { until_ns: at_ns, seen_ns: from_ns, function });
        }
    }

    /// Records were lost after `since_ns` and before `at_ns`: nothing that comes and goes is known of that time.
    pub fn lost(&mut self, since_ns: u64, at_ns: u64) {
        let mut later = Vec::new();
        for ((begin, from_ns), it) in &mut self.known {
            if it.function.module.is_none() {
                continue;
            }
            if it.seen_ns <= at_ns {
                it.until_ns = it.until_ns.min(since_ns.max(*from_ns));
            } else if *from_ns <= at_ns {
                later.push((*begin, *from_ns));
            }
        }
        for key in later {
            self.begin_later(key, at_ns);
        }
    }

    /// Forgets what went before a moment; when there is much else, all. It will not be asked for times before.
    pub fn forget(&mut self, before_ns: u64) {
        self.known.retain(|_, it| it.until_ns >= before_ns);
        if self.known.len() > MAX_FUNCTIONS / 2 {
            self.known.clear();
            self.since_ns = before_ns;
        }
    }

    /// Functions that found no room.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// What begins there is another one from `at_ns` on: what was seen before ended, what was seen later began then. Whether
    /// anything ended.
    fn changes(&mut self, begin: u64, at_ns: u64) -> bool {
        let mut has_ended = false;
        let mut later = None;
        for ((_, from_ns), it) in self.known.range_mut((begin, 0)..=(begin, u64::MAX)) {
            if it.seen_ns > at_ns && *from_ns <= at_ns {
                later = Some(*from_ns);
            } else if it.until_ns > at_ns && *from_ns < at_ns {
                it.until_ns = at_ns;
                has_ended = true;
            }
        }
        if let Some(from_ns) = later {
            self.begin_later((begin, from_ns), at_ns);
        }
        has_ended
    }

    fn begin_later(&mut self, key: (u64, u64), behind_ns: u64) {
        if let Some(it) = self.known.remove(&key) {
            self.known.insert((key.0, behind_ns.saturating_add(1)), it);
        }
    }

    /// When the last one that began there and is gone went.
    fn last_end(&self, begin: u64, at_ns: u64) -> u64 {
        let there = self.known.range((begin, 0)..=(begin, u64::MAX));
        let ends = there.map(|(_, it)| it.until_ns).filter(|until_ns| *until_ns <= at_ns);
        ends.max().unwrap_or(0).max(self.since_ns)
    }

    fn insert(&mut self, from_ns: u64, it: Known) {
        if self.known.len() < MAX_FUNCTIONS {
            self.known.insert((it.function.begin, from_ns), it);
        } else {
            self.left_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, begin: u64, end: u64) -> KernelFunction {
        KernelFunction { name: name.into(), module: Some(BPF.into()), begin, end }
    }

    /// The name at an address at each of these times.
    fn names(functions: &KernelFunctions, address: u64, times: &[u64]) -> Vec<String> {
        let name = |at_ns: &u64| functions.find(address, *at_ns).map_or("-", |it| &it.name);
        times.iter().map(name).map(str::to_owned).collect()
    }

    #[test]
    fn what_the_kernel_prints_is_read_with_its_range_and_module() {
        let read = |text: &str| KernelFunction::printed(text, 0x1050);
        let printed = |name: &str, module: Option<&str>| {
            let module = module.map(Into::into);
            Some(KernelFunction { name: name.into(), module, begin: 0x1040, end: 0x1080 })
        };
        assert_eq!(read("schedule+0x10/0x40"), printed("schedule", None));
        assert_eq!(
            read("probe.isra.0+0x10/0x40 [virtio_net]"),
            printed("probe.isra.0", Some("virtio_net"))
        );
        let of_bpf =
            ["bpf_prog_6deef7357e7b4530", "bpf_prog_6deef7357e7b4530_x", "bpf_trampoline_642"];
        for name in of_bpf {
            assert_eq!(read(&format!("{name}+0x10/0x40")), printed(name, Some("bpf")));
        }
        for name in ["bpf_prog_realloc.cold", "bpf_prog_test_run_syscall", "bpf_trampoline_update"]
        {
            assert_eq!(read(&format!("{name}+0x10/0x40")), printed(name, None));
        }
        // Behind the module there may be its build id and its taints.
        assert_eq!(
            read("x+0x10/0x40 [nvidia 0123456789abcdef (POE)]"),
            printed("x", Some("nvidia"))
        );
        // The last function has no end.
        let last = KernelFunction { name: "x".into(), module: None, begin: 0x1040, end: 0x1051 };
        assert_eq!(read("x+0x10/0x0"), Some(last));
        for not in
            ["0xffffffffc0201000", "", "+0x10/0x40", "x+0x10", "x+0xzz/0x40", "x+0x1051/0x40"]
        {
            assert_eq!(read(not), None, "{not}");
        }
        let high = KernelFunction::printed("x+0x0/0xffffffffffffffff", u64::MAX);
        assert_eq!(high, None);
    }

    #[test]
    fn the_kernel_s_own_functions_are_found_in_their_range_whatever_is_lost() {
        let mut functions = KernelFunctions::default();
        functions.answered(KernelFunction { module: None, ..function("schedule", 100, 140) }, 7);
        assert_eq!(names(&functions, 100, &[0, 7, u64::MAX - 1]), ["schedule"; 3]);
        assert_eq!(names(&functions, 139, &[7]), ["schedule"]);
        assert_eq!(names(&functions, 140, &[7]), ["-"]);
        assert_eq!(names(&functions, 99, &[7]), ["-"]);
        functions.lost(8, 9);
        assert_eq!(names(&functions, 100, &[8, 9, 10]), ["schedule"; 3]);
    }

    #[test]
    fn code_at_the_place_of_other_code_has_the_name_of_its_time() {
        let mut functions = KernelFunctions::default();
        functions.came(function("first", 100, 200), 10);
        functions.went(function("first", 100, 200), 20);
        functions.came(function("second", 100, 150), 30);
        functions.went(function("second", 100, 150), 40);
        functions.came(function("third", 120, 220), 50);
        let times = [9, 10, 19, 20, 29, 30, 39, 40, 49, 50];
        let at_its_place = ["-", "first", "first", "-", "-", "second", "second", "-", "-", "third"];
        assert_eq!(names(&functions, 130, &times), at_its_place);
        assert_eq!(names(&functions, 160, &[15, 35, 55]), ["first", "-", "third"]);
        functions.forget(40);
        assert_eq!(names(&functions, 130, &[15, 35, 55]), ["-", "second", "third"]);
    }

    #[test]
    fn code_of_before_the_records_is_known_by_its_end_or_by_an_answer() {
        let mut functions = KernelFunctions::default();
        functions.went(function("old", 100, 200), 20);
        assert_eq!(names(&functions, 150, &[0, 19, 20]), ["old", "old", "-"]);
        functions.answered(function("asked", 300, 400), 25);
        assert_eq!(names(&functions, 350, &[0, 25, 99]), ["asked"; 3]);
        functions.went(function("asked", 300, 400), 30);
        assert_eq!(names(&functions, 350, &[0, 29, 30]), ["asked", "asked", "-"]);
    }

    /// Samples of before an answer are named by the records of between, whatever the kernel said when it was asked.
    #[test]
    fn an_answer_holds_from_the_last_record_before_it() {
        let mut functions = KernelFunctions::default();
        functions.answered(function("third", 100, 200), 50);
        functions.went(function("first", 100, 180), 10);
        functions.came(function("second", 100, 190), 20);
        functions.went(function("second", 100, 190), 30);
        functions.came(function("third", 100, 200), 40);
        let times = [5, 15, 25, 35, 45, 60];
        assert_eq!(names(&functions, 150, &times), ["first", "-", "second", "-", "third", "third"]);
        functions.went(function("third", 100, 200), 70);
        assert_eq!(names(&functions, 150, &[45, 69, 70]), ["third", "third", "-"]);
        // Of what records have told already an answer says nothing about the time before.
        functions.came(function("fourth", 100, 200), 80);
        functions.answered(function("fourth", 100, 200), 90);
        assert_eq!(names(&functions, 150, &[75, 80]), ["-", "fourth"]);
    }

    #[test]
    fn modules_are_asked_for_again_after_a_while_and_all_after_a_loss() {
        let mut functions = KernelFunctions::default();
        let module = Some("virtio".into());
        functions.answered(KernelFunction { module, ..function("probe", 100, 200) }, 50);
        let end = 50 + MODULE_HOLDS_NS;
        assert_eq!(names(&functions, 150, &[50, end - 1, end]), ["probe", "probe", "-"]);
        functions.answered(function("other", 100, 200), end + 10);
        assert_eq!(names(&functions, 150, &[end - 1, end]), ["probe", "other"]);
        functions.lost(end + 15, end + 20);
        assert_eq!(names(&functions, 150, &[end + 14, end + 15]), ["other", "-"]);
    }

    /// What nobody knows has no name rather than a wrong one.
    #[test]
    fn between_lost_records_nothing_is_known_of_code_that_comes_and_goes() {
        let mut functions = KernelFunctions::default();
        functions.came(function("before", 100, 200), 10);
        functions.answered(function("asked", 110, 190), 90);
        functions.came(function("between", 300, 400), 60);
        functions.lost(50, 70);
        functions.came(function("after", 300, 400), 80);
        assert_eq!(names(&functions, 150, &[10, 49, 50, 70]), ["before", "before", "-", "-"]);
        assert_eq!(names(&functions, 150, &[71, 90, 99]), ["asked"; 3]);
        assert_eq!(names(&functions, 350, &[60, 70, 80]), ["-", "-", "after"]);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut functions = KernelFunctions::default();
        for begin in 0..MAX_FUNCTIONS as u64 + 3 {
            functions.came(function("x", begin * 10, begin * 10 + 5), 1);
        }
        assert_eq!(functions.left_out(), 3);
        functions.forget(5);
        functions.came(function("y", 0, 10), 6);
        functions.answered(function("z", 20, 30), 7);
        assert_eq!(functions.left_out(), 3);
        assert_eq!(names(&functions, 3, &[4, 6]), ["-", "y"]);
        assert_eq!(names(&functions, 23, &[4, 5]), ["-", "z"]);
    }
}
