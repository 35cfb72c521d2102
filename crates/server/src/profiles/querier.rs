//! `querier.v1.QuerierService`: what Grafana and other clients of Pyroscope ask.

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use flame::{
    CallTree, LabelSet, MergeQuestion, MergedCalls, MergedPlaces, MergedStacks, Millis, Rules,
    SeriesSums,
};
use model::Timestamp;
use model::samples::{Batch, Series};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use store::block::{Detail, Selection};
use store::lake::name::Tenant;
use wire::pyroscope::{self as connect, Code};
use wire::pyroscope::{
    AnalyzeQueryRequest, AnalyzeQueryResponse, DiffRequest, DiffResponse, GetProfileStatsRequest,
    LabelNamesRequest, LabelValuesRequest, ProfileTypesRequest, QueryImpact, QueryScope,
    SelectHeatmapRequest, SelectHeatmapResponse, SelectMergeSpanProfileResponse,
    SelectMergeStacktracesRequest, SelectMergeStacktracesResponse, SelectSeriesRequest,
    SelectSeriesResponse, SeriesRequest, pprof,
};

use super::call::{Call, call};
use super::{Inner, Kind, Profiles, of_store};

const NANOS_PER_MILLI: i64 = 1_000_000;

/// Any of its methods.
pub(super) async fn answer(
    State(profiles): State<Profiles>,
    Path(method): Path<String>,
    request: Request,
) -> Response {
    let answer = move |it: &Call<'_>| {
        let rules = Rules { limits: flame::Limits::default(), now_ms: millis((it.inner.clock)()) };
        Ok(Asked { call: it, rules, set: label_set(it.headers) }.answer(&method)?.into())
    };
    call(&profiles, Kind::Question, request, answer).await
}

/// Names that are not of letters, digits and underscores are for those who say that they take them.
fn label_set(headers: &HeaderMap) -> LabelSet {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let takes_all = |accept: &str| accept.contains("allow-utf8-labelnames=true");
    if accepts.into_iter().any(takes_all) { LabelSet::Utf8 } else { LabelSet::Plain }
}

/// A question, and who asks.
struct Asked<'a> {
    call: &'a Call<'a>,
    rules: Rules,
    set: LabelSet,
}

type Answer<T> = Result<T, connect::Error>;

impl Asked<'_> {
    fn answer(&self, method: &str) -> Answer<Vec<u8>> {
        match method {
            "ProfileTypes" => self.of(|asked: ProfileTypesRequest| {
                let series = self.series((asked.start, asked.end))?;
                Ok(flame::profile_types(series.iter().map(|series| &series.profile_type)))
            }),
            "LabelNames" => self.of(|asked: LabelNamesRequest| {
                let selectors = self.rules.selectors(&asked.matchers)?;
                let series = self.series((asked.start, asked.end))?;
                Ok(flame::label_names(&series, &selectors, self.set))
            }),
            "LabelValues" => self.of(|asked: LabelValuesRequest| {
                let selectors = self.rules.selectors(&asked.matchers)?;
                let series = self.series((asked.start, asked.end))?;
                Ok(flame::label_values(&series, &selectors, &asked.name))
            }),
            "Series" => self.of(|asked: SeriesRequest| {
                let selectors = self.rules.selectors(&asked.matchers)?;
                let series = self.series((asked.start, asked.end))?;
                Ok(flame::series(&series, &selectors, &asked.label_names, self.set))
            }),
            "GetProfileStats" => self.of(|_: GetProfileStatsRequest| {
                let blocks = self.call.inner.lake.blocks();
                let own = || blocks.iter().filter(|block| block.tenant == *self.call.tenant);
                let times = own().map(|block| block.begin).min();
                let times = times.zip(own().map(|block| block.end).max());
                Ok(flame::profile_stats(times))
            }),
            "AnalyzeQuery" => self.of(|asked: AnalyzeQueryRequest| self.analyze(&asked)),
            "SelectMergeStacktraces" => self.of(|asked| {
                let Some(question) = self.rules.stacktraces(&asked)? else {
                    return Ok(SelectMergeStacktracesResponse::default());
                };
                Ok(self.stacks(&question)?.finish())
            }),
            "SelectMergeSpanProfile" => self.of(|asked| {
                let Some(question) = self.rules.span_profile(&asked)? else {
                    return Ok(SelectMergeSpanProfileResponse::default());
                };
                Ok(self.stacks(&question)?.finish_spans())
            }),
            "SelectMergeProfile" => self.of(|asked| {
                let Some(question) = self.rules.profile(&asked)? else {
                    return Ok(pprof::Profile::default());
                };
                let mut places = MergedPlaces::new(&question);
                self.merge(&question, |batch| places.add(batch))?;
                Ok(places.finish())
            }),
            "SelectSeries" => self.of(|asked| self.select_series(&asked)),
            "SelectHeatmap" => self.of(|asked| self.heatmap(&asked)),
            "Diff" => self.of(|asked| self.diff(&asked)),
            _ => Err(connect::Error::new(Code::Unimplemented, format!("there is no {method}"))),
        }
    }

    /// The answer to a question of a kind.
    fn of<Q, A>(&self, answer: impl FnOnce(Q) -> Answer<A>) -> Answer<Vec<u8>>
    where
        Q: Message + Default + DeserializeOwned,
        A: Message + Serialize,
    {
        let question = connect::decode(self.call.message, self.call.encoding)?;
        Ok(connect::encode(&answer(question)?, self.call.encoding))
    }

    fn series(&self, (start, end): (i64, i64)) -> Answer<Vec<Series>> {
        let Some(time) = self.rules.range_of_labels(start, end)? else { return Ok(Vec::new()) };
        let found = self.call.inner.lake.series(self.call.tenant, times(time));
        found.map(|found| found.into_iter().collect()).map_err(|error| of_store(&error))
    }

    /// All samples of a selection.
    fn samples(&self, selection: &flame::Selection, visit: impl FnMut(&Batch)) -> Answer<()> {
        self::visit(self.call.inner, self.call.tenant, selection, Detail::Samples, visit)
    }

    /// What a question for merged stacks is answered from.
    fn merge(&self, question: &MergeQuestion, visit: impl FnMut(&Batch)) -> Answer<()> {
        let flame::Selection { profiles, spans, traces, .. } = &question.selection;
        let is_single = !(profiles.is_empty() && spans.is_empty() && traces.is_empty());
        let detail = if is_single { Detail::Samples } else { Detail::Totals };
        self::visit(self.call.inner, self.call.tenant, &question.selection, detail, visit)
    }

    fn stacks<'q>(&self, question: &'q MergeQuestion) -> Answer<MergedStacks<'q>> {
        let mut stacks = MergedStacks::new(question);
        self.merge(question, |batch| stacks.add(batch))?;
        Ok(stacks)
    }

    fn select_series(&self, asked: &SelectSeriesRequest) -> Answer<SelectSeriesResponse> {
        let Some((selection, question)) = self.rules.series(asked)? else {
            return Ok(SelectSeriesResponse::default());
        };
        let mut sums = SeriesSums::new(question);
        self.samples(&selection, |batch| sums.add(batch, selection.samples(batch)))?;
        Ok(SelectSeriesResponse { series: sums.finish().series })
    }

    fn heatmap(&self, asked: &SelectHeatmapRequest) -> Answer<SelectHeatmapResponse> {
        let Some((selection, question)) = self.rules.heatmap(asked)? else {
            return Ok(SelectHeatmapResponse::default());
        };
        let mut sums = flame::HeatmapSums::new(question);
        self.samples(&selection, |batch| sums.add(batch, selection.samples(batch)))?;
        Ok(SelectHeatmapResponse { series: sums.finish().series })
    }

    /// What a question would read: all blocks of its time, and how many series are its.
    fn analyze(&self, asked: &AnalyzeQueryRequest) -> Answer<AnalyzeQueryResponse> {
        let Some(time) = self.rules.range(asked.start, asked.end)? else {
            return Ok(AnalyzeQueryResponse::default());
        };
        // With a profile type before the braces, or matchers alone.
        let selectors = match self.rules.render(&asked.query, (asked.start, asked.end), None) {
            Ok(Some(question)) => vec![question.selection.selector],
            _ => self.rules.selectors(std::slice::from_ref(&asked.query))?,
        };
        let is_meant = |series: &&Series| selectors.iter().all(|it| it.matches(series));
        let found = self.call.inner.lake.series(self.call.tenant, times(time));
        let found = found.map_err(|error| of_store(&error))?;
        let series = found.iter().filter(is_meant).count() as u64;
        let (begin, end) = times(time);
        let blocks = self.call.inner.lake.blocks();
        let of_time = blocks.iter().filter(|block| {
            block.tenant == *self.call.tenant && block.begin <= end && block.end >= begin
        });
        let mut scopes = ["Short term storage", "Long term storage"].map(|name| QueryScope {
            component_type: name.to_owned(),
            component_count: 1,
            ..QueryScope::default()
        });
        for block in of_time {
            let [fresh, merged] = &mut scopes;
            let scope = if block.level == 0 { fresh } else { merged };
            scope.block_count += 1;
            scope.profile_bytes += block.bytes;
        }
        let bytes = scopes.iter().map(|scope| scope.profile_bytes).sum();
        let mut query_scopes: Vec<QueryScope> =
            scopes.into_iter().filter(|scope| scope.block_count > 0).collect();
        // A block does not say without being read which series it has, so the last scope has those of all.
        if let Some(last) = query_scopes.last_mut() {
            last.series_count = series;
        }
        let impact = QueryImpact {
            total_bytes_in_time_range: bytes,
            total_queried_series: series,
            deduplication_needed: false,
        };
        Ok(AnalyzeQueryResponse { query_scopes, query_impact: Some(impact) })
    }

    fn diff(&self, asked: &DiffRequest) -> Answer<DiffResponse> {
        let side = |side: &Option<SelectMergeStacktracesRequest>| -> Answer<(CallTree, usize)> {
            let side = side.as_ref().ok_or_else(|| connect::Error::invalid("a side is missing"))?;
            match self.rules.stacktraces(side)? {
                Some(question) => {
                    let mut calls = MergedCalls::new(&question);
                    self.merge(&question, |batch| calls.add(batch))?;
                    Ok((calls.finish(), question.max_nodes))
                }
                None => Ok((CallTree::new(), 0)),
            }
        };
        let ((left, left_most), (right, right_most)) = (side(&asked.left)?, side(&asked.right)?);
        let graph = CallTree::diff(&left, &right, left_most.max(right_most));
        Ok(DiffResponse { flamegraph: Some(graph) })
    }
}

/// Shows what lies there of a selection, batch by batch; sums of rows where nothing asks for single samples.
pub(super) fn visit(
    inner: &Inner,
    tenant: &Tenant,
    selection: &flame::Selection,
    detail: Detail,
    visit: impl FnMut(&Batch),
) -> Answer<()> {
    let wanted = Selection {
        profile_type: None,
        series: &|series| selection.selector.matches(series),
        times: times(selection.time),
        detail,
    };
    inner.lake.visit(tenant, &wanted, visit).map_err(|error| of_store(&error))
}

pub(super) fn millis(at: Timestamp) -> i64 {
    at.nanos().div_euclid(NANOS_PER_MILLI)
}

/// From the begin of the first millisecond to the end of the last.
pub(super) fn times(time: Millis) -> (Timestamp, Timestamp) {
    let begin = time.start.saturating_mul(NANOS_PER_MILLI);
    let end = time.end.saturating_mul(NANOS_PER_MILLI).saturating_add(NANOS_PER_MILLI - 1);
    (Timestamp::from_nanos(begin), Timestamp::from_nanos(end))
}
