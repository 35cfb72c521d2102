//! A program whose functions are inlined, its debug information in a file of its own, and samples of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use model::Timestamp;
use model::samples::{Batch, Frame, Labels, Sample, Series};

const SOURCE: &str = "\
static volatile unsigned sink;
static inline __attribute__((always_inline)) void inner(unsigned n) {
\tsink += n * 3;
\tsink ^= n;
}
static inline __attribute__((always_inline)) void middle(unsigned n) {
\tfor (unsigned i = 0; i < n; i++)
\t\tinner(i);
}
__attribute__((noinline)) void outer(unsigned n) {
\tmiddle(n);
\tsink++;
}
int main(int count, char **arguments) {
\touter(count);
\treturn arguments == 0;
}
";

/// What is known of a frame: function, file and line, whether it is inlined.
pub(crate) type Known = (String, String, u32, bool);

pub(crate) struct Program {
    /// Without debug information and symbols.
    pub(crate) stripped: PathBuf,
    pub(crate) with_all: PathBuf,
    /// With debug information alone.
    pub(crate) debug: PathBuf,
    pub(crate) build_id: String,
    /// Where `outer` begins, and how many bytes it has.
    pub(crate) outer: (u64, u64),
}

impl Program {
    pub(crate) fn compile(folder: &Path) -> Self {
        let path = |name: &str| folder.join(name);
        fs::write(path("program.c"), SOURCE).unwrap();
        run("cc", ["-g", "-O1", "-Wl,--build-id=sha1", "-o"], &[path("all"), path("program.c")]);
        run("objcopy", ["--only-keep-debug"], &[path("all"), path("debug")]);
        run("objcopy", ["--strip-all"], &[path("all"), path("stripped")]);
        let notes = run("readelf", ["-n"], &[path("all")]);
        let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap();
        let symbols = run("nm", ["-S"], &[path("all")]);
        let outer = symbols.lines().find(|line| line.ends_with(" outer")).unwrap();
        let numbers: Vec<u64> =
            outer.split(' ').take(2).map(|it| u64::from_str_radix(it, 16).unwrap()).collect();
        Self {
            stripped: path("stripped"),
            with_all: path("all"),
            debug: path("debug"),
            build_id: id.to_owned(),
            outer: (numbers[0], numbers[1]),
        }
    }

    /// Where a file with its build id belongs.
    pub(crate) fn place(&self, folder: &Path, end: &str) -> PathBuf {
        let (first, rest) = self.build_id.split_at(2);
        let folder = folder.join(".build-id").join(first);
        fs::create_dir_all(&folder).unwrap();
        folder.join(format!("{rest}{end}"))
    }

    /// A sample at each of these addresses, called by `main` of another file, which has a name.
    pub(crate) fn samples(&self, kind: &str, addresses: &[u64]) -> Batch {
        let mut batch = Batch::new();
        let (kind, build_id) = (batch.text(kind), batch.text(&self.build_id));
        let series = batch.series(Series {
            profile_type: "process_cpu:cpu:nanoseconds:cpu:nanoseconds".parse().unwrap(),
            labels: Labels::default(),
        });
        let function = batch.text("caller");
        let caller = batch.frame(Frame { function, address: 5, ..Frame::default() });
        for &address in addresses {
            let own = batch.frame(Frame { kind, build_id, address, ..Frame::default() });
            let stack = batch.stack(&[own, caller]);
            let at = Timestamp::from_nanos(1);
            let (value, profile, span_id, trace_id) = (1, 0, 0, 0);
            batch.add(Sample { series, stack, at, value, profile, span_id, trace_id });
        }
        batch
    }

    /// What `addr2line` says of an address.
    pub(crate) fn by_addr2line(&self, address: u64) -> Vec<Known> {
        let exe = self.with_all.to_str().unwrap();
        let said = run("addr2line", ["-f", "-i", "-e", exe, &format!("{address:x}")], &[]);
        let lines: Vec<&str> = said.lines().collect();
        let count = lines.len() / 2;
        let frame = |(at, pair): (usize, &[&str])| {
            let (file, line) = pair[1].split(" (").next().unwrap().rsplit_once(':').unwrap();
            (pair[0].to_owned(), file.to_owned(), line.parse().unwrap_or(0), at + 1 < count)
        };
        lines.chunks(2).enumerate().map(frame).collect()
    }
}

/// What is known of each sample's stack without its caller.
pub(crate) fn known(batch: &Batch) -> Vec<Vec<Known>> {
    let frame = |id| {
        let Frame { function, file, line, is_inlined, .. } = batch.frame_of(id);
        let text = |id| batch.text_of(id).to_owned();
        (text(function), text(file), line, is_inlined)
    };
    let stack = |sample: &Sample| {
        let mut frames: Vec<Known> = batch.frames_of(sample.stack).map(frame).collect();
        assert_eq!(frames.pop().unwrap().0, "caller");
        frames
    };
    batch.samples().iter().map(stack).collect()
}

fn run<const N: usize>(program: &str, options: [&str; N], files: &[PathBuf]) -> String {
    let output = Command::new(program).args(options).args(files).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
