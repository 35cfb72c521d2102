//! `throughline analyze critical-path`: through which threads a request's time went.

use std::sync::Arc;

use anyhow::bail;
use model::{Tid, Timestamp};
use stitch::answer::PathAnswer;
use stitch::{Asked, Subject};

use super::tables::Format;
use super::{print, tables, tell};
use crate::outcome::Outcome;

// Its group of options would have the same name as that of the tables.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Args {
    #[command(flatten)]
    tables: tables::Args,
    /// The path of the slowest request with this id, stretch by stretch
    #[arg(long, value_name = "ID", conflicts_with = "thread")]
    request: Option<u64>,
    /// The path of this thread from the end, or from --end, back to --begin
    #[arg(long, value_name = "TID")]
    thread: Option<i32>,
}

impl Args {
    pub(super) fn run(&self) -> anyhow::Result<Outcome> {
        if self.request.is_none() && self.thread.is_none() {
            return self.tables.run(&[Subject::CriticalPath]);
        }
        let mut options = self.tables.options()?;
        let since = self.thread.map(|_| options.range.begin);
        if let Some(selection) = &mut options.selection {
            Arc::make_mut(selection).paths = Asked { since, request: self.request };
        }
        let analysis = self.tables.analyse(&options)?;
        let answer = match self.thread {
            Some(tid) => {
                let since = since.unwrap_or(Timestamp::MIN);
                stitch::thread_path(&analysis.summary, Tid::new(tid), since)
            }
            None => stitch::request_path(&analysis.summary),
        };
        let Some(answer) = answer else { bail!("{}", self.nothing()) };
        print(&self.text(&answer)?)?;
        Ok(tell(&analysis))
    }

    fn text(&self, answer: &PathAnswer) -> anyhow::Result<String> {
        Ok(match self.tables.format() {
            Format::Table => report::path::path(answer),
            Format::Json => serde_json::to_string(answer)? + "\n",
            _ => bail!("one path is printed as table or json; its tables have other formats too"),
        })
    }

    fn nothing(&self) -> String {
        match (self.request, self.thread) {
            (Some(id), _) => format!("no complete request has the id {id}"),
            (None, tid) => {
                format!("thread {} was not seen, or has ended before", tid.unwrap_or_default())
            }
        }
    }
}
