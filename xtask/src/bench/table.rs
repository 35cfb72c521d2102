//! The printed table: one line a figure, with its bar and whether it holds.

use std::fs;

use anyhow::Context;

use super::measure::Rounds;

/// What a figure has to be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bar {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

/// One figure.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) found: Rounds,
    /// Printed directly after each number of `found` and of the bar.
    pub(super) unit: &'static str,
    pub(super) bar: Option<Bar>,
    pub(super) ours: String,
    pub(super) theirs: String,
}

impl Bar {
    fn holds(self, found: f64) -> bool {
        match self {
            Self::AtLeast(bar) => found >= bar,
            Self::AtMost(bar) => found <= bar,
            Self::Below(bar) => found < bar,
        }
    }

    fn text(self, unit: &str) -> String {
        match self {
            Self::AtLeast(bar) => format!("≥ {bar}{unit}"),
            Self::AtMost(bar) => format!("≤ {bar}{unit}"),
            Self::Below(bar) => format!("< {bar}{unit}"),
        }
    }
}

impl Row {
    fn line(&self) -> String {
        let Self { name, found, unit, bar, ours, theirs } = self;
        let (low, high) = found.spread();
        let bar_text = bar.map_or_else(String::new, |bar| bar.text(unit));
        let verdict = match bar.map(|bar| bar.holds(found.median())) {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        let found = format!("{:.2}{unit} ({low:.2} to {high:.2})", found.median());
        format!(
            "| {name:<36} | {found:<26} | {bar_text:<8} | {verdict:<4} | {ours:<24} | {theirs} |"
        )
    }
}

#[expect(clippy::print_stdout, reason = "the table is the result of the command")]
pub(super) fn print_head(lines: &[String]) {
    lines.iter().for_each(|line| println!("{line}"));
}

/// Prints the rows below a title, beside those of a peer.
#[expect(clippy::print_stdout, reason = "the table is the result of the command")]
pub(super) fn print(title: &str, peer: &str, rows: &[Row]) {
    println!("\n{title}\n");
    println!(
        "| {:<36} | {:<26} | {:<8} | {:<4} | {:<24} | {peer} |",
        "", "found", "bar", "held", "throughline"
    );
    println!("|---|---|---|---|---|---|");
    rows.iter().for_each(|row| println!("{}", row.line()));
}

/// The processor, how many of it, and the kernel.
pub(super) fn machine() -> anyhow::Result<String> {
    let read = |path: &str| fs::read_to_string(path).with_context(|| path.to_owned());
    let cpus = read("/proc/cpuinfo")?;
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown processor", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = read("/proc/sys/kernel/osrelease")?;
    Ok(format!("{model}, {count} CPUs, Linux {}", kernel.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(found: f64, bar: Bar) -> String {
        let found = Rounds::new(vec![found, found - 1.0, found + 1.0]).unwrap();
        let (ours, theirs) = ("1 s".to_owned(), "9 s".to_owned());
        Row { name: "count".to_owned(), found, unit: "×", bar: Some(bar), ours, theirs }.line()
    }

    #[test]
    fn a_line_has_the_median_the_spread_and_the_verdict() {
        let line = row(20.0, Bar::AtLeast(20.0));
        assert!(line.contains("20.00× (19.00 to 21.00)"), "{line}");
        assert!(line.contains("| ≥ 20×") && line.contains("| yes  |"), "{line}");
        assert!(row(19.9, Bar::AtLeast(20.0)).contains("| NO   |"));
        assert!(row(2.0, Bar::AtMost(2.0)).contains("| yes  |"));
        assert!(row(2.0, Bar::Below(2.0)).contains("| NO   |"));
    }
}
