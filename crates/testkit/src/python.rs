//! Programs in Python, and every CPython that can run them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;

/// An interpreter of 3.8 or later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CPython {
    /// As `3.11.2`.
    pub version: String,
    /// How it is started.
    pub path: PathBuf,
}

/// The installed ones, the oldest first: those on the path and in `/usr/bin`, by their versions, and those of pyenv. Each is there once,
/// under whatever names it has.
#[must_use]
pub fn interpreters() -> Vec<CPython> {
    let mut folders: Vec<PathBuf> =
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    folders.push("/usr/bin".into());
    let versions = std::env::home_dir().map(|home| home.join(".pyenv/versions"));
    let versions = versions.and_then(|versions| fs::read_dir(versions).ok()).into_iter().flatten();
    folders.extend(versions.flatten().map(|version| version.path().join("bin")));
    let names = (8..=14).map(|minor| format!("python3.{minor}"));
    let names: Vec<_> = names.chain(["python3".to_owned()]).collect();
    let mut found = BTreeMap::new();
    for path in folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name))) {
        if let Some(identity) = identity(&path) {
            found.entry(identity).or_insert(path);
        }
    }
    let found = found.into_iter().map(|(([major, minor, micro], _), path)| CPython {
        version: format!("{major}.{minor}.{micro}"),
        path,
    });
    found.collect()
}

/// The version and the file of a CPython of 3.8 or later.
fn identity(path: &Path) -> Option<([u32; 3], String)> {
    const ASK: &str = "import os, sys; print(sys.implementation.name, *sys.version_info[:3], os.path.realpath(sys.executable))";
    let output = Command::new(path).args(["-c", ASK]).stderr(Stdio::null()).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    let mut words = said.trim_end().strip_prefix("cpython ")?.splitn(4, ' ');
    let mut number = || words.next()?.parse().ok();
    let version = [number()?, number()?, number()?];
    (version >= [3, 8, 0]).then_some((version, words.next()?.to_owned()))
}

/// What every [`Program`] begins with: `spin` takes so many seconds of its time, and `ready` waits until it is told to go on.
pub const PRELUDE: &str = r"
import os, sys, threading, time

def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        s = 1
        for i in range(300):
            s = s * 31 + i & 0xffff

def ready():
    print('ready', flush=True)
    sys.stdin.readline()
";

/// A program that runs. It is killed, and its folder goes, with this value.
#[derive(Debug)]
pub struct Program {
    child: Child,
    said: BufReader<ChildStdout>,
    folder: TempDir,
}

impl Program {
    /// Starts [`PRELUDE`] and `source` behind it as `program.py`, in a folder of its own, and waits until it calls `ready`.
    ///
    /// # Errors
    /// When it cannot be started, or says something else before.
    pub fn start(python: &Path, source: &str) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("program.py");
        fs::write(&path, format!("{PRELUDE}{source}"))?;
        let mut command = Command::new(python);
        command.arg(&path).current_dir(folder.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = child.stdout.take().map(BufReader::new);
        let said = said.ok_or_else(|| io::Error::other("there is no pipe from it"))?;
        let mut program = Self { child, said, folder };
        match program.line()?.as_deref() {
            Some("ready") => Ok(program),
            other => Err(io::Error::other(format!("{}: {other:?}", python.display()))),
        }
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where it runs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a line to it.
    ///
    /// # Errors
    /// When it has ended.
    pub fn tell(&mut self, line: &str) -> io::Result<()> {
        let Some(input) = &mut self.child.stdin else { return Ok(()) };
        input.write_all(format!("{line}\n").as_bytes())
    }

    /// The next line that it says; `None` when it has ended.
    ///
    /// # Errors
    /// When that is no text.
    pub fn line(&mut self) -> io::Result<Option<String>> {
        (&mut self.said).lines().next().transpose()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_waits_for_a_line_and_answers() {
        let Some(CPython { path, .. }) = interpreters().into_iter().next() else {
            return crate::skip("there is no CPython of 3.8 or later");
        };
        let mut program =
            Program::start(&path, "ready()\nprint(os.getpid(), os.getcwd())\n").unwrap();
        let folder = program.folder().canonicalize().unwrap();
        let expected = format!("{} {}", program.id(), folder.display());
        program.tell("go").unwrap();
        assert_eq!(program.line().unwrap(), Some(expected));
        assert_eq!(program.line().unwrap(), None);
        let refused = Program::start(&path, "print('no')\nready()\n").unwrap_err();
        assert!(refused.to_string().contains("no"), "{refused}");
    }

    #[test]
    fn every_interpreter_is_there_once_and_the_oldest_first() {
        let found = interpreters();
        let of = |python: &CPython| identity(&python.path).unwrap();
        let identities: Vec<_> = found.iter().map(of).collect();
        assert!(identities.is_sorted_by(|one, next| one < next), "{found:?}");
    }
}
