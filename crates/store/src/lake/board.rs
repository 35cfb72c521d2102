//! Which merges are to be done, and who does them.
//!
//! Whoever takes a job has a lease on it, which ends unless it is renewed. Each lease has a number of its own that its result must
//! name: one that comes after the job was given to somebody else is refused. The board is in memory; a store that starts makes it
//! anew of the blocks, and its leases have another epoch.
//!
//! ```text
//! plan ─▶ waiting ─ take ─▶ leased ─ finish ─▶ settling (the owner commits) ─▶ done
//!            ▲                │ its time is over, given back, failed
//!            └────────────────┘
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use model::{Nanos, Timestamp};

use super::job::Job;
use super::name::BlockName;
use super::plan::Merge;
use crate::content::Digest;

/// A lease ends after so long unless it is renewed.
pub const LEASE: Nanos = Nanos::new(10 * SECOND_NS);
/// A job of level 1 is taken back after so long however often its lease is renewed: cells are closed after it.
const LONGEST_FIRST: Nanos = Nanos::new(20 * SECOND_NS);
/// Any other.
const LONGEST: Nanos = Nanos::new(600 * SECOND_NS);
/// A commit takes no longer: the catalogue is waited for less.
const SETTLES: Nanos = Nanos::new(300 * SECOND_NS);
/// Workers are there when one asked for a job so short a time ago.
const THERE: Nanos = Nanos::new(10 * SECOND_NS);
/// The owner leaves jobs to workers that are there for so long.
const LEFT: Nanos = Nanos::new(5 * SECOND_NS);
/// A job that failed twice is tried again after so long, then after twice as long, and so on.
const PAUSE: Nanos = Nanos::new(5 * SECOND_NS);
const LONGEST_PAUSE: Nanos = Nanos::new(300 * SECOND_NS);
/// Jobs on the board; of more the first, and others when these are done.
const MAX_JOBS: usize = 10_000;
const SECOND_NS: u64 = 1_000_000_000;

/// Names a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token {
    /// Of the catalogue's owner.
    epoch: i64,
    number: u64,
}

/// Text that is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoToken;

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.number)
    }
}

impl FromStr for Token {
    type Err = NoToken;

    fn from_str(text: &str) -> Result<Self, NoToken> {
        let (epoch, number) = text.split_once('-').ok_or(NoToken)?;
        let parsed = (epoch.parse(), number.parse());
        let (Ok(epoch), Ok(number)) = parsed else { return Err(NoToken) };
        Ok(Self { epoch, number })
    }
}

/// Who does a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// The process that has the catalogue.
    Owner,
    /// Another one.
    Worker,
}

/// How jobs fared since the store started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Jobs that wait.
    pub waiting: usize,
    /// Jobs that are being done.
    pub leased: usize,
    /// When the job came that waits or is being done for the longest time.
    pub oldest: Option<Timestamp>,
    /// Done by the owner.
    pub by_owner: u64,
    /// Done by workers.
    pub by_workers: u64,
    /// Leases that ended without a result.
    pub ended: u64,
    /// Results that came too late, or were not what they should be.
    pub refused: u64,
    /// Jobs that were tried and could not be done.
    pub failed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting { not_before: Timestamp },
    Leased { number: u64, who: Who, since: Timestamp, until: Timestamp },
}

#[derive(Debug, Clone)]
struct Entry {
    merge: Merge,
    /// What whoever has it was told, until its result comes.
    job: Option<Job>,
    state: State,
    came: Timestamp,
    failures: u32,
    /// Whether only the owner does it: a worker could not, or it is too large to be told.
    is_own: bool,
}

/// The jobs of one owner.
#[derive(Debug)]
pub(super) struct Board {
    epoch: i64,
    last: u64,
    jobs: BTreeMap<Digest, Entry>,
    /// When a worker asked last.
    asked: Option<Timestamp>,
    tally: Tally,
}

impl Board {
    pub(super) fn new(epoch: i64) -> Self {
        Self { epoch, last: 0, jobs: BTreeMap::new(), asked: None, tally: Tally::default() }
    }

    /// Blocks that somebody merges at this moment.
    pub(super) fn busy(&self) -> BTreeSet<BlockName> {
        let leased = self.jobs.values().filter(|it| it.is_leased());
        leased.flat_map(|it| &it.merge.sources).cloned().collect()
    }

    /// Whether nobody merges anything.
    pub(super) fn is_idle(&self) -> bool {
        !self.jobs.values().any(Entry::is_leased)
    }

    /// Ends leases whose time is over.
    pub(super) fn expire(&mut self, now: Timestamp) {
        for entry in self.jobs.values_mut() {
            if let State::Leased { until, who: Who::Worker, .. } = entry.state
                && until <= now
            {
                self.tally.ended += 1;
                entry.is_own = true;
                entry.wait(now);
            }
        }
    }

    /// What is due beside what is leased.
    pub(super) fn plan(&mut self, merges: Vec<Merge>, now: Timestamp) {
        let mut due: BTreeMap<Digest, Merge> =
            merges.into_iter().take(MAX_JOBS).map(|merge| (id(&merge), merge)).collect();
        self.jobs.retain(|id, entry| due.remove(id).is_some() || entry.is_leased());
        for (id, merge) in due {
            let state = State::Waiting { not_before: now };
            let entry = Entry { merge, job: None, state, came: now, failures: 0, is_own: false };
            self.jobs.insert(id, entry);
        }
    }

    /// Gives the job that is to be done first: of the lowest level, which metrics wait for, and then the oldest. What it is told stays to be said ([`Self::told`]).
    pub(super) fn take(&mut self, who: Who, now: Timestamp) -> Option<(Token, Merge)> {
        if who == Who::Worker {
            self.asked = Some(now);
        }
        let are_there = self.asked.is_some_and(|asked| now.since(asked) <= THERE);
        let may = |entry: &Entry| match (entry.state, who) {
            (State::Leased { .. }, _) => false,
            (State::Waiting { not_before }, _) if not_before > now => false,
            (_, Who::Worker) => !entry.is_own,
            (_, Who::Owner) => entry.is_own || !are_there || now.since(entry.came) >= LEFT,
        };
        let free = self.jobs.values_mut().filter(|entry| may(entry));
        let entry = free.min_by_key(|entry| (entry.merge.level, entry.came))?;
        self.last += 1;
        let until = after(now, LEASE);
        entry.state = State::Leased { number: self.last, who, since: now, until };
        Some((Token { epoch: self.epoch, number: self.last }, entry.merge.clone()))
    }

    /// What the one was told that has a lease.
    pub(super) fn told(&mut self, token: Token, job: Job) {
        if let Some((_, entry)) = self.held(token) {
            entry.job = Some(job);
        }
    }

    /// Renews a lease; says whether there still is one.
    pub(super) fn renew(&mut self, token: Token, now: Timestamp) -> bool {
        let Some((_, entry)) = self.held(token) else { return false };
        if entry.job.is_none() {
            return false;
        }
        let longest = if entry.merge.level == 1 { LONGEST_FIRST } else { LONGEST };
        let State::Leased { until, since, .. } = &mut entry.state else { return false };
        if now.since(*since) >= longest || *until <= now {
            return false;
        }
        *until = after(now, LEASE);
        true
    }

    /// A result came: the job is nobody else's until it is [`Self::done`] or [`Self::failed`].
    pub(super) fn settle(&mut self, token: Token, now: Timestamp) -> Option<Job> {
        let (_, entry) = self.held(token)?;
        let job = entry.job.take()?;
        if let State::Leased { until, .. } = &mut entry.state {
            *until = after(now, SETTLES);
        }
        Some(job)
    }

    /// Its result took the place of the blocks.
    pub(super) fn done(&mut self, token: Token, by: Who) {
        if let Some((id, _)) = self.held(token) {
            self.jobs.remove(&id);
            match by {
                Who::Owner => self.tally.by_owner += 1,
                Who::Worker => self.tally.by_workers += 1,
            }
        }
    }

    /// It could not be done: the owner tries it next, and every time after a longer pause.
    pub(super) fn failed(&mut self, token: Token, now: Timestamp) {
        if let Some((_, entry)) = self.held(token) {
            let pauses = entry.failures.checked_sub(1).map(|before| 1_u64 << before.min(10));
            entry.failures = entry.failures.saturating_add(1);
            entry.is_own = true;
            let pause = Nanos::new(pauses.map_or(0, |many| many.saturating_mul(PAUSE.get())));
            entry.wait(after(now, pause.min(LONGEST_PAUSE)));
            self.tally.failed += 1;
        }
    }

    /// Whoever has it ends and gives it back.
    pub(super) fn give_back(&mut self, token: Token, is_own: bool, now: Timestamp) {
        if let Some((_, entry)) = self.held(token) {
            entry.is_own |= is_own;
            entry.wait(now);
        }
    }

    /// A result was refused.
    pub(super) const fn refused(&mut self) {
        self.tally.refused += 1;
    }

    pub(super) fn tally(&self) -> Tally {
        let leased = self.jobs.values().filter(|entry| entry.is_leased()).count();
        let oldest = self.jobs.values().map(|entry| entry.came).min();
        Tally { waiting: self.jobs.len() - leased, leased, oldest, ..self.tally }
    }

    fn held(&mut self, token: Token) -> Option<(Digest, &mut Entry)> {
        let Token { epoch, number } = token;
        let has =
            |entry: &Entry| matches!(entry.state, State::Leased { number: it, .. } if it == number);
        let found = self.jobs.iter_mut().find(|(_, entry)| has(entry));
        found.filter(|_| epoch == self.epoch).map(|(id, entry)| (*id, entry))
    }
}

impl Entry {
    const fn is_leased(&self) -> bool {
        matches!(self.state, State::Leased { .. })
    }

    fn wait(&mut self, not_before: Timestamp) {
        self.state = State::Waiting { not_before };
        self.job = None;
    }
}

fn after(at: Timestamp, time: Nanos) -> Timestamp {
    Timestamp::from_nanos(at.nanos().saturating_add_unsigned(time.get()))
}

/// One merge of the same blocks is one job.
fn id(merge: &Merge) -> Digest {
    let sources = merge.sources.iter().map(|source| source.id().0);
    let bytes: Vec<u8> = sources.flatten().chain([merge.level]).collect();
    Digest::of(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lake::name::Tenant;

    const fn at(second: u64) -> Timestamp {
        Timestamp::from_nanos((second * SECOND_NS).cast_signed())
    }

    fn merge(n: u64, level: u8) -> Merge {
        let tenant = Tenant::new("a").unwrap();
        let digest = Digest::of(&n.to_le_bytes());
        let (begin, end, came) = (at(n), at(n), at(n));
        Merge {
            sources: vec![BlockName { tenant, begin, end, came, level: 0, bytes: 1, digest }],
            level,
        }
    }

    fn told(board: &mut Board, (token, merge): &(Token, Merge)) {
        let Merge { sources, level } = merge.clone();
        board.told(*token, Job { level, sources, counting: None });
    }

    #[test]
    fn without_workers_the_owner_does_all_the_lowest_level_first() {
        let mut board = Board::new(1);
        board.plan(vec![merge(3, 2), merge(1, 1), merge(2, 1)], at(0));
        let mut levels = Vec::new();
        while let Some(taken) = board.take(Who::Owner, at(0)) {
            levels.push(taken.1.level);
            told(&mut board, &taken);
            board.done(taken.0, Who::Owner);
        }
        assert_eq!(levels, [1, 1, 2]);
        assert_eq!(board.tally(), Tally { by_owner: 3, ..Tally::default() });
    }

    #[test]
    fn a_lease_that_ended_is_the_owners_and_its_late_result_is_refused() {
        let mut board = Board::new(1);
        board.plan(vec![merge(1, 1)], at(0));
        let late = board.take(Who::Worker, at(0)).unwrap();
        told(&mut board, &late);
        assert_eq!(board.take(Who::Owner, at(1)), None, "it is leased");
        assert_eq!(board.busy().len(), 1);
        assert!(board.renew(late.0, at(9)));
        board.expire(at(18));
        assert!(!board.is_idle(), "it was renewed");
        board.expire(at(19));
        assert!(!board.renew(late.0, at(19)));
        assert_eq!(board.take(Who::Worker, at(19)), None, "whoever asks may be as slow");
        let own = board.take(Who::Owner, at(19)).unwrap();
        told(&mut board, &own);
        assert_eq!(board.settle(late.0, at(20)), None);
        assert!(board.settle(own.0, at(20)).is_some());
        board.done(own.0, Who::Owner);
        assert_eq!(board.tally().ended, 1);
        assert!(board.is_idle());
    }

    #[test]
    fn nobody_keeps_a_job_by_renewing_it_for_ever() {
        let mut board = Board::new(1);
        board.plan(vec![merge(1, 1)], at(0));
        let taken = board.take(Who::Worker, at(0)).unwrap();
        told(&mut board, &taken);
        let token = taken.0;
        let held = (0..100).step_by(5).take_while(|second| board.renew(token, at(*second))).last();
        assert_eq!(held, Some(15));
        board.expire(at(25));
        assert!(board.take(Who::Owner, at(25)).is_some());
    }

    #[test]
    fn the_owner_leaves_jobs_to_workers_that_are_there_for_a_short_while() {
        let mut board = Board::new(1);
        assert_eq!(board.take(Who::Worker, at(0)), None);
        board.plan(vec![merge(1, 1), merge(2, 1)], at(1));
        assert_eq!(board.take(Who::Owner, at(5)), None);
        assert!(board.take(Who::Owner, at(6)).is_some());
        assert!(board.take(Who::Worker, at(6)).is_some());
        board.plan(vec![merge(3, 1)], at(7));
        assert!(board.take(Who::Owner, at(17)).is_some(), "no worker asked for long");
    }

    #[test]
    fn what_fails_waits_longer_every_time_and_blocks_nothing() {
        let mut board = Board::new(1);
        board.plan(vec![merge(1, 1), merge(2, 2)], at(0));
        let mut tried = Vec::new();
        for second in 0..60 {
            while let Some((token, merge)) = board.take(Who::Owner, at(second)) {
                match merge.level {
                    1 => {
                        tried.push(second);
                        board.failed(token, at(second));
                    }
                    _ => board.done(token, Who::Owner),
                }
            }
        }
        assert_eq!(tried, [0, 0, 5, 15, 35]);
        assert_eq!(board.tally().by_owner, 1);
        board.plan(Vec::new(), at(60));
        assert_eq!(board.tally().waiting, 0, "it is not due any more");
    }

    #[test]
    fn a_result_is_settled_once_and_not_for_ever() {
        let mut board = Board::new(1);
        board.plan(vec![merge(1, 1)], at(0));
        let taken = board.take(Who::Worker, at(0)).unwrap();
        told(&mut board, &taken);
        assert!(board.settle(taken.0, at(9)).is_some());
        assert_eq!(board.settle(taken.0, at(9)), None, "it came twice");
        assert!(!board.renew(taken.0, at(9)));
        board.expire(at(308));
        assert!(!board.is_idle());
        board.expire(at(309));
        assert!(board.is_idle(), "whoever settled it is gone");
    }

    #[test]
    fn tokens_are_read_as_they_are_written() {
        let token = Token { epoch: 7, number: 12 };
        assert_eq!(token.to_string().parse(), Ok(token));
        for wrong in ["", "7", "7-", "-12", "7-x", "7-12-1"] {
            assert_eq!(wrong.parse::<Token>(), Err(NoToken), "{wrong}");
        }
        let mut board = Board::new(8);
        board.plan(vec![merge(1, 1)], at(0));
        let (taken, _) = board.take(Who::Worker, at(0)).unwrap();
        assert!(!board.renew(Token { epoch: 7, ..taken }, at(1)), "of another owner");
    }
}
