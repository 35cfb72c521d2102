//! Answers as tables for a terminal.

use model::Nanos;
use stitch::answer::{Loss, Percentile, Phases, Split, Syscall, Syscalls};

/// How many rows of a list a table shows; a line below says how many there are more.
const SHOWN: usize = 20;
/// How many files and threads a phase shows.
const FEW: usize = 5;

/// Columns of text: names to the left, numbers to the right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Which columns hold names.
    names: Vec<bool>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        let names = head.iter().enumerate().map(|(n, name)| n == 0 || *name == "files").collect();
        Self::with_names(head, names)
    }

    pub(crate) fn with_names(head: &[&str], names: Vec<bool>) -> Self {
        Self { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()], names }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn render(&self, out: &mut String) {
        self.render_below(&mut Vec::new(), out);
    }

    /// Renders below rows whose columns were so wide, without the head where there are any; columns become wider, never
    /// narrower.
    pub(crate) fn render_below(&self, widths: &mut Vec<usize>, out: &mut String) {
        let head = usize::from(!widths.is_empty());
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        widths.resize(columns.max(widths.len()), 0);
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let is_text = |column: usize| self.names.get(column).copied().unwrap_or(false);
        for row in self.rows.iter().skip(head) {
            let mut line = String::new();
            for (n, (cell, width)) in row.iter().zip(widths.iter()).enumerate() {
                let gap = width.saturating_sub(cell.chars().count());
                let between = if n == 0 { 0 } else { 2 };
                let (before, after) = if is_text(n) { (between, gap) } else { (between + gap, 0) };
                line.extend(std::iter::repeat_n(' ', before));
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', after));
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
}

/// The phase breakdown as tables.
#[must_use]
pub fn phases(answer: &Phases) -> String {
    let requests = &answer.requests;
    let mut out = format!(
        "{} requests complete, {} in part; wall time {}\n",
        requests.complete,
        requests.partial,
        time(requests.wall_ns),
    );
    for Percentile { percent, high_ns, .. } in &answer.durations.percentiles {
        let begin = if *percent == 50 { "" } else { ", " };
        out.push_str(&format!("{begin}{percent} % within {}", time(*high_ns)));
    }
    out.push_str("\n\n");
    let mut table = split_table("phase", "spans");
    for phase in &answer.phases {
        table.row(split_row(printable(&phase.name), phase.spans.to_string(), &phase.split));
    }
    table.render(&mut out);
    for phase in &answer.phases {
        phase_details(phase, &mut out);
    }
    if !answer.request_list.is_empty() {
        out.push_str("\nslowest requests\n");
        let mut table = split_table("request", "thread");
        for request in answer.request_list.iter().take(SHOWN) {
            let id = request.id.map_or_else(|| "-".to_owned(), |id| id.to_string());
            let name = format!("{} {id}", printable(&request.name));
            table.row(split_row(name, request.tid.to_string(), &request.split));
        }
        table.render(&mut out);
        more(answer.request_list.len(), SHOWN, &mut out);
    }
    if !answer.files.is_empty() {
        out.push_str("\nfiles inside requests\n");
        let mut table = Table::new(&["file", "calls", "time", "bytes", "errors"]);
        for file in answer.files.iter().take(SHOWN) {
            let name = printable(&file.name);
            table.row([name].into_iter().chain(figures(
                file.calls,
                file.ns,
                file.bytes,
                file.errors,
            )));
        }
        table.render(&mut out);
        more(answer.files.len(), SHOWN, &mut out);
    }
    loss(&answer.loss, &mut out);
    out
}

/// System calls by process as tables.
#[must_use]
pub fn syscalls(answer: &Syscalls) -> String {
    let mut out = String::new();
    for process in answer.processes.iter().take(SHOWN) {
        let calls: u64 = process.syscalls.iter().map(|call| call.calls).sum();
        let comm = printable(&process.comm);
        write_line(&mut out, &format!("{comm} ({}): {calls} calls", process.pid));
        calls_table(&process.syscalls, SHOWN, &mut out);
        out.push('\n');
    }
    more(answer.processes.len(), SHOWN, &mut out);
    loss(&answer.loss, &mut out);
    out
}

fn split_table(name: &str, count: &str) -> Table {
    Table::new(&[
        name, count, "wall", "running", "waiting", "disk", "network", "lock", "timer", "pipe",
        "child", "other", "unknown",
    ])
}

fn split_row(name: String, count: String, split: &Split) -> Vec<String> {
    let blocked = &split.blocked_ns;
    let times = [
        split.wall_ns,
        split.running_ns,
        split.waiting_ns,
        blocked.disk,
        blocked.network,
        blocked.lock,
        blocked.timer,
        blocked.pipe,
        blocked.child,
        blocked.other,
        split.unknown_ns,
    ];
    [name, count].into_iter().chain(times.map(time)).collect()
}

fn phase_details(phase: &stitch::answer::Phase, out: &mut String) {
    if phase.syscalls.is_empty() && phase.waited_for.is_empty() {
        return;
    }
    write_line(out, &format!("\n{}", printable(&phase.name)));
    if !phase.waited_for.is_empty() {
        let had = phase.waited_for.iter().take(FEW);
        let had = had.map(|row| format!("{} ({}) {}", printable(&row.comm), row.tid, time(row.ns)));
        let had: Vec<String> = had.collect();
        write_line(out, &format!("waited for a CPU that had: {}", had.join(", ")));
    }
    calls_table(&phase.syscalls, FEW, out);
}

fn calls_table(calls: &[Syscall], shown: usize, out: &mut String) {
    let mut table = Table::new(&["call", "calls", "time", "bytes", "errors", "files"]);
    for call in calls.iter().take(shown) {
        let names: Vec<String> =
            call.files.iter().flatten().take(3).map(|file| printable(&file.name)).collect();
        let row = [printable(&call.name)]
            .into_iter()
            .chain(figures(call.calls, call.ns, call.bytes, call.errors))
            .chain([names.join(" ")]);
        table.row(row);
    }
    table.render(out);
    more(calls.len(), shown, out);
}

fn figures(calls: u64, ns: u64, bytes: u64, errors: u64) -> [String; 4] {
    [calls.to_string(), time(ns), bytes.to_string(), errors.to_string()]
}

pub(crate) fn time(ns: u64) -> String {
    if ns == 0 { "-".to_owned() } else { Nanos::new(ns).to_string() }
}

/// A name without what a terminal would obey.
pub(crate) fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

pub(crate) fn more(all: usize, shown: usize, out: &mut String) {
    if all > shown {
        write_line(out, &format!("and {} more", all - shown));
    }
}

pub(crate) fn loss(loss: &Loss, out: &mut String) {
    let counts = [
        (loss.events_discarded, "events discarded by the tracer"),
        (loss.packets_lost, "packets lost"),
        (loss.gaps, "gaps in the recording"),
        (loss.unmatched_span_ends, "span ends without a begin"),
        (loss.abandoned_phases, "phases without an end"),
        (loss.phases_outside_requests, "phases outside requests"),
        (loss.calls_without_begin, "returns from calls that began before"),
        (loss.bytes_without_begin, "bytes that those moved"),
        (loss.uncertain_calls, "returns that events are missing before"),
        (loss.ring_operations, "operations of io_uring rings"),
        (loss.without_thread, "events of an unknown thread"),
        (loss.backward_times, "events whose time goes back"),
    ];
    let found: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !found.is_empty() {
        write_line(out, &format!("\nnot in these figures: {}", found.join(", ")));
    }
}

pub(crate) fn write_line(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_escapes_do_not_reach_the_terminal() {
        let mut table = Table::new(&["name", "n"]);
        table.row([printable("a\u{1b}[31m"), "100".to_owned()]);
        table.row(["bb".to_owned(), "7".to_owned()]);
        let mut out = String::new();
        table.render(&mut out);
        assert_eq!(out, "name      n\na\u{fffd}[31m  100\nbb        7\n");
    }

    #[test]
    fn an_answer_about_nothing_says_so() {
        let out = phases(&stitch::phases(&stitch::Summary::identity()));
        assert!(out.starts_with("0 requests complete, 0 in part; wall time -\n"), "{out}");
        assert!(!out.contains("not in these figures"), "{out}");
    }
}
