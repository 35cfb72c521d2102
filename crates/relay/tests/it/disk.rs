//! What is on the disk, and waiting for it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// How long a condition may take to become true.
const PATIENCE: Duration = Duration::from_secs(20);

/// Every file below a folder but the relay's own: path → (length, SHA-256 in hex).
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
        if name == ".relay" {
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

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
