//! Asks, and takes the answer as text.

use std::path::Path;

use query::format::{Format, Writer};
use query::{Database, Error, Limits};

pub(crate) const LIMITS: Limits = Limits { memory_bytes: 256 << 20, threads: 2 };

pub(crate) fn open(path: &Path) -> Database {
    Database::open(&[path], &tracedir::ReadOptions::default(), None, &LIMITS)
        .expect("it is a trace")
}

/// The answer in a format, and what its scans counted.
pub(crate) fn asked(
    database: &Database,
    sql: &str,
    format: Format,
) -> Result<(String, impl Fn(&str) -> usize), Error> {
    let mut answer = database.ask(sql)?;
    let mut writer = Writer::new(format, &answer.schema(), Vec::new())?;
    while let Some(batch) = answer.next_batch()? {
        writer.write(&batch)?;
    }
    let text = String::from_utf8(writer.finish()?).expect("text");
    Ok((text, move |name: &str| answer.counted(name)))
}

/// The rows of an answer as CSV, without the heading.
pub(crate) fn rows(database: &Database, sql: &str) -> Vec<String> {
    let (text, _) = asked(database, sql, Format::Csv).unwrap_or_else(|why| panic!("{sql}: {why}"));
    text.lines().skip(1).map(str::to_owned).collect()
}
