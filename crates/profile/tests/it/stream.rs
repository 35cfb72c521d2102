//! A stream of samples with the proportions of a real one, always the same.
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "small numbers of a fixed stream"
)]

use profile::{
    BuildId, Builder, Frame, FrameId, FrameKind, Line, Mapping, Names, Process, Unnamed,
};

/// Begin of the stream in nanoseconds since the epoch.
pub(crate) const BEGIN: u64 = 1_795_000_000_000_000_000;

const SAMPLES: usize = 7_890;
const SECONDS: u64 = 40;
const PROCESSES: usize = 74;
const PROGRAMS: usize = 22;
const LASTING: usize = 9;

/// Stacks are by address, addresses by place in `addresses`.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) processes: Vec<Owner>,
    files: Vec<File>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) stacks: Vec<Vec<u32>>,
    pub(crate) events: Vec<Event>,
}

/// A process and its texts.
#[derive(Debug)]
pub(crate) struct Owner {
    pid: u32,
    start: u64,
    pub(crate) name: String,
    path: String,
    attributes: Vec<(String, String)>,
    program: usize,
}

#[derive(Debug)]
struct File {
    path: String,
    build_id: String,
    hash: String,
    kind: FrameKind,
    start: u64,
}

#[derive(Debug)]
pub(crate) struct Address {
    file: usize,
    address: u64,
    function: String,
    source: String,
    line: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) at: u64,
    pub(crate) process: usize,
    pub(crate) stack: usize,
    pub(crate) tid: u32,
    pub(crate) cpu: u32,
}

impl Owner {
    pub(crate) fn with<T>(&self, f: impl FnOnce(&Process<'_>) -> T) -> T {
        let attributes: Vec<_> =
            self.attributes.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        f(&Process {
            pid: self.pid,
            start_boot_ns: self.start,
            executable_name: &self.name,
            executable_path: &self.path,
            attributes: &attributes,
        })
    }
}

impl Stream {
    pub(crate) fn like_a_real_one() -> Self {
        let mut random = Random(0x9e37_79b9);
        let files = files(&mut random);
        let processes = (0..PROCESSES).map(|at| owner(at, &mut random)).collect();
        let mut stream = Self {
            processes,
            files,
            addresses: Vec::new(),
            stacks: Vec::new(),
            events: Vec::new(),
        };
        stream.fill(&mut random);
        stream
    }

    fn fill(&mut self, random: &mut Random) {
        let kernel: Vec<u32> = (0..700).map(|_| self.address(0, random)).collect();
        let mut of_program: Vec<(Vec<usize>, Vec<u32>)> = vec![Default::default(); PROGRAMS];
        let tick = SECONDS * 1_000_000_000 * 2 / SAMPLES as u64;
        for sample in 0..SAMPLES {
            // Some run all the time; the others come, run for a second and a half, and go.
            let owner = match random.below(10) {
                0..8 => random.skewed(LASTING),
                _ => LASTING + (sample * (PROCESSES - LASTING - 2) / SAMPLES) + random.skewed(3),
            };
            let program = self.processes[owner].program;
            let (stacks, known) = &mut of_program[program];
            let stack = if !stacks.is_empty() && random.below(1_000) < 462 {
                stacks[stacks.len() - 1 - random.skewed(stacks.len())]
            } else {
                let parent = stacks
                    .get(random.below(stacks.len().max(1)))
                    .map(|&id| self.stacks[id].clone());
                let stack = self.grow(parent, program, known, &kernel, random);
                stacks.push(self.stacks.len());
                self.stacks.push(stack);
                self.stacks.len() - 1
            };
            let cpu = (sample % 2) as u64;
            let at = (sample as u64 / 2) * tick + cpu * 1_217_331 + random.below(9_000) as u64;
            let tid = self.processes[owner].pid + (random.skewed(4) as u32);
            self.events.push(Event { at, process: owner, stack, tid, cpu: cpu as u32 });
        }
        self.events.sort_by_key(|event| event.at);
    }

    /// A stack that shares its root with another of the program; leaf first.
    fn grow(
        &mut self,
        parent: Option<Vec<u32>>,
        program: usize,
        known: &mut Vec<u32>,
        kernel: &[u32],
        random: &mut Random,
    ) -> Vec<u32> {
        let mut stack: Vec<u32> = parent.unwrap_or_default().into_iter().rev().collect();
        stack.retain(|at| self.addresses[*at as usize].file != 0);
        let keep = if stack.is_empty() { 0 } else { stack.len() * (55 + random.below(45)) / 100 };
        stack.truncate(keep);
        let depth = 5 + random.below(24);
        while stack.len() < depth {
            let fresh = known.len() < 12 || random.below(1_000) < 230;
            let at = if fresh {
                // The program itself, its libraries, libc.
                let file = match random.below(10) {
                    0..5 => 1 + program,
                    5..8 => 1 + PROGRAMS + (program * 3 + random.below(3)) % 30,
                    _ => 1 + PROGRAMS + 30,
                };
                self.address(file, random)
            } else {
                let end = 1 + random.skewed(known.len()) / 2;
                known[random.skewed(end)]
            };
            known.push(at);
            stack.push(at);
        }
        if random.below(10) < 4 {
            // Calls of the kernel follow a few ways, whose leaves differ.
            let way = random.skewed(40) * 12;
            stack.extend(&kernel[way..way + 3 + random.below(5)]);
            stack.push(kernel[480 + random.skewed(220)]);
        }
        stack.reverse();
        stack
    }

    fn address(&mut self, file: usize, random: &mut Random) -> u32 {
        let kind = self.files[file].kind;
        let often = random.below(5) < 2;
        let again = self.addresses.iter().rev().take(60).find(|a| often && a.file == file);
        let (function, source, line, address) = match (again, kind) {
            // Another place in a function that was seen.
            (Some(a), _) => {
                let further = random.below(300);
                (
                    a.function.clone(),
                    a.source.clone(),
                    a.line + further as u32 / 12,
                    a.address + further as u64,
                )
            }
            (None, FrameKind::CPython) => (
                function(kind, random),
                python_file(random),
                1 + random.below(1_200) as u32,
                0x1000,
            ),
            (None, _) => {
                (function(kind, random), String::new(), 0, 0x1000 + random.below(2 << 20) as u64)
            }
        };
        self.addresses.push(Address { file, address, function, source, line });
        self.addresses.len() as u32 - 1
    }

    /// The frame at an address.
    pub(crate) fn frame(&self, builder: &mut Builder, at: u32, named: bool) -> FrameId {
        let address = &self.addresses[at as usize];
        let file = &self.files[address.file];
        let line = Line {
            function: &address.function,
            file: &address.source,
            line: if address.source.is_empty() { 0 } else { address.line },
            ..Line::default()
        };
        let lines = [line];
        let named = named || !matches!(file.kind, FrameKind::Native | FrameKind::Rust);
        let mapping = Mapping {
            memory_start: file.start,
            memory_limit: file.start + (8 << 20),
            file_offset: 0,
            path: &file.path,
            build_ids: &[BuildId::Gnu(&file.build_id), BuildId::HtlHash(&file.hash)],
        };
        let frame = Frame {
            kind: file.kind,
            mapping: (file.kind != FrameKind::CPython).then_some(&mapping),
            address: if file.kind == FrameKind::CPython { 0 } else { address.address },
            names: if named { Names::Known(&lines) } else { Names::Unnamed(Unnamed::NoSymbol) },
        };
        builder.frame(&frame).expect("room")
    }
}

/// The kernel, the programs, thirty libraries, libc.
fn files(random: &mut Random) -> Vec<File> {
    let mut file = |path: String, kind| File {
        path,
        build_id: random.hex(40),
        hash: random.hex(32),
        kind,
        start: 0x5500_0000_0000 + ((random.below(1 << 28) as u64) << 12),
    };
    let mut files = vec![file("[kernel.kallsyms]".to_owned(), FrameKind::Kernel)];
    for at in 0..PROGRAMS {
        let kind =
            [FrameKind::Native, FrameKind::Rust, FrameKind::CPython, FrameKind::Native][at % 4];
        files.push(file(format!("/usr/bin/{}", PROGRAM_NAMES[at]), kind));
    }
    for at in 0..30 {
        let name = WORDS[at * 3 % WORDS.len()];
        let path = format!("/usr/lib/x86_64-linux-gnu/lib{name}.so.{}.{}", at % 7, at % 5);
        files.push(file(path, FrameKind::Native));
    }
    files.push(file("/usr/lib/x86_64-linux-gnu/libc.so.6".to_owned(), FrameKind::Native));
    files
}

fn owner(at: usize, random: &mut Random) -> Owner {
    let program = at % PROGRAMS;
    let name = PROGRAM_NAMES[program].to_owned();
    let mut attributes = vec![
        ("host.name".to_owned(), "node-17.example.net".to_owned()),
        ("process.linux.cgroup".to_owned(), format!("/system.slice/{name}.service")),
    ];
    if at.is_multiple_of(3) {
        attributes.push(("container.id".to_owned(), random.hex(64)));
    } else {
        attributes.push(("throughline.systemd.unit".to_owned(), format!("{name}.service")));
    }
    let pid = 900 + 37 * at as u32;
    let path = format!("/usr/bin/{name}");
    Owner { pid, start: 1_000_000 * random.below(1 << 30) as u64, name, path, attributes, program }
}

fn function(kind: FrameKind, random: &mut Random) -> String {
    let mut word = || WORDS[random.below(WORDS.len())];
    match kind {
        FrameKind::Rust => format!(
            "<{}::{}::{} as {}::{}>::{}_{}",
            word(),
            word(),
            capital(word()),
            word(),
            capital(word()),
            word(),
            word()
        ),
        FrameKind::CPython => format!("{}.{}_{}", capital(word()), word(), word()),
        FrameKind::Kernel => format!("{}_{}_{}", word(), word(), word()),
        _ if word().len() < 4 => {
            let (space, class) = (word(), capital(word()));
            format!(
                "{space}::{class}::{}{}({space}::{}*, unsigned long)",
                word(),
                capital(word()),
                capital(word())
            )
        }
        _ => format!("{}_{}", word(), word()),
    }
}

fn python_file(random: &mut Random) -> String {
    let (package, module) = (WORDS[random.below(40)], WORDS[random.below(WORDS.len())]);
    format!("/usr/lib/python3.11/site-packages/{package}/{module}.py")
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}

/// SplitMix64.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 11) as usize % end
    }

    /// Small numbers more often: a third of the draws below an eighth of the range.
    fn skewed(&mut self, end: usize) -> usize {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        ((unit * unit) * end as f64) as usize
    }

    fn hex(&mut self, digits: usize) -> String {
        (0..digits).map(|_| char::from(b"0123456789abcdef"[self.below(16)])).collect()
    }
}

const PROGRAM_NAMES: [&str; PROGRAMS] = [
    "postgres",
    "cargo",
    "python3.11",
    "nginx",
    "redis-server",
    "vector",
    "celery",
    "dockerd",
    "sshd",
    "ripgrep",
    "salt-minion",
    "systemd-journald",
    "containerd",
    "rustc",
    "gunicorn",
    "node",
    "java",
    "fd",
    "ansible",
    "bash",
    "clang-14",
    "tokei",
];

const WORDS: &[&str] = &[
    "accept", "alloc", "append", "archive", "arena", "async", "atomic", "balance", "batch",
    "bitmap", "block", "bio", "branch", "bucket", "buffer", "cache", "call", "chain", "channel",
    "check", "chunk", "clear", "client", "clone", "close", "codec", "collect", "column", "commit",
    "compare", "compile", "complete", "config", "connect", "context", "copy", "core", "count",
    "create", "current", "cursor", "data", "decode", "default", "delete", "dentry", "deque",
    "device", "dict", "dispatch", "drop", "emit", "encode", "enqueue", "entry", "error", "event",
    "execute", "expand", "export", "expr", "extent", "fault", "fetch", "field", "file", "filter",
    "find", "finish", "flush", "folio", "format", "frame", "free", "function", "future", "get",
    "group", "handle", "hash", "header", "heap", "index", "init", "inode", "insert", "int", "io",
    "iter", "journal", "json", "key", "layout", "leaf", "length", "level", "list", "load", "lock",
    "log", "lookup", "loop", "map", "mark", "match", "memory", "merge", "message", "method", "mm",
    "module", "move", "mutex", "name", "net", "next", "node", "object", "offset", "open", "option",
    "output", "owner", "packet", "page", "parse", "path", "peek", "plan", "poll", "pool", "pop",
    "prepare", "process", "push", "query", "queue", "range", "read", "record", "recv", "ref",
    "region", "release", "replace", "request", "reserve", "resolve", "result", "resume", "retry",
    "ring", "root", "route", "row", "run", "scan", "schedule", "schema", "search", "segment",
    "select", "send", "serial", "session", "set", "shared", "signal", "skb", "slab", "sleep",
    "slice", "slot", "socket", "sort", "source", "span", "spawn", "split", "stack", "start",
    "state", "stop", "store", "stream", "string", "submit", "swap", "sync", "syntax", "system",
    "table", "task", "tcp", "term", "text", "thread", "tick", "time", "token", "trace", "tree",
    "trigger", "try", "tuple", "type", "update", "user", "value", "vector", "vfs", "visit", "wait",
    "wake", "walk", "worker", "wrap", "write", "xfer", "yield", "zone",
];
