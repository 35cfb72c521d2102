//! OSProfiler with the driver of `python/throughline-osprofiler`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The driver's package.
#[must_use]
pub fn driver_package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/throughline-osprofiler")
}

/// An interpreter with OSProfiler and our driver; `None`, said, when PyPI was not to be had.
///
/// # Panics
/// The package cannot be built.
pub fn driver_python() -> Option<&'static Path> {
    static PYTHON: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let python = PathBuf::from(std::env::var_os("THROUGHLINE_OSPROFILER_DRIVER_PYTHON")?);
        install(&python);
        Some(python)
    });
    if PYTHON.is_none() {
        crate::skip("OSProfiler is not installed for the tests of its driver");
    }
    PYTHON.as_deref()
}

/// Builds the package from what an sdist of it has.
fn install(python: &Path) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let header = "throughline/tracepoint.h";
    let include = folder.path().join("package/include/throughline");
    succeeds(Command::new("cp").arg("-r").arg(driver_package()).arg(folder.path().join("package")));
    std::fs::create_dir_all(&include).expect("a folder for the header");
    let from = driver_package().join("../../crates/tracepoint/include").join(header);
    std::fs::copy(from, include.join("tracepoint.h")).expect("the header");
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-index", "--no-deps"]);
    pip.args(["--no-build-isolation", "--force-reinstall"]);
    succeeds(pip.arg(folder.path().join("package")));
}

/// Runs a command and gives what it printed.
///
/// # Panics
/// It fails.
pub fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, wrong) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{said}\n{wrong}");
    said
}
