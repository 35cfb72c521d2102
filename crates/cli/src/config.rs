//! The configuration file: options of a command as keys of a table.
//!
//! ```toml
//! [relay]
//! tls = "0.0.0.0:5346"                    # --tls 0.0.0.0:5346
//! announce-url = ["https://a/", "https://b/"]
//! ```
//! A key is an option's long name, its value what the option takes: text, a whole number, true for an option without value,
//! a list for one that may be repeated, and a table for one that takes KEY=VALUE. The keys become arguments before those of the command line, so both
//! are understood by the same code, and an option that the command line gives leaves its key aside.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, Error};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The option that names the file.
const OPTION: &str = "--config";
/// The longest file that is read, in bytes.
const MAX_LEN: u64 = 1 << 20;

/// A key of the file, as arguments.
#[derive(Debug, PartialEq, Eq)]
struct Setting {
    key: String,
    line: usize,
    arguments: Vec<OsString>,
}

/// The arguments of the process with those of the configuration file that they name; `command` says which options there
/// are.
pub(crate) fn parse<A: clap::Parser>(arguments: Vec<OsString>) -> anyhow::Result<A> {
    let command = A::command();
    let name = arguments.get(1).and_then(|name| name.to_str()).unwrap_or_default();
    let (name, rest) = (name.to_owned(), arguments.get(2..).unwrap_or_default());
    let subcommand = command.find_subcommand(&name);
    let Some((subcommand, path)) = subcommand.filter(|it| takes_file(it)).zip(named(rest)) else {
        return Ok(A::parse_from(arguments));
    };
    let settings = read(&path, subcommand)?;
    let given = |setting: &Setting| is_given(rest, subcommand, &setting.key);
    let settings: Vec<Setting> = settings.into_iter().filter(|it| !given(it)).collect();
    let begin = arguments.iter().take(2).cloned();
    let from_file = settings.iter().flat_map(|setting| setting.arguments.clone());
    let whole = begin.chain(from_file).chain(rest.iter().cloned());
    A::try_parse_from(whole).map_err(|error| explained(&error, &path, &settings))
}

fn takes_file(command: &Command) -> bool {
    command.get_arguments().any(|argument| argument.get_long() == OPTION.strip_prefix("--"))
}

/// The file that the arguments name last.
fn named(arguments: &[OsString]) -> Option<PathBuf> {
    let next = arguments.iter().skip(1).map(Some).chain([None]);
    let named = arguments.iter().zip(next).filter_map(|(argument, next)| {
        let text = argument.to_str()?;
        if text == OPTION {
            return next.map(PathBuf::from);
        }
        text.strip_prefix(OPTION)?.strip_prefix('=').map(PathBuf::from)
    });
    named.last()
}

/// Whether the command line has the option of a key.
fn is_given(arguments: &[OsString], command: &Command, key: &str) -> bool {
    let short = option(command, key).and_then(Arg::get_short).map(|short| format!("-{short}"));
    arguments.iter().filter_map(|argument| argument.to_str()).any(|text| {
        let long = text.strip_prefix("--").and_then(|text| text.strip_prefix(key));
        long.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
            || short.as_ref().is_some_and(|short| text.starts_with(short))
    })
}

/// The option of a key.
fn option<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    options(command).find(|argument| argument.get_long() == Some(key))
}

fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_for_files = |argument: &&Arg| {
        argument.get_long().is_some_and(|long| !["config", "help", "version"].contains(&long))
    };
    command.get_arguments().filter(is_for_files)
}

/// A file's text, which has so many bytes at most.
pub(crate) fn read_text(path: &Path, most: u64) -> anyhow::Result<String> {
    let file = || -> std::io::Result<String> {
        let mut text = String::new();
        File::open(path)?.take(most + 1).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = file().with_context(|| format!("cannot read {}", path.display()))?;
    if text.len() as u64 > most {
        bail!("{} is longer than {most} bytes", path.display());
    }
    Ok(text)
}

fn read(path: &Path, command: &Command) -> anyhow::Result<Vec<Setting>> {
    let text = read_text(path, MAX_LEN)?;
    settings(&text, command).map_err(|(line, why)| at(path, line, &why))
}

fn at(path: &Path, line: usize, why: &dyn Display) -> anyhow::Error {
    anyhow!("{}:{line}: {why}", path.display())
}

/// The settings of a command in a file; an error is a line, from 1, and what is wrong there.
fn settings(text: &str, command: &Command) -> Result<Vec<Setting>, (usize, String)> {
    let line = |offset: usize| {
        let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    };
    let file = DeTable::parse(text).map_err(|error| {
        let begin = error.span().map_or(0, |span| span.start);
        (line(begin), error.message().lines().collect::<Vec<_>>().join(", "))
    })?;
    let mut settings = Vec::new();
    for (name, value) in file.get_ref() {
        let wrong = |why: String| (line(name.span().start), why);
        let name = name.get_ref().as_ref();
        if name != command.get_name() {
            let table = command.get_name();
            return Err(wrong(match option(command, name) {
                Some(_) => format!("`{name}` belongs below [{table}]"),
                None => format!("unknown key `{name}`: the only table is [{table}]"),
            }));
        }
        let DeValue::Table(table) = value.get_ref() else {
            return Err(wrong(format!("`{name}` is a table: [{name}]")));
        };
        for (key, value) in table {
            let arguments =
                setting(command, key, value).map_err(|(offset, why)| (line(offset), why))?;
            let (key, line) = (key.get_ref().to_string(), line(key.span().start));
            settings.push(Setting { key, line, arguments });
        }
    }
    Ok(settings)
}

/// The arguments of a key; an error is its place in the file and what is wrong.
fn setting(
    command: &Command,
    key: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<OsString>, (usize, String)> {
    let name = key.get_ref().as_ref();
    let Some(option) = option(command, name) else {
        return Err((key.span().start, unknown(command, name)));
    };
    let wrong = |value: &Spanned<DeValue<'_>>, what: &str| {
        let found = value.get_ref().type_str();
        (value.span().start, format!("`{name}` is {what}, not a value of type {found}"))
    };
    let is_list = matches!(option.get_action(), ArgAction::Append);
    let takes_value = option.get_action().takes_values();
    match value.get_ref() {
        DeValue::Boolean(is_set) if !takes_value => {
            Ok(is_set.then(|| format!("--{name}").into()).into_iter().collect())
        }
        _ if !takes_value => Err(wrong(value, "true or false")),
        DeValue::Array(values) if is_list => {
            let each = values.iter().map(|value| match plain(value.get_ref()) {
                Some(text) => Ok(format!("--{name}={text}").into()),
                None => Err(wrong(value, "a list of texts or whole numbers")),
            });
            each.collect()
        }
        DeValue::Table(entries) if is_list && takes_pairs(option) => {
            let each = entries.iter().map(|(key, value)| match plain(value.get_ref()) {
                Some(text) => Ok(format!("--{name}={}={text}", key.get_ref()).into()),
                None => Err(wrong(value, "a table of texts or whole numbers")),
            });
            each.collect()
        }
        single => match plain(single) {
            Some(text) => Ok(vec![format!("--{name}={text}").into()]),
            None if is_list => Err(wrong(value, "a text, a whole number, or a list of them")),
            None => Err(wrong(value, "a text or a whole number")),
        },
    }
}

/// Whether an option takes a key and a value.
fn takes_pairs(option: &Arg) -> bool {
    option.get_value_names().is_some_and(|names| names.iter().any(|name| name.contains('=')))
}

/// A value that stands for itself.
fn plain(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        _ => None,
    }
}

fn unknown(command: &Command, key: &str) -> String {
    let known = options(command).filter_map(Arg::get_long);
    let nearest = known.min_by_key(|known| strsim::damerau_levenshtein(known, key));
    match nearest {
        Some(nearest) => format!("unknown key `{key}`; the nearest is `{nearest}`"),
        None => format!("unknown key `{key}`"),
    }
}

/// The error of a value that came from the file, with its line; others are told as those of any command line.
fn explained(error: &Error, path: &Path, settings: &[Setting]) -> anyhow::Error {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        error.exit();
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    // As in "--keep-for <TIME>".
    let argument = text(ContextKind::InvalidArg).and_then(|argument| argument.split(' ').next());
    let key = argument.and_then(|argument| argument.strip_prefix("--"));
    let Some(setting) = settings.iter().find(|setting| Some(setting.key.as_str()) == key) else {
        error.exit();
    };
    let value = text(ContextKind::InvalidValue).unwrap_or_default();
    let why = std::error::Error::source(error).map(|why| format!(": {why}")).unwrap_or_default();
    at(path, setting.line, &format!("`{}` cannot be {value:?}{why}", setting.key))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[derive(clap::Parser)]
    struct Sample {
        #[arg(short = 'L', long)]
        live: Option<String>,
        #[arg(long)]
        keep_for: Option<u32>,
        #[arg(long)]
        many: Vec<String>,
        #[arg(long, value_name = "KEY=VALUE")]
        pair: Vec<String>,
        #[arg(long)]
        flag: bool,
        #[arg(long)]
        config: Option<PathBuf>,
    }

    fn sample() -> Command {
        Sample::command().name("relay")
    }

    fn check(text: &str, expected: Result<&[&str], (usize, &str)>) {
        let found = settings(text, &sample()).map(|settings| {
            let arguments = settings.into_iter().flat_map(|setting| setting.arguments);
            arguments.map(|argument| argument.into_string().unwrap()).collect::<Vec<_>>()
        });
        match (found, expected) {
            (Ok(mut found), Ok(expected)) => {
                found.sort_unstable();
                assert_eq!(found, expected, "{text}");
            }
            (Err((line, why)), Err((expected, part))) => {
                assert!(line == expected && why.contains(part), "{text}: {line}: {why}");
            }
            (found, _) => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn keys_become_arguments() {
        check("", Ok(&[]));
        check("[relay]\n", Ok(&[]));
        check("[relay]\nlive = '-1'\nkeep-for = 1_000\n", Ok(&["--keep-for=1000", "--live=-1"]));
        check("relay.flag = true", Ok(&["--flag"]));
        check("relay = { flag = false, many = [] }", Ok(&[]));
        check("[relay]\nmany = [\n 'a b',\n 7]", Ok(&["--many=7", "--many=a b"]));
        check("[relay]\nmany = 'a'", Ok(&["--many=a"]));
        check("[relay.pair]\na.b = 'c'", Err((2, "a table of texts")));
        check("[relay.pair]\n'a.b' = 'c=d'\ne = 1", Ok(&["--pair=a.b=c=d", "--pair=e=1"]));
        check("[relay]\npair = ['a=b']", Ok(&["--pair=a=b"]));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_line() {
        check("\n[relay", Err((2, "")));
        check("[relay]\nlive = 'a'\nlive = 'b'", Err((3, "duplicate")));
        check(
            "[relay]\n\nkeepfor = 1",
            Err((3, "unknown key `keepfor`; the nearest is `keep-for`")),
        );
        check("[relay]\nconfig = 'x'", Err((2, "unknown key `config`")));
        check(
            "# x\n[agent]\nlive = 'x'",
            Err((2, "unknown key `agent`: the only table is [relay]")),
        );
        check("live = 'x'", Err((1, "`live` belongs below [relay]")));
        check("relay = 1", Err((1, "`relay` is a table")));
        check("[relay]\nlive = ['a']", Err((2, "not a value of type array")));
        check("[relay]\nlive = 1.5", Err((2, "not a value of type float")));
        check("[relay]\nlive = 0x10", Err((2, "a text or a whole number")));
        check("[relay]\nflag = 'yes'", Err((2, "`flag` is true or false")));
        check("[relay]\nmany = [\n'a',\n[]\n]", Err((4, "a list of texts")));
        check("[relay.live]\nx = 1", Err((1, "not a value of type table")));
    }

    #[test]
    fn the_command_line_leaves_keys_aside() {
        let given = |arguments: &[&str], key| {
            let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
            is_given(&arguments, &sample(), key)
        };
        assert!(given(&["--live", "x"], "live") && given(&["--live=x"], "live"));
        assert!(given(&["-Lx"], "live") && given(&["-L", "x"], "live"));
        assert!(!given(&["--live-on", "--keep-for=1"], "live"));
        let named =
            |arguments: &[&str]| named(&arguments.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(named(&["--config", "a", "--live=x"]), Some("a".into()));
        assert_eq!(named(&["--config=a", "--config=b"]), Some("b".into()));
        assert_eq!(named(&["--configure=a"]), None);
    }
}
