//! What one thread does, as far as its waits and who ends them are concerned.

use model::Timestamp;
use serde::{Deserialize, Serialize};

use super::trail::Id;
use super::waits::Waker;
use crate::call::ClassTerm;
use crate::ident::Left;

/// A thread in a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Register {
    /// What ends the stretch that lies across the left boundary.
    pub(super) first: Option<First>,
    /// The first wake-up before `first`: it counts if the thread slept at the left boundary.
    pub(super) wake: Option<Wake>,
    pub(super) tail: Tail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct First {
    pub(super) at: Timestamp,
    pub(super) how: How,
}

/// How a stretch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum How {
    /// The thread gets a CPU.
    GotCpu,
    /// It is seen running, or leaving a CPU.
    Seen,
    /// Nobody knows what it does from then on.
    Lost,
    /// Another thread begins under its number.
    Born,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Wake {
    pub(super) at: Timestamp,
    pub(super) by: Waker,
    /// The path of the thread that woke, when it has one.
    pub(super) path: Option<Id>,
}

/// What a thread does at the end of a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Tail {
    /// Whatever it did at the left boundary, but for a wake-up.
    AsLeft,
    Known(Stretch),
}

/// A stretch that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stretch {
    pub(super) since: Timestamp,
    pub(super) state: State,
    /// The path of the thread to where the stretch begins.
    pub(super) path: Id,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    Running,
    /// Ready to run, without a CPU.
    Ready,
    Asleep(ClassTerm),
    /// Born and not yet woken.
    New,
    Ended,
    /// The wake-up counts if the thread gets a CPU next.
    Unknown(Option<Wake>),
}

impl Register {
    pub(super) const UNSEEN: Self = Self { first: None, wake: None, tail: Tail::AsLeft };

    /// Of a number whose thread has ended.
    pub(super) fn ended(at: Timestamp) -> Self {
        let mut register = Self { first: Some(First { at, how: How::Born }), ..Self::UNSEEN };
        register.end(at);
        register
    }

    /// Nobody has the number any more.
    pub(super) fn end(&mut self, at: Timestamp) {
        self.tail = Tail::Known(Stretch { since: at, state: State::Ended, path: Id::MAX });
    }

    /// Whether nothing is known but that whatever had the number at the left boundary has ended.
    pub(super) fn is_ended(&self) -> bool {
        let was_born = self.first.is_some_and(|first| first.how == How::Born);
        let has_ended = matches!(&self.tail, Tail::Known(Stretch { state: State::Ended, .. }));
        was_born && self.wake.is_none() && has_ended
    }

    /// The wake-ups that wait for what comes next.
    pub(super) fn wakes_mut(&mut self) -> impl Iterator<Item = &mut Wake> {
        let pending = match &mut self.tail {
            Tail::Known(Stretch { state: State::Unknown(wake), .. }) => wake.as_mut(),
            Tail::Known(_) | Tail::AsLeft => None,
        };
        self.wake.iter_mut().chain(pending)
    }

    /// The paths that it may go on with.
    pub(super) fn paths_mut(&mut self) -> impl Iterator<Item = &mut Id> {
        let (path, pending) = match &mut self.tail {
            Tail::AsLeft | Tail::Known(Stretch { state: State::Ended, .. }) => (None, None),
            Tail::Known(Stretch { state: State::Unknown(wake), path, .. }) => {
                (Some(path), wake.as_mut())
            }
            Tail::Known(Stretch { path, .. }) => (Some(path), None),
        };
        let wakes = self.wake.iter_mut().chain(pending);
        path.into_iter().chain(wakes.filter_map(|wake| wake.path.as_mut()))
    }

    pub(super) fn resolve(&mut self, left: &impl Left) {
        if let Tail::Known(Stretch { state: State::Asleep(class), .. }) = &mut self.tail {
            *class = class.resolved(left);
        }
    }
}
