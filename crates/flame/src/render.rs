//! Flame graphs and time lines as `/pyroscope/render` gives them.

use std::collections::BTreeMap;

use model::samples::ProfileType;
use wire::pyroscope::{
    Error, FlameGraph, FlameGraphDiff, Flamebearer, Level, Point, ProfileFormat, Render,
    RenderMetadata, Timeline,
};

use crate::labels::{NAME, PROFILE_TYPE};
use crate::observe::Steps;
use crate::request::{MergeQuestion, Rules};
use crate::select::{Millis, Selection};
use crate::selector::{Matcher, Selector, Test};
use crate::stacks::Walk;

/// Values that a time line has about.
const POINTS: i64 = 1_500;

/// Seconds from value to value that a time line may have.
const RUNGS_S: [i64; 13] = [15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10800];

impl Rules {
    /// `/pyroscope/render`, and each side of `/pyroscope/render-diff`: a query such as `process_cpu:cpu:nanoseconds:cpu:nanoseconds{pod="a"}`
    /// or `{__name__="process_cpu:cpu:nanoseconds:cpu:nanoseconds"}`, and times in milliseconds. Nodes as in
    /// [`Self::stacktraces`].
    ///
    /// # Errors
    ///
    /// For what cannot be answered, as `invalid_argument`.
    pub fn render(
        &self,
        query: &str,
        (from, until): (i64, i64),
        max_nodes: Option<i64>,
    ) -> Result<Option<MergeQuestion>, Error> {
        let max_nodes = self.nodes(max_nodes, self.limits.default_nodes)?;
        let parsed = Selector::parse(query).map_err(|error| Error::invalid(error.to_string()))?;
        let (types, others): (Vec<&Matcher>, Vec<&Matcher>) =
            parsed.matchers().iter().partition(|matcher| profile_type(matcher).is_some());
        let [of] = types.as_slice() else {
            return Err(Error::invalid(format!("{query:?} names {} profile types", types.len())));
        };
        let Some(profile_type) = profile_type(of) else {
            return Err(Error::invalid(format!("{query:?} names no profile type")));
        };
        let selector =
            Selector::all(others.into_iter().cloned()).and(PROFILE_TYPE, &profile_type.to_string());
        let question = |time| MergeQuestion {
            profile_type,
            selection: Selection::new(selector, time),
            walk: Walk::default(),
            max_nodes,
            format: ProfileFormat::Flamegraph,
        };
        Ok(self.range(from, until)?.map(question))
    }
}

/// The profile type that a matcher names.
fn profile_type(matcher: &Matcher) -> Option<ProfileType> {
    match &matcher.test {
        Test::Equal(value) if [NAME, PROFILE_TYPE].contains(&matcher.name.as_str()) => {
            value.parse().ok()
        }
        _ => None,
    }
}

/// Where the values of a time line are.
#[must_use]
pub fn timeline_steps(time: Millis) -> Steps {
    let wanted_ms = time.end.saturating_sub(time.start) / POINTS;
    // The rung that is nearest; in the middle of two the longer.
    let is_near = |pair: &[i64]| pair.iter().sum::<i64>() * 1000 > 2 * wanted_ms;
    let at = RUNGS_S.windows(2).position(is_near).unwrap_or(RUNGS_S.len() - 1);
    let step_s = RUNGS_S.get(at).copied().unwrap_or(1);
    Steps { start: time.start, end: time.end, step: step_s * 1000 }
}

/// The values of a series at these steps, 0 where it has none: 8 bytes for each step. The value of the time's end is not in it.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "values are sums of integers, and a float that is too large becomes the greatest"
)]
pub fn timeline(points: &[Point], steps: Steps) -> Timeline {
    let count = steps.end.saturating_sub(steps.start).div_euclid(steps.step.max(1));
    let mut samples = vec![0; usize::try_from(count).unwrap_or_default()];
    for point in points {
        let at = usize::try_from(steps.index(point.timestamp)).ok();
        if let Some(sample) = at.and_then(|at| samples.get_mut(at)) {
            *sample = point.value as u64;
        }
    }
    Timeline {
        start_time: steps.start.div_euclid(1000),
        samples,
        duration_delta: steps.step / 1000,
        watermarks: (),
    }
}

/// A flame graph, with a time line of the same samples and one for each value of a label.
#[must_use]
pub fn render(
    graph: FlameGraph,
    of: &ProfileType,
    timeline: Timeline,
    groups: impl IntoIterator<Item = (String, Timeline)>,
) -> Render {
    let FlameGraph { names, levels, total, max_self } = graph;
    let groups: BTreeMap<String, Timeline> = groups.into_iter().collect();
    Render {
        timeline: Some(timeline),
        groups: Some(groups).filter(|groups| !groups.is_empty()),
        ..plain(names, levels, (total, max_self), metadata("single", of))
    }
}

/// A difference.
#[must_use]
pub fn render_diff(graph: FlameGraphDiff, of: &ProfileType) -> Render {
    let FlameGraphDiff { names, levels, total, max_self, left_ticks, right_ticks } = graph;
    Render {
        left_ticks: Some(left_ticks),
        right_ticks: Some(right_ticks),
        ..plain(names, levels, (total, max_self), metadata("double", of))
    }
}

fn plain(
    names: Vec<String>,
    levels: Vec<Level>,
    (num_ticks, max_self): (i64, i64),
    metadata: RenderMetadata,
) -> Render {
    let levels = levels.into_iter().map(|level| level.values).collect();
    Render {
        version: 1,
        flamebearer: Flamebearer { names, levels, num_ticks, max_self },
        metadata,
        timeline: None,
        groups: None,
        heatmap: (),
        left_ticks: None,
        right_ticks: None,
    }
}

fn metadata(format: &str, of: &ProfileType) -> RenderMetadata {
    let (units, sample_rate) = match of.sample_type.as_str() {
        "inuse_objects" | "alloc_objects" | "goroutine" | "samples" => ("objects", 100),
        // Ticks are nanoseconds.
        "cpu" => ("samples", 1_000_000_000),
        _ => (of.sample_unit.as_str(), 100),
    };
    RenderMetadata {
        format: format.to_owned(),
        spy_name: String::new(),
        sample_rate,
        units: units.to_owned(),
        name: of.sample_type.clone(),
    }
}
