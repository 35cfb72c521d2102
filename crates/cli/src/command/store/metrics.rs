//! What the store says of itself, as Prometheus reads it (text format 0.0.4).

use std::collections::BTreeMap;

use model::Timestamp;
use server::profiles::{LeftOut, LeftOuts};
use store::lake::Lake;
use symbolizer::{Fetches, Named};

use super::exports::Exports;
use super::symbols::Names;

/// Metrics by name, each with its help and its samples.
#[derive(Default)]
struct Exposition(BTreeMap<&'static str, (&'static str, &'static str, String)>);

impl Exposition {
    fn add(
        &mut self,
        (name, kind, help): (&'static str, &'static str, &'static str),
        labels: &[(&str, &str)],
        value: f64,
    ) {
        let (_, _, samples) = self.0.entry(name).or_insert((kind, help, String::new()));
        let escaped =
            |text: &str| text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        samples.push_str(&format!("{name}{labels} {value}\n"));
    }

    fn text(&self) -> String {
        let metric = |(name, (kind, help, samples)): (&&str, &(&str, &str, String))| {
            format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}")
        };
        self.0.iter().map(metric).collect()
    }
}

type Metric = (&'static str, &'static str, &'static str);
const BLOCKS: Metric =
    ("throughline_store_blocks", "gauge", "Blocks, by how often they were merged.");
const BYTES: Metric = ("throughline_store_block_bytes", "gauge", "Length of all blocks.");
const DAMAGED: Metric = (
    "throughline_store_damaged_blocks",
    "gauge",
    "Blocks that cannot be read: neither merged nor counted.",
);
const JOBS: Metric =
    ("throughline_compaction_jobs", "gauge", "Merges that are due, by whether somebody does them.");
const OLDEST_JOB: Metric =
    ("throughline_compaction_oldest_job_seconds", "gauge", "How long ago the first of them came.");
const DONE_JOBS: Metric = (
    "throughline_compaction_done_jobs_total",
    "counter",
    "Merges that were done, by this process (store) and by others (worker).",
);
const UNDONE_JOBS: Metric = (
    "throughline_compaction_undone_jobs_total",
    "counter",
    "Merges that were begun in vain, by why: the lease ended, the result was refused, it could not be done.",
);
const CLOSED: Metric = (
    "throughline_export_closed_timestamp_seconds",
    "gauge",
    "All cells before this time are closed.",
);
const DROPPED: Metric = (
    "throughline_export_dropped_samples_total",
    "counter",
    "Samples of series that were not kept for receivers, as too many waited.",
);
const INEXACT: Metric = (
    "throughline_export_inexact_samples_total",
    "counter",
    "Sums above 2^53, which no sample's value is exactly.",
);
const ELSEWHERE: Metric = (
    "throughline_export_elsewhere_samples_total",
    "counter",
    "Profile samples that are in the overflow, or in a series that lacks a label (label_clash), and not in the series that they would be in, by why.",
);
const NEGATIVE: Metric = (
    "throughline_export_negative_sums_total",
    "counter",
    "Sums that counters leave out, as these only grow.",
);
const LAG: Metric = (
    "throughline_export_lag_seconds",
    "gauge",
    "What came before so long ago was counted, and the receiver has it.",
);
const WAITING: Metric = (
    "throughline_export_waiting_samples",
    "gauge",
    "Closed cells that the receiver does not have.",
);
const SENT: Metric =
    ("throughline_export_sent_samples_total", "counter", "Cells that the receiver took.");
const LOST: Metric = (
    "throughline_export_lost_samples_total",
    "counter",
    "Cells that the receiver will not have, by why.",
);
const PARKED: Metric = (
    "throughline_export_parked_series",
    "gauge",
    "Series that the receiver refused, sent alone until it takes them again.",
);
const FAILING: Metric =
    ("throughline_export_failing", "gauge", "1 while the receiver takes nothing.");

const LEFT_OUT: Metric = (
    "throughline_store_left_out_total",
    "counter",
    "Parts of profiles that were stored without them, by why.",
);
const REFUSED: Metric = (
    "throughline_store_refused_total",
    "counter",
    "Profiles that were refused, and requests as one each, by why.",
);

const FRAMES: Metric = (
    "throughline_symbols_frames_total",
    "counter",
    "Frames of native code that came without a function, once for each merge of this process, by what became of them.",
);
const FETCHES: Metric = (
    "throughline_symbols_fetches_total",
    "counter",
    "Files that debuginfod servers were asked for, by what came.",
);

/// What became of frames without names.
pub(super) fn of_symbols(names: &Names) -> String {
    let mut all = Exposition::default();
    let Named { named, no_file, no_function, no_headers, no_time } = names.0.named();
    let outcomes = [
        ("named", named),
        ("no_file", no_file),
        ("no_function", no_function),
        ("no_headers", no_headers),
        ("no_time", no_time),
    ];
    for (outcome, count) in outcomes {
        all.add(FRAMES, &[("outcome", outcome)], count as f64);
    }
    if let Some(Fetches { found, absent, failed }) = names.0.fetches() {
        for (outcome, count) in [("found", found), ("absent", absent), ("failed", failed)] {
            all.add(FETCHES, &[("outcome", outcome)], count as f64);
        }
    }
    all.text()
}

/// All of it, at a time. Of tenants beyond those that are counted by themselves the label `tenant` is missing.
pub(super) fn text(
    lake: &Lake,
    exports: &Exports,
    left_out: &LeftOuts,
    now: Timestamp,
) -> anyhow::Result<String> {
    let mut all = Exposition::default();
    let mut levels: BTreeMap<u8, (u64, u64)> = (0..=4).map(|level| (level, (0, 0))).collect();
    for block in lake.blocks() {
        let (count, bytes) = levels.entry(block.level).or_default();
        *count += 1;
        *bytes += block.bytes;
    }
    for (level, (count, bytes)) in levels {
        let labels = [("level", level.to_string())];
        let labels = labels.each_ref().map(|(name, value)| (*name, value.as_str()));
        all.add(BLOCKS, &labels, count as f64);
        all.add(BYTES, &labels, bytes as f64);
    }
    all.add(DAMAGED, &[], lake.damaged().len() as f64);
    let tally = lake.tally();
    for (state, count) in [("waiting", tally.waiting), ("leased", tally.leased)] {
        all.add(JOBS, &[("state", state)], count as f64);
    }
    let oldest = tally.oldest.map_or(0, |oldest| now.since(oldest).get());
    all.add(OLDEST_JOB, &[], oldest as f64 / 1e9);
    for (by, count) in [("store", tally.by_owner), ("worker", tally.by_workers)] {
        all.add(DONE_JOBS, &[("by", by)], count as f64);
    }
    let undone = [("ended", tally.ended), ("refused", tally.refused), ("failed", tally.failed)];
    for (reason, count) in undone {
        all.add(UNDONE_JOBS, &[("reason", reason)], count as f64);
    }
    for (tenant, LeftOut { parts, refused }) in left_out.iter() {
        for (metric, counts) in [(LEFT_OUT, parts), (REFUSED, refused)] {
            for (why, count) in counts {
                let tenant = tenant.map(|tenant| ("tenant", tenant.as_str()));
                let labels: Vec<_> = tenant.into_iter().chain([("reason", *why)]).collect();
                all.add(metric, &labels, *count as f64);
            }
        }
    }
    let now_ms = now.nanos() / 1_000_000;
    let mut heads = BTreeMap::new();
    for (tenant, url, status) in exports.status() {
        if !heads.contains_key(&tenant) {
            let head = lake.catalogue().head(&tenant)?;
            let labels = [("tenant", tenant.as_str())];
            all.add(CLOSED, &labels, head.closed_ms as f64 / 1e3);
            all.add(DROPPED, &labels, head.lost as f64);
            all.add(INEXACT, &labels, head.inexact as f64);
            all.add(NEGATIVE, &labels, head.left_out as f64);
            let [tenant_label] = labels;
            for (reason, count) in lake.elsewhere(&tenant).by_reason() {
                all.add(ELSEWHERE, &[tenant_label, ("reason", reason)], count as f64);
            }
            heads.insert(tenant.clone(), head);
        }
        let head = heads.get(&tenant).copied().unwrap_or_default();
        let labels = [("tenant", tenant.as_str()), ("receiver", url.as_str())];
        let cursor = &status.status.cursor;
        let waiting = head.next.saturating_sub(status.origin.saturating_add(cursor.next));
        let has_ms = match (waiting, cursor.newest_ms) {
            (0, _) | (_, None) => head.closed_ms,
            (_, Some(newest_ms)) => newest_ms,
        };
        all.add(LAG, &labels, now_ms.saturating_sub(has_ms) as f64 / 1e3);
        all.add(WAITING, &labels, waiting as f64);
        all.add(SENT, &labels, cursor.taken as f64);
        all.add(PARKED, &labels, cursor.parked.iter().filter(|it| it.is_alone).count() as f64);
        all.add(FAILING, &labels, f64::from(u8::from(status.status.trouble.is_some())));
        for (reason, count) in &cursor.lost {
            let [tenant, receiver] = labels;
            all.add(LOST, &[tenant, receiver, ("reason", reason.as_str())], *count as f64);
        }
    }
    Ok(all.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut all = Exposition::default();
        all.add(LAG, &[("tenant", "a\"b\\c\nd")], 1.5);
        all.add(LAG, &[], 2.0);
        assert_eq!(
            all.text(),
            "# HELP throughline_export_lag_seconds What came before so long ago was counted, and the receiver has it.\n\
             # TYPE throughline_export_lag_seconds gauge\n\
             throughline_export_lag_seconds{tenant=\"a\\\"b\\\\c\\nd\"} 1.5\n\
             throughline_export_lag_seconds 2\n"
        );
    }
}
