//! Critical paths of requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Tid;

use super::{Make, column, duration, number};
use crate::answer::PathState;
use crate::path::{Ended, Walked};
use crate::table::{Cell, Class, Column, Kind, Table};

const NAME: Column = column("request", "Request", Kind::Text, None);
const ID: Column = column("id", "Id", Kind::Number, None);
const BEGIN: Column = column("begin", "Begin", Kind::Time, None);
const THREAD: Column = column("thread", "Thread", Kind::Process, None);
const STATE: Column = column("state", "State", Kind::Text, None);
const TIME: Column = duration("time", "Time");
const SHARE: Column = column("share", "Share", Kind::Ratio, None);

const PER_NAME: Class = Class {
    name: "critical-path-per-name",
    title: "Critical paths of all requests of a name by state",
    columns: &[NAME, number("count", "Requests", "requests"), STATE, TIME, SHARE],
};

const PER_THREAD: Class = Class {
    name: "critical-path-per-thread",
    title: "Critical paths of all requests of a name by thread and state",
    columns: &[NAME, THREAD, STATE, TIME, SHARE],
};

const PER_REQUEST: Class = Class {
    name: "critical-path-per-request",
    title: "Critical paths of the slowest requests",
    columns: &[
        NAME,
        ID,
        BEGIN,
        column("served", "Served by", Kind::Process, None),
        duration("wall", "Wall"),
        THREAD,
        STATE,
        TIME,
        SHARE,
    ],
};

pub(super) const PATHS: &[&Class] = &[&PER_NAME, &PER_THREAD, &PER_REQUEST];

impl Make<'_> {
    pub(super) fn critical_paths(&self) -> Vec<Table> {
        let requests = self.summary.paths.closed().requests;
        let (mut names, mut threads, mut slowest) = (Vec::new(), Vec::new(), Vec::new());
        for (name, of_name) in &requests.names {
            let states = self.finish.path_states(&of_name.costs);
            let mut by_state: BTreeMap<PathState, u64> = BTreeMap::new();
            for ((_, state), ns) in &states {
                let sum = by_state.entry(*state).or_default();
                *sum = sum.saturating_add(*ns);
            }
            for (state, ns) in most_first(by_state) {
                let head = [Cell::Text(Arc::clone(name)), Cell::count(of_name.requests)];
                names.push(head.into_iter().chain(share(state, ns, of_name.wall_ns)).collect());
            }
            let wanted = states.into_iter().filter(|((tid, _), _)| self.wants(*tid)).collect();
            for ((tid, state), ns) in most_first(wanted) {
                let head = [Cell::Text(Arc::clone(name)), self.thread(tid)];
                threads.push(head.into_iter().chain(share(state, ns, of_name.wall_ns)).collect());
            }
        }
        for (ended, walked) in &requests.slowest {
            if self.wants(ended.tid) {
                slowest.extend(self.path_rows(ended, walked));
            }
        }
        vec![
            self.table(&PER_NAME, names),
            self.table(&PER_THREAD, threads),
            self.table(&PER_REQUEST, slowest),
        ]
    }

    fn path_rows(&self, ended: &Ended, walked: &Walked) -> impl Iterator<Item = Vec<Cell>> {
        let states: BTreeMap<(Tid, PathState), u64> = self.finish.path_states(&walked.costs);
        most_first(states).into_iter().map(|((tid, state), ns)| {
            let head = [
                Cell::Text(Arc::clone(&ended.name)),
                ended.request.map_or(Cell::Nothing, Cell::count),
                Cell::At(ended.begin),
                self.thread(ended.tid),
                Cell::ns(ended.wall_ns()),
                self.thread(tid),
            ];
            head.into_iter().chain(share(state, ns, ended.wall_ns())).collect()
        })
    }
}

fn most_first<K: Ord>(sums: BTreeMap<K, u64>) -> Vec<(K, u64)> {
    let mut rows: Vec<(K, u64)> = sums.into_iter().collect();
    rows.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    rows
}

fn share(state: PathState, ns: u64, wall_ns: u64) -> [Cell; 3] {
    let share = if wall_ns > 0 { Cell::Ratio { part: ns, whole: wall_ns } } else { Cell::Nothing };
    [Cell::Text(state.word().into()), Cell::ns(ns), share]
}
