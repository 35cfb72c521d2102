//! Applications in C and C++, which write by `throughline/tracepoint.h`. The same programs as [`app`](crate::app)'s: tests of what all
//! languages have in common are where those are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use rings::Door;
use tracepoint::layout::{Severity, SiteKind};
use tracepoint::{Context, DropReason};

use crate::peer::{App, KeptValue, Language, comes, drain, drain_all};

/// Builds the applications once for all tests of this process.
pub(crate) fn built(language: Language) -> &'static Path {
    static C: LazyLock<PathBuf> = LazyLock::new(|| build("cc", &["-std=c11", "-O2"]));
    static CXX: LazyLock<PathBuf> =
        LazyLock::new(|| build("c++", &["-std=c++17", "-O2", "-x", "c++"]));
    match language {
        Language::C => &C,
        Language::Cxx => &CXX,
        Language::Rust => unreachable!("this binary itself"),
    }
}

/// The program, of a name for who built it and how.
fn build(compiler: &str, arguments: &[&str]) -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let sources = crates.join("rings/tests/it/c");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let name = format!("app-{compiler}{}", arguments.concat()).replace(['=', '+', ','], "_");
    let unfinished = out.join(format!("{name}-{}", std::process::id()));
    let strict = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wpedantic", "-Werror"];
    let mut command = Command::new(compiler);
    command.args(arguments).args(strict).arg("-I").arg(crates.join("tracepoint/include"));
    command.args(["app.c", "other.c"].map(|source| sources.join(source)));
    let output = command.args(["-pthread", "-o"]).arg(&unfinished).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{command:?}: {said}");
    // Other tests that run at the same time build the same.
    let program = out.join(name);
    std::fs::rename(unfinished, &program).unwrap();
    program
}

fn door() -> (tempfile::TempDir, Door, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rings.sock");
    let door = Door::bind(&path, false).unwrap();
    (folder, door, path)
}

const IN_C: [Language; 2] = [Language::C, Language::Cxx];

fn text(text: &str) -> KeptValue {
    KeptValue::Text(text.into(), text.len() as u32)
}

#[test]
fn fields_of_all_types_come_through_from_c_and_long_ones_are_cut() {
    let (_folder, door, path) = door();
    for language in IN_C {
        let large = [("TRACEPOINTS_RING_BYTES", "1000000"), ("OTEL_SERVICE_NAME", "shop")];
        let mut app = language.start("types", &path, &large);
        let (connection, rings) = comes(&door);
        assert_eq!(connection.pid, app.child.id());
        assert_eq!((rings.about().pid, &*rings.about().service), (app.child.id(), "shop"));
        assert_eq!(rings.about().shape.ring_len, 1 << 20);
        app.hears("written");
        let records = drain_all(&rings).remove(0).records;
        let names: Vec<&str> = records.iter().map(|record| &*record.name).collect();
        assert_eq!(names, ["none", "found", "all", "other"]);
        assert_eq!((records[0].values.len(), records[1].values.len()), (0, 0));
        let expected = [
            KeptValue::Unsigned(u64::MAX),
            KeptValue::Signed(-1),
            KeptValue::Signed(i64::MIN),
            KeptValue::Float(0.5),
            KeptValue::Float(-1e300),
            KeptValue::Bool(true),
            KeptValue::Bool(false),
            text("ä\0b"),
            text("owned"),
            KeptValue::Bytes(vec![1, 2, 255], 3),
            text(""),
            text(""),
            KeptValue::Text("ä".repeat(4096).into(), 10_000),
            text("12345678"),
            KeptValue::Bytes(vec![], 0),
            KeptValue::Unsigned(1),
        ];
        assert_eq!(records[2].values, expected);
        let names: Vec<String> = ('a'..='p').map(String::from).collect();
        assert_eq!((&records[2].fields, records[2].kind), (&names, SiteKind::Event));
        assert_eq!(records[3].place, ("app::other".to_owned(), 8));
        app.ends();
    }
}

#[test]
fn records_of_c_say_what_their_fields_are_and_are_there_whole_or_not_at_all() {
    let (_folder, door, path) = door();
    for language in IN_C {
        let mut app = language.start("tagged", &path, &[]);
        let (_connection, rings) = comes(&door);
        app.hears("written");
        let mut ring = rings.ring(0).unwrap().unwrap();
        let records = drain(&rings, &mut ring, 1 << 20).records;
        let fields: Vec<_> = records.iter().map(|record| record.fields.join(" ")).collect();
        assert_eq!(fields, ["id part part part", "part id id part"]);
        let part = KeptValue::Bytes(vec![b'x'; 8192], 8192);
        assert_eq!(records[0].values, [text("base"), part.clone(), part.clone(), part]);
        assert_eq!((records[0].severity, records[0].values.len()), (Severity::Warn, 4));
        let values = [
            KeptValue::Signed(-5),
            KeptValue::Float(0.25),
            KeptValue::Bool(true),
            KeptValue::Unsigned(3),
        ];
        assert_eq!(records[1].values, values);
        assert_eq!(rings.dropped_in(&ring)[DropReason::TooLong as usize], 2);
        app.ends();
    }
}

#[test]
fn a_child_of_a_program_in_c_has_ids_of_its_own() {
    let (_folder, _door, path) = door();
    for language in IN_C {
        let mut app = language.start("fork_ids", &path, &[]);
        let of = |said: String| Context::from_traceparent(&said).unwrap();
        let [before, child, parent] =
            ["before ", "child ", "parent "].map(|who| of(app.hears(who)));
        assert!(child.trace_id() != parent.trace_id() && child.span_id() != parent.span_id());
        assert_ne!(before.trace_id(), child.trace_id());
        app.ends();
    }
}

#[test]
fn traces_that_begin_in_c_are_written_by_ratio_and_rate() {
    let (_folder, _door, path) = door();
    for (variables, most) in [
        (&[("TRACEPOINTS_SAMPLE", "0.25")][..], 2200..2800),
        (&[("OTEL_TRACES_SAMPLER", "parentbased_always_off")][..], 0..1),
        (
            &[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "1e-1")],
            750..1250,
        ),
        (&[][..], 10_000..10_001),
    ] {
        let mut app = Language::C.start("sampling", &path, variables);
        let sampled: u32 = app.hears("sampled ").parse().unwrap();
        assert!(most.contains(&sampled), "{sampled} {variables:?}");
        // One in two seconds.
        let at_once: u32 = app.hears("at once ").parse().unwrap();
        assert!((1..5).contains(&at_once), "{at_once}");
        app.ends();
    }
}

#[test]
fn a_program_in_c_that_is_told_so_has_no_rings() {
    let (_folder, door, path) = door();
    for value in ["0", "off"] {
        let mut app = Language::C.start("types", &path, &[("TRACEPOINTS", value)]);
        app.hears("written");
        assert!(door.accept().unwrap().is_none());
        app.ends();
    }
}

/// What a sanitizer finds ends the program with a failure, which [`App::ends`] does not let pass.
#[test]
fn sanitizers_find_nothing_in_what_c_does() {
    let (_folder, door, path) = door();
    let sanitize = |kinds: &str| {
        let kinds = format!("-fsanitize={kinds}");
        build("cc", &["-std=c11", "-O1", "-g", &kinds, "-fno-sanitize-recover=all"])
    };
    let start = |program: &Path, role: &str| {
        let mut command = Command::new(program);
        command.arg(role);
        // A child may have threads of its own.
        let variables =
            [("TRACEPOINTS_RING_BYTES", "1000000"), ("TSAN_OPTIONS", "die_after_fork=0")];
        App::run(command, &path, &variables)
    };
    let undefined = sanitize("address,undefined");
    for (role, end) in [
        ("types", "written"),
        ("tagged", "written"),
        ("threads", "written"),
        ("spans", "written"),
        ("signals", "wrote"),
        ("sampling", "at once"),
    ] {
        let mut app = start(&undefined, role);
        let (_connection, _rings) = comes(&door);
        app.hears(end);
        app.ends();
    }
    let racing = sanitize("thread");
    let mut app = start(&racing, "threads");
    let (_connection, rings) = comes(&door);
    app.hears("written");
    assert!(drain_all(&rings).iter().all(|read| !read.records.is_empty()));
    app.ends();
    let mut app = start(&racing, "rules");
    let (connection, _rings) = comes(&door);
    app.hears("written");
    connection.tell_rules("-sql.*\n+sql.begin\n").unwrap();
    app.go_on();
    app.hears("written");
    app.ends();
    let mut app = start(&racing, "fork_ids");
    app.hears("child");
    app.hears("parent");
    app.ends();
}
