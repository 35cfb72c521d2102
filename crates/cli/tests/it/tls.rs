//! The relay's TLS port from the command line: what is shown, what is refused, and what is said of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use testkit::pki::{Authority, write_private};

use crate::live::{Setup, check_told_as_recorded};
use crate::process::{Running, THROUGHLINE, wait_for};
use crate::read::{stderr, stdout};
use crate::up::Up;

const PRODUCER: &str = "token-of-the-producer";
const VIEWER: &str = "token-of-the-viewer";

/// Files of a relay and of a viewer in a folder; gives the relay's options.
fn relay_files(folder: &Path) -> Vec<String> {
    let ca = Authority::new(folder, "ca").unwrap();
    ca.issue("relay", &["127.0.0.1"]).unwrap();
    ca.issue("client", &[]).unwrap();
    ca.issue_expired("late", &[]).unwrap();
    write_private(&folder.join("token"), &format!("{VIEWER}\n")).unwrap();
    let tokens = format!("web producer {PRODUCER}\ndesk viewer {VIEWER}\n");
    write_private(&folder.join("tokens"), &tokens).unwrap();
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    [
        ["--tls".to_owned(), "127.0.0.1:0".to_owned()],
        ["--tls-cert".to_owned(), file("relay.pem")],
        ["--tls-key".to_owned(), file("relay.key")],
        ["--tls-client-ca".to_owned(), file("ca.pem")],
        ["--tokens".to_owned(), file("tokens")],
    ]
    .concat()
}

/// What a viewer shows that lacks nothing.
fn shown(folder: &Path) -> Vec<String> {
    let file = |option: &str, name: &str| format!("{option}={}", folder.join(name).display());
    vec![
        file("--tls-ca", "ca.pem"),
        file("--tls-cert", "client.pem"),
        file("--tls-key", "client.key"),
        file("--token-file", "token"),
    ]
}

#[test]
fn a_session_is_told_over_tls_as_it_is_recorded() {
    let setup = Setup::with_tls(|folder, relay| {
        relay.args(relay_files(folder));
        shown(folder)
    });
    let Some(setup) = setup else { return };
    check_told_as_recorded(&setup, "--buffers-uid");
    assert_eq!(setup.said().lines().count(), 1, "{}", setup.said());
}

/// A relay with a TLS port, and its files.
struct Relay {
    folder: tempfile::TempDir,
    running: Running,
    address: String,
}

impl Relay {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(THROUGHLINE);
        command.arg("relay").arg("--output").arg(folder.path().join("traces"));
        command.args(["--control=127.0.0.1:0", "--data=127.0.0.1:0", "--live=127.0.0.1:0"]);
        command.args(relay_files(folder.path())).stdout(Stdio::null());
        let mut running = Running::start(&mut command, "relay", &folder.path().join("log"));
        running.wait_until_said("writing below");
        let said = running.said();
        let (_, rest) = said.split_once("tls ").unwrap();
        let address = format!("tls://{}", rest.split_once(',').unwrap().0);
        Self { folder, running, address }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn live(&self, shown: &[String]) -> Output {
        let mut command = Command::new(THROUGHLINE);
        command.arg("live").arg(&self.address).args(shown).env_remove("THROUGHLINE_TOKEN");
        command.output().unwrap()
    }

    /// Lines that the relay has logged of connections that it did not serve.
    fn refusals(&self) -> usize {
        self.running.said().lines().filter(|line| line.contains("not served")).count()
    }
}

fn check_refused(output: &Output, why: &str) {
    assert_eq!(output.status.code(), Some(2), "{}", stderr(output));
    assert_eq!((stdout(output), stderr(output).lines().count()), ("", 1), "{}", stderr(output));
    assert!(stderr(output).contains(why), "{why}: {}", stderr(output));
}

#[test]
fn up_has_the_same_port_from_its_own_table_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let options = relay_files(folder.path());
    let keys: Vec<String> = options
        .chunks(2)
        .map(|option| format!("{} = {:?}\n", option[0].trim_start_matches("--"), option[1]))
        .collect();
    let file = folder.path().join("up.toml");
    std::fs::write(&file, format!("[up]\n{}", keys.concat())).unwrap();
    let data = folder.path().join("data");
    let log = folder.path().join("log");
    let mut up = Up::start_with(&data, &log, &["--config", file.to_str().unwrap()]);
    let addresses = std::fs::read_to_string(data.join("up.json")).unwrap();
    let addresses: serde_json::Value = serde_json::from_str(&addresses).unwrap();
    let address = format!("tls://{}", addresses["tls"].as_str().unwrap());
    assert!(up.process.said().contains(&address), "{}", up.process.said());
    let live = |shown: &[String]| {
        let mut command = Command::new(THROUGHLINE);
        command.arg("live").arg(&address).args(shown).env_remove("THROUGHLINE_TOKEN");
        command.output().unwrap()
    };
    let good = shown(folder.path());
    let accepted = live(&good);
    assert_eq!(accepted.status.code(), Some(0), "{}", stderr(&accepted));
    check_refused(&live(&good[..3]), "the token is missing or not known");
    let pid = up.process.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    up.process.wait_until_said("certificates and tokens were read again");
    assert!(up.process.end("TERM").success());
}

#[test]
fn who_is_refused_is_told_in_one_line_and_so_is_the_operator() {
    let relay = Relay::start();
    let good = shown(relay.folder.path());
    let accepted = relay.live(&good);
    assert_eq!(accepted.status.code(), Some(0), "{}", stderr(&accepted));
    assert_eq!(relay.refusals(), 0);

    let without = |option: &str| -> Vec<String> {
        good.iter().filter(|shown| !shown.starts_with(option)).cloned().collect()
    };
    let bare: Vec<String> =
        without("--tls-cert").into_iter().filter(|o| !o.starts_with("--tls-key")).collect();
    let late = bare.iter().cloned().chain([
        format!("--tls-cert={}", relay.file("late.pem").display()),
        format!("--tls-key={}", relay.file("late.key").display()),
    ]);
    let wrong = relay.file("wrong");
    write_private(&wrong, PRODUCER).unwrap();
    let role =
        without("--token-file").into_iter().chain([format!("--token-file={}", wrong.display())]);
    write_private(&relay.file("unknown"), "a-token-that-nobody-has").unwrap();
    let unknown = without("--token-file")
        .into_iter()
        .chain([format!("--token-file={}", relay.file("unknown").display())]);
    for (number, (shown, why)) in [
        (bare.clone(), "CertificateRequired"),
        (late.collect(), "CertificateExpired"),
        (without("--token-file"), "the token is missing or not known"),
        (unknown.collect(), "the token is missing or not known"),
        (role.collect(), "for another role"),
    ]
    .into_iter()
    .enumerate()
    {
        check_refused(&relay.live(&shown), why);
        // Said at most once a second, so each waits for its own.
        wait_for("the operator's line", || (relay.refusals() == number + 1).then_some(()));
        std::thread::park_timeout(std::time::Duration::from_millis(1050));
    }
    // What the client finds out itself.
    let roots = std::fs::exists("/etc/ssl/certs/ca-certificates.crt").unwrap();
    let why = if roots { "UnknownIssuer" } else { "this system has no CA certificates" };
    check_refused(&relay.live(&without("--tls-ca")), why);
    let open = relay.file("open");
    std::fs::write(&open, VIEWER).unwrap();
    let opened =
        without("--token-file").into_iter().chain([format!("--token-file={}", open.display())]);
    check_refused(&relay.live(&opened.collect::<Vec<_>>()), "open to others (mode 644)");
    let said = relay.running.said();
    for secret in [PRODUCER, VIEWER, "a-token-that-nobody-has"] {
        assert!(!said.contains(secret), "{said}");
    }
}

#[test]
fn a_token_may_come_from_the_environment_and_never_goes_over_a_plain_port() {
    let relay = Relay::start();
    let mut command = Command::new(THROUGHLINE);
    let shown = shown(relay.folder.path());
    let others = shown.iter().filter(|shown| !shown.starts_with("--token-file"));
    command.arg("live").arg(&relay.address).args(others).env("THROUGHLINE_TOKEN", VIEWER);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    command.env("THROUGHLINE_TOKEN", "short");
    check_refused(
        &command.output().unwrap(),
        "THROUGHLINE_TOKEN: a token has 16 to 512 characters, not 5",
    );

    let plain = |args: &[&str]| Command::new(THROUGHLINE).args(args).output().unwrap();
    let token = relay.file("token");
    let token = token.to_str().unwrap();
    check_refused(
        &plain(&["live", "127.0.0.1:1", "--token-file", token]),
        "--token-file is for addresses with TLS",
    );
    let to = ["capture", "kernel", "--to=net://127.0.0.1:1", "--token-file", token];
    check_refused(&plain(&to), "--token-file is for addresses with TLS");
}

#[test]
fn a_hangup_has_the_files_read_again() {
    let mut relay = Relay::start();
    let shown = shown(relay.folder.path());
    assert_eq!(relay.live(&shown).status.code(), Some(0));
    write_private(&relay.file("tokens"), "who are you").unwrap();
    relay.running.signal("HUP");
    relay.running.wait_until_said("stay as they were: TLS: ");
    assert!(relay.running.said().contains("tokens: line 1: a role is"), "{}", relay.running.said());
    assert_eq!(relay.live(&shown).status.code(), Some(0));
    write_private(&relay.file("tokens"), &format!("web producer {PRODUCER}\n")).unwrap();
    relay.running.signal("HUP");
    relay.running.wait_until_said("certificates and tokens were read again");
    check_refused(&relay.live(&shown), "the token is missing or not known");
    assert!(relay.running.end("TERM").success());
}

#[test]
fn a_relay_that_cannot_open_its_tls_port_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let options = relay_files(folder.path());
    let start = |options: &[String]| {
        let mut command = Command::new(THROUGHLINE);
        command.arg("relay").arg("--output").arg(folder.path().join("traces"));
        command.args(["--control=127.0.0.1:0", "--data=127.0.0.1:0", "--live=127.0.0.1:0"]);
        command.args(options).output().unwrap()
    };
    let first = |pairs: usize| options.iter().take(2 * pairs).cloned().collect::<Vec<_>>();
    check_refused(&start(&first(1)), "--tls needs --tls-cert PEM");
    check_refused(&start(&first(2)), "--tls needs --tls-key PEM");
    check_refused(
        &start(&first(3)),
        "with --tls-client-ca PEM, a file of tokens with --tokens FILE, or both",
    );
    check_refused(&start(&options[2..]), "--tls-cert needs the TLS port's address: --tls ADDR");
    std::fs::write(folder.path().join("tokens"), "x").unwrap();
    check_refused(&start(&options), "tokens: line 1: not NAME ROLES TOKEN [HOST,...]");
}
