//! Sealed chunks copied to folders and to a real S3 server, by a relay that is killed all the while.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::s3::Server;
use tracedir::manifest::{
    Contents, MANIFEST, MANIFEST_FORMAT, Manifest, ManifestFile, Origin, SealedBy,
};

use crate::process::{Running, THROUGHLINE, wait_for};
use crate::read::{read, stderr, stdout, trace};

/// Where the chunk is below the relay's folder.
const CHUNK: &str = "host/s-20261120-162218/archives/20261120T162218+0000-20261120T162219+0000-0";

/// What a relay leaves that is killed right after it sealed a chunk: a trace and a large file beside it.
fn sealed(root: &Path, url: &str, large: usize) -> Manifest {
    let folder = root.join(CHUNK);
    fs::create_dir_all(folder.join("ust")).unwrap();
    let trace = trace();
    for entry in fs::read_dir(trace.path()).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), folder.join("ust").join(entry.file_name())).unwrap();
        }
    }
    fs::create_dir_all(folder.join("more")).unwrap();
    // Nothing that could be sent shorter.
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    });
    fs::write(folder.join("more/large"), noise.take(large).collect::<Vec<u8>>()).unwrap();
    let origin = Origin {
        host: "host".to_owned(),
        session: "s".to_owned(),
        chunk: 0,
        folder: CHUNK.to_owned(),
        begin_s: None,
        end_s: None,
        sealed_by: SealedBy::Closed,
    };
    let contents = Contents::of(&folder, None).unwrap();
    let manifest =
        Manifest { format: MANIFEST_FORMAT.to_owned(), origin, contents, losses: Vec::new() };
    fs::write(folder.join(MANIFEST), manifest.to_json()).unwrap();
    fs::create_dir_all(root.join(".relay/outbox")).unwrap();
    let note = format!("relay-announcement 1\nto copy {url}\nfolder {CHUNK}\n");
    fs::write(root.join(".relay/outbox/0"), note).unwrap();
    manifest
}

fn relay(root: &Path, url: &str, log: &Path, environment: &[(&str, &str)]) -> Running {
    let mut command = Command::new(THROUGHLINE);
    command.arg("relay").arg("--output").arg(root).args(["--copy-to", url]);
    for port in ["--control", "--data", "--live"] {
        command.args([port, "127.0.0.1:0"]);
    }
    command.envs(environment.iter().copied()).stdout(Stdio::null());
    let mut relay = Running::start(&mut command, "throughline relay", log);
    relay.wait_until_said("writing below");
    relay
}

fn is_done(root: &Path) -> bool {
    fs::read_dir(root.join(".relay/outbox")).unwrap().next().is_none()
}

/// Starts relays, each killed a little later than the one before, until one has copied all. `look` is asked after each kill.
fn copy_and_kill(root: &Path, url: &str, environment: &[(&str, &str)], look: impl Fn()) -> u32 {
    let log = root.with_extension("log");
    let mut kills = 0;
    for patience_ms in (0..).map(|attempt: u64| attempt * attempt * 4) {
        let mut relay = relay(root, url, &log, environment);
        std::thread::park_timeout(Duration::from_millis(patience_ms));
        relay.end("KILL");
        look();
        if is_done(root) {
            return kills;
        }
        kills += 1;
        assert!(patience_ms < 30_000, "nothing is copied: {}", relay.said());
    }
    kills
}

fn same_answer(root: &Path, copy: &Path) {
    let [ours, theirs] = [root, copy].map(|folder| read(&[], &[&folder.join(CHUNK)]));
    assert!(!stdout(&ours).is_empty());
    assert_eq!(stdout(&ours), stdout(&theirs));
    let checked = Command::new(THROUGHLINE).args(["ctf", "check"]).arg(copy).output().unwrap();
    assert!(stderr(&checked).contains("1 manifests"), "{}", stderr(&checked));
    assert!(!stdout(&checked).contains("manifest"), "{}", stdout(&checked));
}

#[test]
fn a_folder_has_whole_chunks_whenever_the_relay_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (root, copies) = (folder.path().join("traces"), folder.path().join("copies"));
    let url = format!("file://{}", copies.display());
    let manifest = sealed(&root, &url, 48 << 20);
    let kills = copy_and_kill(&root, &url, &[], || {
        let copy = copies.join(CHUNK);
        if let Some(found) = Manifest::read(&copy).unwrap() {
            assert_eq!(found, manifest);
            assert_eq!(found.differences(&copy).unwrap(), [], "half a copy has a manifest");
        }
    });
    same_answer(&root, &copies);
    assert!(kills > 0, "the copy was too quick to be killed");
}

fn object(server: &Server, name: &str) -> Option<Vec<u8>> {
    server.get(&format!("fleet/{CHUNK}/{name}"))
}

fn length_and_name(file: &ManifestFile) -> (u64, &str) {
    (file.bytes, &file.path)
}

#[test]
fn a_bucket_has_whole_chunks_whenever_the_relay_is_killed() {
    let Some(server) = Server::start("127.0.0.1") else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("traces");
    let url = "s3://copies/fleet";
    // More than two parts.
    let manifest = sealed(&root, url, 20 << 20);
    let kills = copy_and_kill(&root, url, &server.environment(), || {
        if object(&server, MANIFEST).is_some() {
            for (len, name) in manifest.contents.files.iter().map(length_and_name) {
                let found = object(&server, name).map(|bytes| bytes.len() as u64);
                assert_eq!(found, Some(len), "{name} of a chunk with a manifest");
            }
        }
    });
    let copy: PathBuf = folder.path().join("copy");
    let names = manifest.contents.files.iter().map(|file| &*file.path).chain([MANIFEST]);
    for name in names {
        let path = copy.join(CHUNK).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, object(&server, name).unwrap()).unwrap();
    }
    assert_eq!(manifest.differences(&copy.join(CHUNK)).unwrap(), []);
    same_answer(&root, &copy);
    assert!(kills > 0, "the copy was too quick to be killed");
}

#[test]
fn a_bucket_that_refuses_is_asked_again_and_the_chunk_stays() {
    let Some(server) = Server::start("127.0.0.1") else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("traces");
    let url = "s3://copies/fleet";
    sealed(&root, url, 1000);
    let mut environment = server.environment();
    environment[2].1 = "wrong";
    let log = folder.path().join("log");
    let mut relay = relay(&root, url, &log, &environment);
    relay.wait_until_said("the store refuses");
    assert!(relay.end("TERM").success());
    assert!(!relay.said().contains("wrong"), "{}", relay.said());
    assert!(!is_done(&root) && object(&server, MANIFEST).is_none());
    let mut relay = self::relay(&root, url, &log, &server.environment());
    wait_for("the copy", || is_done(&root).then_some(()));
    assert!(object(&server, MANIFEST).is_some());
    assert!(relay.end("TERM").success());
}
