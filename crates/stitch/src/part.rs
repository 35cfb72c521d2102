//! Summaries that lack a part: what a part is for shows where it is missing.

use crate::summary::Summary;

/// A part of what a summary holds for its neighbours: its head for the left one, its tail for the right one.
///
/// What a merge only compares (covers, who was assumed to be who) is no part: without it neighbours that do not belong
/// together are not refused, but those that do give the same answer. Nor is what only keeps another part short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// How the stretch of a thread's time that crosses the left boundary ends.
    FirstSight,
    /// The first wake-up of a thread that may have been blocked at the left boundary.
    FirstWake,
    /// Which CPUs lost events before a thread was first seen.
    LossBeforeSight,
    /// What a thread does at the end, and since when.
    State,
    /// Who had the CPUs since a thread waits for one.
    WaitingFor,
    /// The call that a thread is in at the end.
    CallInFlight,
    /// Returns from calls that began further left.
    Returns,
    /// What happened to spans of the left.
    SpanEnds,
    /// Whether nothing of the left is open.
    SpansRooted,
    /// What the innermost span of the left collected.
    SpanTime,
    /// How many phases were open above the left's at most.
    SpanHeight,
    /// Spans that are open at the end.
    SpansOpen,
    /// The first and last switch of each CPU, and who had it between.
    Switches,
    /// The thread last seen on each CPU.
    OnCpu,
    /// Losses on CPUs whose thread is the left's.
    LostOn,
    /// That spans are forgotten.
    SpansForgotten,
    /// That threads and calls are forgotten.
    KernelForgotten,
    /// That descriptors are forgotten.
    FilesForgotten,
    /// What descriptors stand for at the end.
    Tables,
    /// What exec and `close_range` did to descriptors that were not touched otherwise.
    Untouched,
    /// Names that dumps gave to files known before.
    Names,
    /// Command names.
    Comms,
    /// Who has each CPU by its last switch.
    Switched,
    /// Who had a CPU before its first switch.
    Ahead,
    /// The process of each thread.
    Processes,
    /// The process of each thread before any other word.
    FirstProcesses,
    /// The process of each dumped table.
    TableKeys,
    /// Which processes share a descriptor table.
    Sharing,
    /// How the wait of a thread ends that crosses the left boundary, if it is one.
    WaitFirst,
    /// Who woke a thread that may have slept at the left boundary.
    WaitWake,
    /// What a thread waits for at the end, and since when.
    WaitState,
    /// That no thread and no CPU is as it was at the left boundary.
    WaitLost,
    /// The handlers of interrupts that each CPU is in, and which of the left's have ended.
    Handlers,
    /// When each thread was last seen.
    LastSeen,
    /// Paths of threads backward in time.
    Paths,
    /// Where the paths of requests end that began further left.
    RequestEnds,
    /// Requests whose path leads to the left boundary.
    RequestsPending,
    /// When requests began that are open at the end.
    RequestsOpen,
    /// What was counted of lives that were under way at the left boundary and ended.
    LeftLives,
    /// Since when numbers have other lives than at the left boundary.
    LifeBegins,
    /// Waits of lives that were under way at the left boundary and ended.
    LeftWaits,
    /// Numbers whose thread has ended.
    Ended,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 42] = [
        Self::FirstSight,
        Self::FirstWake,
        Self::LossBeforeSight,
        Self::State,
        Self::WaitingFor,
        Self::CallInFlight,
        Self::Returns,
        Self::SpanEnds,
        Self::SpansRooted,
        Self::SpanTime,
        Self::SpanHeight,
        Self::SpansOpen,
        Self::Switches,
        Self::OnCpu,
        Self::LostOn,
        Self::SpansForgotten,
        Self::KernelForgotten,
        Self::FilesForgotten,
        Self::Tables,
        Self::Untouched,
        Self::Names,
        Self::Comms,
        Self::Switched,
        Self::Ahead,
        Self::Processes,
        Self::FirstProcesses,
        Self::TableKeys,
        Self::Sharing,
        Self::WaitFirst,
        Self::WaitWake,
        Self::WaitState,
        Self::WaitLost,
        Self::Handlers,
        Self::LastSeen,
        Self::Paths,
        Self::RequestEnds,
        Self::RequestsPending,
        Self::RequestsOpen,
        Self::LeftLives,
        Self::LifeBegins,
        Self::LeftWaits,
        Self::Ended,
    ];
}

impl Summary {
    /// The summary without one of its parts.
    #[must_use]
    pub fn without(mut self, part: Part) -> Self {
        self.threads.values_mut().for_each(|thread| thread.leave_out(part));
        self.tables.values_mut().for_each(|table| table.leave_out(part));
        self.who.leave_out(part);
        self.paths.leave_out(part);
        match part {
            Part::Returns => self.processes.values_mut().for_each(|calls| calls.heads.clear()),
            Part::Switches => self.cpus.clear(),
            Part::OnCpu => self.on_cpu.clear(),
            Part::LostOn => self.lost_on.clear(),
            Part::SpansForgotten => self.forgotten.spans = None,
            Part::KernelForgotten => self.forgotten.kernel = None,
            Part::FilesForgotten => self.forgotten.files = None,
            Part::Tables => self.tables.clear(),
            Part::Names => self.names.clear(),
            Part::Comms => self.threads.values_mut().for_each(|thread| thread.comm = None),
            _ => {}
        }
        self
    }
}
