//! Source lines and inlined functions of what is sampled.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ::profile::view::{Weights, folded};
use ::profile::{Limits, Packet, Request};
use capture::profile::{Packer, Sample};

use crate::profile::{Running, Sampling, config};
use crate::support::{are_installed, can_sample};

/// Spends its time in a function that is inlined into two more; the lines are known here.
const INLINED: &str = "\
static volatile unsigned sink;
static inline __attribute__((always_inline)) unsigned third(unsigned n) {
  for (int i = 0; i < 20000; i++)
    sink = sink * 31 + i;
  return n;
}
static inline __attribute__((always_inline)) unsigned second(unsigned n) {
  return third(n + 2) + 1;
}
static inline __attribute__((always_inline)) unsigned first(unsigned n) {
  return second(n + 1);
}
__attribute__((noinline)) unsigned outer(unsigned n) {
  return first(n) * 7;
}
int main(int c, char **v) {
  for (;;)
    sink += outer(c);
}
";

/// Compiles it in the folder with debug information.
fn compiled(folder: &Path, options: &[&str]) -> PathBuf {
    fs::write(folder.join("inlined.c"), INLINED).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-g", "-o", "inlined", "inlined.c"]).args(options);
    assert!(compiler.current_dir(folder).status().unwrap().success());
    folder.join("inlined")
}

/// Moves the debug information of a program to a file of that name, and leaves a link to its last part.
fn split(program: &Path, debug: &str) {
    let folder = program.parent().unwrap();
    fs::create_dir_all(folder.join(debug).parent().unwrap()).unwrap();
    let run = |arguments: &[&str]| {
        let mut objcopy = Command::new("objcopy");
        assert!(objcopy.args(arguments).current_dir(folder).status().unwrap().success());
    };
    run(&["--only-keep-debug", "inlined", debug]);
    run(&["--strip-all", &format!("--add-gnu-debuglink={debug}"), "inlined"]);
}

fn sampled(program: &Path, samples: usize) -> Vec<Sample> {
    let running = Running::start(program, &[]);
    let sampling = Sampling::start(config(Some(vec![running.pid()])));
    sampling.wait(samples);
    sampling.finish().1
}

fn packed(samples: &[Sample], mut packer: Packer) -> Vec<Packet> {
    let mut packets: Vec<_> = samples.iter().filter_map(|sample| packer.add(sample)).collect();
    packets.extend(packer.finish());
    packets
}

fn packer() -> Packer {
    Packer::new(Duration::from_secs(3600), 397)
}

/// Stacks as text, and the innermost functions' lists: `function@line<start line`, innermost first, of the program's own source.
fn told(packets: &[Packet]) -> (String, BTreeSet<Vec<String>>) {
    let (mut weights, mut lists) = (Weights::new(), BTreeSet::new());
    for packet in packets {
        let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
        assert_eq!(request.check(), []);
        weights.add(&request);
        let d = &request.dictionary;
        for location in &d.locations {
            let functions = location.lines.iter().map(|line| {
                let function = d.functions.get(line.function as usize).copied().unwrap();
                let is_own = d.string(function.file).ends_with("/inlined.c");
                let name = d.string(function.name);
                is_own.then(|| format!("{name}@{}<{}", line.line, function.start_line))
            });
            lists.extend(functions.collect::<Option<Vec<_>>>().filter(|list| !list.is_empty()));
        }
    }
    (folded(&weights), lists)
}

fn list(functions: &[&str]) -> Vec<String> {
    functions.iter().map(|it| (*it).to_owned()).collect()
}

fn has_lines(program: &Path) {
    let (stacks, lists) = told(&packed(&sampled(program, 60), packer()));
    let whole = ";main;outer;first_[i];second_[i];third_[i] ";
    assert!(stacks.lines().any(|line| line.contains(whole)), "{stacks}");
    let hot =
        |line| list(&[&format!("third@{line}<2"), "second@8<7", "first@11<10", "outer@14<13"]);
    assert!(lists.contains(&hot(3)) || lists.contains(&hot(4)), "{lists:?}");
    assert!(lists.contains(&list(&["main@18<16"])), "{lists:?}");
}

#[test]
fn functions_that_were_inlined_are_told_with_lines() {
    if can_sample() && are_installed(&["cc"]) {
        let folder = tempfile::tempdir().unwrap();
        has_lines(&compiled(folder.path(), &[]));
        has_lines(&compiled(folder.path(), &["-gdwarf-4", "-gz"]));
    }
}

#[test]
fn debug_information_in_another_file_is_found_by_the_name_in_the_program() {
    if !can_sample() || !are_installed(&["cc", "objcopy"]) {
        return;
    }
    for (options, debug) in [
        (&[][..], "inlined.debug"),
        (&[], ".debug/inlined.debug"),
        (&["-Wl,--build-id=none"], "inlined.debug"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let program = compiled(folder.path(), options);
        split(&program, debug);
        has_lines(&program);
    }
}

#[test]
fn s9_debug_information_that_was_written_over_gives_no_names() {
    if !can_sample() || !are_installed(&["cc", "objcopy"]) {
        return;
    }
    let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let program = compiled(folder.path(), &[]);
    split(&program, "inlined.debug");
    split(&compiled(other.path(), &["-O1"]), "inlined.debug");
    let samples = sampled(&program, 60);
    let (stacks, lists) = told(&packed(&samples, packer()));
    assert!(stacks.contains(";outer;") && !lists.is_empty(), "{stacks}");
    let later = fs::read(other.path().join("inlined.debug")).unwrap();
    fs::write(folder.path().join("inlined.debug"), later).unwrap();
    let (stacks, lists) = told(&packed(&samples, packer()));
    assert!(!stacks.contains("outer") && lists.is_empty(), "{stacks} {lists:?}");
}

/// By checksum where there is no build id, else by that.
#[test]
fn a_file_that_is_not_the_one_meant_is_not_believed() {
    if !can_sample() || !are_installed(&["cc", "objcopy"]) {
        return;
    }
    for options in [&[][..], &["-Wl,--build-id=none"]] {
        let folder = tempfile::tempdir().unwrap();
        let program = compiled(folder.path(), options);
        split(&program, "inlined.debug");
        let other = tempfile::tempdir().unwrap();
        let changed = compiled(other.path(), &[options, &["-O1"]].concat());
        split(&changed, "inlined.debug");
        let debug = "inlined.debug";
        fs::copy(other.path().join(debug), folder.path().join(debug)).unwrap();
        let (stacks, lists) = told(&packed(&sampled(&program, 20), packer()));
        assert!(lists.is_empty(), "{lists:?}");
        assert!(!stacks.contains("outer"), "{stacks}");
    }
}

/// What is kept of debug information is dropped when there is no room, and packets are the same.
#[test]
fn packets_are_the_same_whatever_room_lines_have() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let samples = sampled(&compiled(folder.path(), &[]), 100);
    let packer = || packer().with_epoch(1_795_000_000_000_000_000);
    let kept = packed(&samples, packer());
    let (stacks, _) = told(&kept);
    assert!(stacks.contains("third"), "{stacks}");
    assert!(kept == packed(&samples, packer().with_room_for_lines(0)));
}
