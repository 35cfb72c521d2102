//! Requests as clients send them, made into questions that can be answered, or refused in words.

use hashbrown::HashSet;
use model::samples::ProfileType;
use wire::pyroscope::{
    Error, ExemplarType, HeatmapQueryType, ProfileFormat, SelectHeatmapRequest,
    SelectMergeProfileRequest, SelectMergeSpanProfileRequest, SelectMergeStacktracesRequest,
    SelectSeriesRequest, StackTraceSelector, TimeSeriesAggregationType,
};

use crate::heatmap::HeatmapQuestion;
use crate::labels::PROFILE_TYPE;
use crate::observe::{Of, Steps};
use crate::select::{Millis, Selection};
use crate::selector::Selector;
use crate::series::{Aggregation, SeriesQuestion};
use crate::stacks::Walk;

/// Bounds of questions. The defaults are Pyroscope's (`querier.max-query-length`, `.max-query-lookback`,
/// `.max-flamegraph-nodes-default`, `.max-flamegraph-nodes-max`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest range of times, in milliseconds.
    pub max_range_ms: i64,
    /// How long ago the start may be, in milliseconds; what is before is not looked at.
    pub max_lookback_ms: i64,
    /// Nodes of a tree when the request does not say.
    pub default_nodes: i64,
    /// Nodes of a tree at most.
    pub max_nodes: i64,
    /// Ids of profiles, spans or traces, function names of a call site, labels to group by: of each as many at most.
    pub max_items: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const HOUR_MS: i64 = 3_600_000;
        Self {
            max_range_ms: 24 * HOUR_MS,
            max_lookback_ms: 7 * 24 * HOUR_MS,
            default_nodes: 8_192,
            max_nodes: 1 << 20,
            max_items: 1 << 12,
        }
    }
}

/// Merged stacks of some samples.
#[derive(Debug, Clone)]
pub struct MergeQuestion {
    /// What values count.
    pub profile_type: ProfileType,
    /// Which samples, the profile type included.
    pub selection: Selection,
    /// What of their stacks.
    pub walk: Walk,
    /// Nodes of the answer.
    pub max_nodes: usize,
    /// What the answer comes as.
    pub format: ProfileFormat,
}

/// Rules by which requests are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Bounds.
    pub limits: Limits,
    /// What the clock says, in milliseconds since the epoch.
    pub now_ms: i64,
}

/// What stays of a request: nothing when its time is empty, and then the answer is, too.
type Taken<T> = Result<Option<T>, Error>;

impl Rules {
    /// A range that a question is about. None for one that is empty or wholly before what is looked at.
    ///
    /// # Errors
    ///
    /// For a range that ends before it starts, or is too long.
    pub fn range(&self, start: i64, end: i64) -> Taken<Millis> {
        if end < start {
            return Err(Error::invalid(format!(
                "the time ends ({end}) before it starts ({start})"
            )));
        }
        let time = Millis { start: start.max(self.oldest()), end };
        if time.start >= time.end {
            return Ok(None);
        }
        let (length, most) = (time.end.saturating_sub(time.start), self.limits.max_range_ms);
        if length > most {
            return Err(Error::invalid(format!(
                "the time of the query is {} s long, which is more than {} s",
                length / 1000,
                most / 1000
            )));
        }
        Ok(Some(time))
    }

    /// A range that labels are listed for, which may be of any length; both 0 for all that is looked at.
    ///
    /// # Errors
    ///
    /// For a range that ends before it starts.
    pub fn range_of_labels(&self, start: i64, end: i64) -> Taken<Millis> {
        if (start, end) == (0, 0) {
            return Ok(Some(Millis { start: self.oldest(), end: self.now_ms }));
        }
        if end < start {
            return Err(Error::invalid(format!(
                "the time ends ({end}) before it starts ({start})"
            )));
        }
        let time = Millis { start: start.max(self.oldest()), end };
        Ok(Some(time).filter(|time| time.start <= time.end))
    }

    /// Selectors of a request for labels.
    ///
    /// # Errors
    ///
    /// For one that is none, and for too many.
    pub fn selectors(&self, texts: &[String]) -> Result<Vec<Selector>, Error> {
        self.few("matchers", texts.len())?;
        texts.iter().map(|text| selector(text)).collect()
    }

    /// `SelectMergeStacktraces`, and each side of `Diff`.
    ///
    /// # Errors
    ///
    /// For what cannot be answered, as `invalid_argument`.
    pub fn stacktraces(&self, of: &SelectMergeStacktracesRequest) -> Taken<MergeQuestion> {
        if !of.span_selector.is_empty() && !of.trace_id_selector.is_empty() {
            return Err(Error::invalid("spans and traces cannot be selected together"));
        }
        let max_nodes = self.nodes(of.max_nodes, self.limits.default_nodes)?;
        let Ok(format) = ProfileFormat::try_from(of.format) else {
            return Err(Error::invalid(format!("there is no format {}", of.format)));
        };
        let merge = self.merge(&of.profile_type_id, &of.label_selector, (of.start, of.end))?;
        let Some(mut question) = merge else { return Ok(None) };
        self.stack_traces(of.stack_trace_selector.as_ref(), &mut question)?;
        self.ids(&mut question, &of.profile_id_selector, &of.span_selector, &of.trace_id_selector)?;
        Ok(Some(MergeQuestion { max_nodes, format, ..question }))
    }

    /// `SelectMergeSpanProfile`.
    ///
    /// # Errors
    ///
    /// For what cannot be answered, as `invalid_argument`.
    pub fn span_profile(&self, of: &SelectMergeSpanProfileRequest) -> Taken<MergeQuestion> {
        if matches!(
            ProfileFormat::try_from(of.format),
            Ok(ProfileFormat::Dot | ProfileFormat::Pprof)
        ) {
            return Err(Error::invalid("profiles of spans come as flame graph or as tree"));
        }
        self.stacktraces(&SelectMergeStacktracesRequest {
            profile_type_id: of.profile_type_id.clone(),
            label_selector: of.label_selector.clone(),
            start: of.start,
            end: of.end,
            max_nodes: of.max_nodes,
            format: of.format,
            span_selector: of.span_selector.clone(),
            ..SelectMergeStacktracesRequest::default()
        })
    }

    /// `SelectMergeProfile`. Without a number of nodes it has as many as there may be, for tools that want all.
    ///
    /// # Errors
    ///
    /// For what cannot be answered, as `invalid_argument`.
    pub fn profile(&self, of: &SelectMergeProfileRequest) -> Taken<MergeQuestion> {
        let max_nodes = self.nodes(of.max_nodes, self.limits.max_nodes)?;
        let merge = self.merge(&of.profile_type_id, &of.label_selector, (of.start, of.end))?;
        let Some(mut question) = merge else { return Ok(None) };
        self.stack_traces(of.stack_trace_selector.as_ref(), &mut question)?;
        self.ids(&mut question, &of.profile_id_selector, &[], &of.trace_id_selector)?;
        Ok(Some(MergeQuestion { max_nodes, format: ProfileFormat::Pprof, ..question }))
    }

    /// `SelectSeries`: which samples, and what becomes of them.
    ///
    /// # Errors
    ///
    /// For what cannot be answered, as `invalid_argument`.
    pub fn series(&self, of: &SelectSeriesRequest) -> Taken<(Selection, SeriesQuestion)> {
        let step = step(of.step)?;
        let limit = limit(of.limit)?;
        self.few("labels to group by", of.group_by.len())?;
        let aggregation = of.aggregation.unwrap_or_default();
        let aggregation = match TimeSeriesAggregationType::try_from(aggregation) {
            Ok(TimeSeriesAggregationType::Sum) => Aggregation::Sum,
            Ok(TimeSeriesAggregationType::Average) => Aggregation::Average,
            Err(_) => return Err(Error::invalid(format!("there is no aggregation {aggregation}"))),
        };
        let exemplars = exemplars(of.exemplar_type)?;
        if aggregation == Aggregation::Average && exemplars == Some(Of::Spans) {
            return Err(Error::invalid("an average of profiles has no spans as exemplars"));
        }
        let merge = self.merge(&of.profile_type_id, &of.label_selector, (of.start, of.end))?;
        let Some(mut question) = merge else { return Ok(None) };
        self.stack_traces(of.stack_trace_selector.as_ref(), &mut question)?;
        let Millis { start, end } = question.selection.time;
        let series = SeriesQuestion {
            steps: Steps { start, end, step },
            group_by: of.group_by.clone(),
            aggregation,
            exemplars,
            limit,
        };
        let selection = Selection { time: series.time(), ..question.selection };
        Ok(Some((selection, series)))
    }

    /// `SelectHeatmap`: which samples, and what becomes of them.
    ///
    /// # Errors
    ///
    /// For what cannot be answered, as `invalid_argument`.
    pub fn heatmap(&self, of: &SelectHeatmapRequest) -> Taken<(Selection, HeatmapQuestion)> {
        let step = step(of.step)?;
        let limit = limit(of.limit)?;
        self.few("labels to group by", of.group_by.len())?;
        let counted = match HeatmapQueryType::try_from(of.query_type) {
            Ok(HeatmapQueryType::Individual) => Of::Profiles,
            Ok(HeatmapQueryType::Span) => Of::Spans,
            Ok(HeatmapQueryType::Unspecified) => {
                return Err(Error::invalid(
                    "a heat map is of profiles or of spans: query_type is not set",
                ));
            }
            Err(_) => {
                return Err(Error::invalid(format!("there is no query type {}", of.query_type)));
            }
        };
        let exemplars = exemplars(of.exemplar_type)?;
        if exemplars.is_some_and(|of| of != counted) {
            return Err(Error::invalid("exemplars of a heat map are of what it counts"));
        }
        let merge = self.merge(&of.profile_type_id, &of.label_selector, (of.start, of.end))?;
        let Some(MergeQuestion { selection, .. }) = merge else { return Ok(None) };
        let Millis { start, end } = selection.time;
        let question = HeatmapQuestion {
            steps: Steps { start, end, step },
            of: counted,
            group_by: of.group_by.clone(),
            exemplars: exemplars.is_some(),
            limit,
        };
        Ok(Some((selection, question)))
    }

    fn oldest(&self) -> i64 {
        self.now_ms.saturating_sub(self.limits.max_lookback_ms)
    }

    fn merge(&self, id: &str, labels: &str, (start, end): (i64, i64)) -> Taken<MergeQuestion> {
        let profile_type: ProfileType =
            id.parse().map_err(|error| Error::invalid(format!("{error}")))?;
        let selector = selector(labels)?.and(PROFILE_TYPE, &profile_type.to_string());
        let question = |time| MergeQuestion {
            profile_type,
            selection: Selection::new(selector, time),
            walk: Walk::default(),
            max_nodes: 0,
            format: ProfileFormat::Unspecified,
        };
        Ok(self.range(start, end)?.map(question))
    }

    fn stack_traces(
        &self,
        of: Option<&StackTraceSelector>,
        question: &mut MergeQuestion,
    ) -> Result<(), Error> {
        let Some(of) = of else { return Ok(()) };
        if let Some(go) = &of.go_pgo {
            // Call sites do not count then.
            question.walk =
                Walk { keep_leaves: go.keep_locations, aggregate_callees: go.aggregate_callees };
            return Ok(());
        }
        self.few("functions of a call site", of.call_site.len())?;
        let names = of.call_site.iter().map(|location| location.name.clone());
        question.selection.call_site = names.collect();
        Ok(())
    }

    fn ids(
        &self,
        question: &mut MergeQuestion,
        profiles: &[String],
        spans: &[String],
        traces: &[String],
    ) -> Result<(), Error> {
        for (what, count) in
            [("profiles", profiles.len()), ("spans", spans.len()), ("traces", traces.len())]
        {
            self.few(what, count)?;
        }
        let Selection { profiles: to_profiles, spans: to_spans, traces: to_traces, .. } =
            &mut question.selection;
        *to_profiles = parsed(profiles, "no UUID of a profile", |text| {
            let digits = text.replace('-', "");
            hexadecimal(&digits, 32)
        })?;
        *to_spans = parsed(spans, "no id of a span, which is 16 hexadecimal digits", |text| {
            hexadecimal(text, 16).and_then(|id| u64::try_from(id).ok())
        })?;
        *to_traces = parsed(traces, "no id of a trace, which is 32 hexadecimal digits", |text| {
            hexadecimal(text, 32)
        })?;
        Ok(())
    }

    pub(crate) fn nodes(&self, asked: Option<i64>, default: i64) -> Result<usize, Error> {
        let asked = asked.filter(|asked| *asked != 0).unwrap_or(default);
        let most = self.limits.max_nodes;
        usize::try_from(asked).ok().filter(|_| asked <= most).ok_or_else(|| {
            Error::invalid(format!("max_nodes is {asked}, but must be from 0 to {most}"))
        })
    }

    fn few(&self, what: &str, count: usize) -> Result<(), Error> {
        let most = self.limits.max_items;
        if count <= most {
            return Ok(());
        }
        Err(Error::invalid(format!("{count} {what} are more than {most}")))
    }
}

fn selector(text: &str) -> Result<Selector, Error> {
    Selector::parse(text).map_err(|error| Error::invalid(error.to_string()))
}

fn parsed<T: std::hash::Hash + Eq>(
    texts: &[String],
    fault: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<HashSet<T>, Error> {
    let one =
        |text: &String| parse(text).ok_or_else(|| Error::invalid(format!("{text:?} is {fault}")));
    texts.iter().map(one).collect()
}

fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let is_whole = text.len() == digits && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| is_whole)
}

/// Milliseconds of a step in seconds.
fn step(seconds: f64) -> Result<i64, Error> {
    const MOST_MS: f64 = 1e15;
    let millis = seconds * 1000.0;
    if !(1.0..=MOST_MS).contains(&millis) {
        return Err(Error::invalid(format!("the step is {seconds} s, but must be 1 ms or more")));
    }
    #[expect(clippy::cast_possible_truncation, reason = "in range, as was looked")]
    Ok(millis.round() as i64)
}

fn limit(asked: Option<i64>) -> Result<Option<usize>, Error> {
    // 0 is what protobuf has for a number that is not set.
    let Some(asked) = asked.filter(|asked| *asked != 0) else { return Ok(None) };
    let wrong = |_negative| Error::invalid(format!("the limit is {asked}, but must be 0 or more"));
    usize::try_from(asked).map(Some).map_err(wrong)
}

fn exemplars(asked: i32) -> Result<Option<Of>, Error> {
    match ExemplarType::try_from(asked) {
        Ok(ExemplarType::Unspecified | ExemplarType::None) => Ok(None),
        Ok(ExemplarType::Individual) => Ok(Some(Of::Profiles)),
        Ok(ExemplarType::Span) => Ok(Some(Of::Spans)),
        Err(_) => Err(Error::invalid(format!("there are no exemplars {asked}"))),
    }
}
