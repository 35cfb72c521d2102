//! What is on the disk, and waiting for it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tracedir::manifest::{self, MANIFEST, Manifest};

/// How long a condition may take to become true.
const PATIENCE: Duration = Duration::from_secs(20);

/// Every file below a folder but the relay's own and manifests: path → (length, SHA-256 in hex).
pub(crate) fn files(root: &Path) -> BTreeMap<String, (u64, String)> {
    let mut found = BTreeMap::new();
    collect(root, "", &mut found);
    found
}

fn collect(folder: &Path, prefix: &str, found: &mut BTreeMap<String, (u64, String)>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{prefix}{name}");
        if name == ".relay" || name == MANIFEST {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            collect(&entry.path(), &format!("{path}/"), found);
        } else {
            let content = fs::read(entry.path()).unwrap();
            let digest: String =
                Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
            found.insert(path, (content.len() as u64, digest));
        }
    }
}

/// The manifest of every sealed chunk below a folder, by the chunk's folder; each says what is in it.
pub(crate) fn manifests(root: &Path) -> BTreeMap<PathBuf, Manifest> {
    let mut found = BTreeMap::new();
    for folder in manifest::find(&[root]) {
        let manifest = Manifest::read(&folder).unwrap().unwrap();
        assert_eq!(root.join(&manifest.origin.folder), folder);
        assert_eq!(manifest.differences(&folder).unwrap(), []);
        found.insert(folder, manifest);
    }
    found
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
