//! `querier.v1.QuerierService`: what Grafana and other clients of Pyroscope ask.

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use flame::{CallTree, LabelSet, MergeQuestion, Millis, Rules, SeriesSums};
use model::Timestamp;
use model::samples::{Batch, Series};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use store::block::{Detail, Selection};
use store::lake::name::Tenant;
use wire::pyroscope::{self as connect, Code, Encoding};
use wire::pyroscope::{
    DiffRequest, DiffResponse, GetProfileStatsRequest, LabelNamesRequest, LabelValuesRequest,
    ProfileTypesRequest, SelectHeatmapRequest, SelectHeatmapResponse,
    SelectMergeStacktracesRequest, SelectSeriesRequest, SelectSeriesResponse, SeriesRequest,
};

use super::{Failed, Inner, MAX_QUESTION_BYTES, Profiles, encoding, is_gzip, of_store};

const NANOS_PER_MILLI: i64 = 1_000_000;

/// Any of its methods.
pub(super) async fn answer(
    State(profiles): State<Profiles>,
    Path(method): Path<String>,
    request: Request,
) -> Response {
    let done = profiles.work(request, MAX_QUESTION_BYTES, move |inner, tenant, headers, body| {
        let encoding = encoding(&headers)?;
        let body = match is_gzip(&headers)? {
            true => wire::proto::ungzip(body, MAX_QUESTION_BYTES)
                .map_err(|error| connect::Error::invalid(error.to_string()))?,
            false => body.into(),
        };
        let rules = Rules { limits: flame::Limits::default(), now_ms: millis((inner.clock)()) };
        let asked = Asked { inner, tenant, rules, set: label_set(&headers), body: &body, encoding };
        Ok((asked.answer(&method)?, encoding))
    });
    match done.await {
        Ok((body, encoding)) => {
            ([(header::CONTENT_TYPE, encoding.content_type())], body).into_response()
        }
        Err(error) => Failed(error).into_response(),
    }
}

/// Names that are not of letters, digits and underscores are for those who say that they take them.
fn label_set(headers: &HeaderMap) -> LabelSet {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let takes_all = |accept: &str| accept.contains("allow-utf8-labelnames=true");
    if accepts.into_iter().any(takes_all) { LabelSet::Utf8 } else { LabelSet::Plain }
}

/// A question, and who asks.
struct Asked<'a> {
    inner: &'a Inner,
    tenant: Tenant,
    rules: Rules,
    set: LabelSet,
    body: &'a [u8],
    encoding: Encoding,
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
                let blocks = self.inner.lake.blocks();
                let own = || blocks.iter().filter(|block| block.tenant == self.tenant);
                let times = own().map(|block| block.begin).min();
                let times = times.zip(own().map(|block| block.end).max());
                Ok(flame::profile_stats(times))
            }),
            "SelectMergeStacktraces" => self.of(|asked| {
                self.answered(self.rules.stacktraces(&asked)?, |it, all| {
                    flame::stacktraces(it, all)
                })
            }),
            "SelectMergeSpanProfile" => self.of(|asked| {
                self.answered(self.rules.span_profile(&asked)?, |it, all| {
                    flame::span_profile(it, all)
                })
            }),
            "SelectMergeProfile" => self.of(|asked| {
                self.answered(self.rules.profile(&asked)?, |it, all| flame::profile(it, all))
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
        let question = connect::decode(self.body, self.encoding)?;
        Ok(connect::encode(&answer(question)?, self.encoding))
    }

    fn series(&self, (start, end): (i64, i64)) -> Answer<Vec<Series>> {
        let Some(time) = self.rules.range_of_labels(start, end)? else { return Ok(Vec::new()) };
        let found = self.inner.lake.series(&self.tenant, times(time));
        found.map(|found| found.into_iter().collect()).map_err(|error| of_store(&error))
    }

    /// What lies there of a selection; sums of rows where nothing asks for single samples.
    fn select(&self, selection: &flame::Selection, detail: Detail) -> Answer<Batch> {
        let wanted = Selection {
            profile_type: None,
            series: &|series| selection.selector.matches(series),
            times: times(selection.time),
            detail,
        };
        self.inner.lake.select(&self.tenant, &wanted).map_err(|error| of_store(&error))
    }

    /// What a question for merged stacks is answered from.
    fn merged(&self, question: &MergeQuestion) -> Answer<Batch> {
        let flame::Selection { profiles, spans, traces, .. } = &question.selection;
        let is_single = !(profiles.is_empty() && spans.is_empty() && traces.is_empty());
        let detail = if is_single { Detail::Samples } else { Detail::Totals };
        self.select(&question.selection, detail)
    }

    /// The answer to a question for merged stacks; the empty one when there is nothing to ask.
    fn answered<A: Default>(
        &self,
        question: Option<MergeQuestion>,
        answer: impl FnOnce(&MergeQuestion, Option<&Batch>) -> A,
    ) -> Answer<A> {
        let Some(question) = question else { return Ok(A::default()) };
        Ok(answer(&question, Some(&self.merged(&question)?)))
    }

    fn select_series(&self, asked: &SelectSeriesRequest) -> Answer<SelectSeriesResponse> {
        let Some((selection, question)) = self.rules.series(asked)? else {
            return Ok(SelectSeriesResponse::default());
        };
        let batch = self.select(&selection, Detail::Samples)?;
        let mut sums = SeriesSums::new(question);
        sums.add(&batch, selection.samples(&batch));
        Ok(SelectSeriesResponse { series: sums.finish().series })
    }

    fn heatmap(&self, asked: &SelectHeatmapRequest) -> Answer<SelectHeatmapResponse> {
        let Some((selection, question)) = self.rules.heatmap(asked)? else {
            return Ok(SelectHeatmapResponse::default());
        };
        let batch = self.select(&selection, Detail::Samples)?;
        let mut sums = flame::HeatmapSums::new(question);
        sums.add(&batch, selection.samples(&batch));
        Ok(SelectHeatmapResponse { series: sums.finish().series })
    }

    fn diff(&self, asked: &DiffRequest) -> Answer<DiffResponse> {
        let side = |side: &Option<SelectMergeStacktracesRequest>| -> Answer<(CallTree, usize)> {
            let side = side.as_ref().ok_or_else(|| connect::Error::invalid("a side is missing"))?;
            match self.rules.stacktraces(side)? {
                Some(question) => {
                    Ok((flame::calls(&question, [&self.merged(&question)?]), question.max_nodes))
                }
                None => Ok((CallTree::new(), 0)),
            }
        };
        let ((left, left_most), (right, right_most)) = (side(&asked.left)?, side(&asked.right)?);
        let graph = CallTree::diff(&left, &right, left_most.max(right_most));
        Ok(DiffResponse { flamegraph: Some(graph) })
    }
}

fn millis(at: Timestamp) -> i64 {
    at.nanos().div_euclid(NANOS_PER_MILLI)
}

/// From the begin of the first millisecond to the end of the last.
fn times(time: Millis) -> (Timestamp, Timestamp) {
    let begin = time.start.saturating_mul(NANOS_PER_MILLI);
    let end = time.end.saturating_mul(NANOS_PER_MILLI).saturating_add(NANOS_PER_MILLI - 1);
    (Timestamp::from_nanos(begin), Timestamp::from_nanos(end))
}
