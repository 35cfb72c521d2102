//! `throughline relay --config FILE` through the real binary: good files and bad ones.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use testkit::pki::{Authority, write_private};

use crate::process::{Running, THROUGHLINE};
use crate::read::{stderr, stdout};

/// Ports that are free, in a file.
const PORTS: &str = "control = \"127.0.0.1:0\"\ndata = \"127.0.0.1:0\"\nlive = \"127.0.0.1:0\"\n";

/// Starts a relay with a file; gives what it says of itself.
fn start(folder: &Path, text: &str, options: &[&str]) -> (Running, String) {
    let file = folder.join("throughline.toml");
    fs::write(&file, text).unwrap();
    let mut command = Command::new(THROUGHLINE);
    command.current_dir(folder).arg("relay").arg("--config").arg(&file).args(options);
    command.stdout(Stdio::null());
    let mut relay = Running::start(&mut command, "relay", &folder.join("log"));
    relay.wait_until_said("writing below");
    let said = relay.said();
    (relay, said)
}

#[test]
fn a_relay_takes_its_options_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new(folder.path(), "ca").unwrap();
    ca.issue("relay", &["127.0.0.1"]).unwrap();
    write_private(&folder.path().join("tokens"), "desk viewer token-of-the-desk\n").unwrap();
    let text = format!(
        "# A relay.\n[relay]\n{PORTS}output = \"there\"\n\
         tls = \"127.0.0.1:0\"\ntls-cert = \"relay.pem\"\ntls-key = \"relay.key\"\ntls-client-ca = \"ca.pem\"\n\
         tokens = \"tokens\"\nallow = [\"10.0.0.0/8\", \"fd00::/8\"]\n\
         announce-program = \"/bin/true\"\nannounce-url = [\n  \"http://127.0.0.1:9/\",\n  \"https://127.0.0.1:9/\",\n]\n\
         announce-ca = \"ca.pem\"\nannounce-timeout = \"2s\"\nkeep-for = \"72h\"\nkeep-size = \"20GiB\"\n"
    );
    let (mut relay, said) = start(folder.path(), &text, &[]);
    assert!(said.contains("tls 127.0.0.1:") && said.contains("/there"), "{said}");
    assert!(relay.end("TERM").success());
    assert!(folder.path().join("there").is_dir());
    // Without it 0.0.0.0 is refused, so the list came through.
    let text = format!("[relay]\nallow = \"any\"\n{}", PORTS.replacen("127.0.0.1", "0.0.0.0", 1));
    let (mut relay, said) = start(folder.path(), &text, &[]);
    assert!(said.contains("control 0.0.0.0:"), "{said}");
    assert!(relay.end("TERM").success());
}

#[test]
fn the_command_line_wins() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("[relay]\n{PORTS}output = \"there\"\nkeep-for = \"nonsense\"\n");
    let (mut relay, said) =
        start(folder.path(), &text, &["--output=here", "--keep-for", "3h", "-L127.0.0.2:0"]);
    assert!(said.contains("/here") && said.contains("viewers 127.0.0.2:"), "{said}");
    assert!(relay.end("TERM").success());
    assert!(!folder.path().join("there").exists());
}

#[test]
fn a_file_that_is_wrong_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.toml");
    let run = || -> Output {
        let mut command = Command::new(THROUGHLINE);
        command.current_dir(folder.path()).arg("relay").arg("--config=bad.toml");
        command.output().unwrap()
    };
    for (text, place, why) in [
        (
            "[relay]\nkeepfor = \"72h\"\n",
            "bad.toml:2: ",
            "unknown key `keepfor`; the nearest is `keep-for`",
        ),
        ("[relay]\n\ntls_cert = \"x\"\n", "bad.toml:3: ", "the nearest is `tls-cert`"),
        ("[relay]\nconfig = \"x\"\n", "bad.toml:2: ", "unknown key `config`"),
        ("[agent]\n", "bad.toml:1: ", "unknown key `agent`: the only table is [relay]"),
        ("output = \"x\"\n", "bad.toml:1: ", "`output` belongs below [relay]"),
        ("[relay]\noutput = 'a'\noutput = 'b'\n", "bad.toml:3: ", "duplicate key"),
        ("[relay]\noutput = \n", "bad.toml:2: ", ""),
        ("[relay\n", "bad.toml:1: ", ""),
        (
            "[relay]\ncontrol = 5342\n",
            "bad.toml:2: ",
            "`control` cannot be \"5342\": invalid socket address",
        ),
        ("[relay]\nkeep-size = \"20\"\n", "bad.toml:2: ", "`keep-size` cannot be \"20\": "),
        ("[relay]\nkeep-size = 20.5\n", "bad.toml:2: ", "not a value of type float"),
        ("[relay]\noutput = ['a']\n", "bad.toml:2: ", "not a value of type array"),
        (
            "[relay]\nallow = [\n  'any',\n  false,\n]\n",
            "bad.toml:4: ",
            "not a value of type boolean",
        ),
        (
            "[relay]\nallow = ['10.0.0.0/8', 'all']\n",
            "bad.toml:2: ",
            "`allow` cannot be \"all\": not an address",
        ),
        (
            "[relay]\nannounce-url = 'gopher://x/'\n",
            "bad.toml:2: ",
            "only http:// and https:// are spoken",
        ),
    ] {
        fs::write(&file, text).unwrap();
        let output = run();
        assert_eq!(output.status.code(), Some(2), "{text}: {}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains(place) && said.contains(why), "{text}: {said}");
        assert_eq!((said.lines().count(), stdout(&output)), (1, ""), "{text}: {said}");
    }
    // What only shows when the options are taken together.
    fs::write(&file, "[relay]\ntls = \"127.0.0.1:0\"\n").unwrap();
    let output = run();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--tls needs --tls-cert PEM"), "{}", stderr(&output));
    fs::remove_file(&file).unwrap();
    let output = run();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot read bad.toml"), "{}", stderr(&output));
    assert!(!folder.path().join("traces").exists());
}

/// The long options of a command, as its help names them.
fn options(command: &str) -> Vec<(String, bool)> {
    let help = Command::new(THROUGHLINE).args([command, "--help"]).output().unwrap();
    let lines = stdout(&help).lines().filter_map(|line| {
        let (_, option) = line.split_once("--").filter(|(before, _)| {
            let before = before.trim();
            before.is_empty() || (before.starts_with('-') && before.len() == 3)
        })?;
        let mut words = option.split_whitespace();
        Some((words.next()?.to_owned(), words.next().is_some_and(|word| word.starts_with('<'))))
    });
    lines.filter(|(name, _)| !["config", "help", "version"].contains(&name.as_str())).collect()
}

#[test]
fn every_option_has_a_key() {
    check_every_option_has_a_key("relay");
    check_every_option_has_a_key("up");
}

#[test]
fn up_takes_all_that_the_relay_takes() {
    let names = |command| options(command).into_iter().map(|(name, _)| name).collect();
    let [relay, up]: [BTreeSet<String>; 2] = ["relay", "up"].map(names);
    // Where `up` has a folder of its own and another name for the port of packets.
    let missing: Vec<&String> = relay.difference(&up).collect();
    assert_eq!(missing, ["output"]);
}

fn check_every_option_has_a_key(of: &str) {
    let folder = tempfile::tempdir().unwrap();
    let options = options(of);
    assert!(options.len() >= 15, "{options:?}");
    for (name, takes_value) in options {
        // A value that none of them takes; a number for those that take any text.
        let value = if takes_value { "\"\\u0000\"" } else { "1" };
        fs::write(folder.path().join("f.toml"), format!("[{of}]\n{name} = {value}\n")).unwrap();
        let mut command = Command::new(THROUGHLINE);
        command.current_dir(folder.path()).args([of, "--config=f.toml", "--control=192.0.2.1:0"]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(!stderr(&output).contains("unknown key"), "{name}: {}", stderr(&output));
    }
}
