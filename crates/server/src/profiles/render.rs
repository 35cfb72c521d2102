//! `GET /pyroscope/render` and `/pyroscope/render-diff`: a flame graph with its time line, for clients that are older than the querier and
//! for Grafana's profiles application.
//!
//! Times are milliseconds, seconds and all else that `/ingest` takes; `from` is an hour ago if it is not said, and `until` is now.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use flame::{Aggregation, CallTree, MergeQuestion, MergedCalls, Rules, SeriesQuestion, SeriesSums};
use serde::Deserialize;
use store::block::Detail;
use store::lake::name::Tenant;
use wire::pyroscope::{self as connect, Point, Render};

use super::querier::{millis, visit};
use super::{Failed, Inner, Kind, Profiles};

const HOUR_MS: i64 = 3_600_000;

/// What stands behind the question mark. Other parameters are passed over.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Asked {
    query: String,
    from: Option<String>,
    until: Option<String>,
    #[serde(alias = "max-nodes")]
    max_nodes: Option<i64>,
    #[serde(default)]
    format: Form,
    /// A label.
    #[serde(default)]
    group_by: String,
    #[serde(default)]
    aggregation: Gather,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Form {
    #[default]
    Json,
    Dot,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Gather {
    #[default]
    Sum,
    Avg,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AskedDiff {
    left_query: String,
    left_from: Option<String>,
    left_until: Option<String>,
    right_query: String,
    right_from: Option<String>,
    right_until: Option<String>,
    #[serde(alias = "max-nodes")]
    max_nodes: Option<i64>,
}

type Asks<T> = Result<Query<T>, QueryRejection>;

/// What is given.
enum Given {
    Json(Box<Render>),
    Dot(String),
}

/// `/pyroscope/render`.
pub(super) async fn render(
    State(profiles): State<Profiles>,
    asked: Asks<Asked>,
    request: Request,
) -> Response {
    answer(&profiles, asked, request, |asked, inner, tenant| {
        let rules = rules(inner);
        let time = (asked.from.as_deref(), asked.until.as_deref());
        let question = question(&rules, &asked.query, time, asked.max_nodes)?;
        let steps = flame::timeline_steps(question.selection.time);
        let aggregation = match asked.aggregation {
            Gather::Sum => Aggregation::Sum,
            Gather::Avg => Aggregation::Average,
        };
        let series = |group_by: Vec<String>| {
            let exemplars = None;
            SeriesSums::new(SeriesQuestion { steps, group_by, aggregation, exemplars, limit: None })
        };
        let label = Some(&asked.group_by).filter(|label| !label.is_empty());
        let mut calls = MergedCalls::new(&question);
        let mut all = series(Vec::new());
        let mut groups = label.map(|label| series(vec![label.clone()]));
        let is_dot = asked.format == Form::Dot;
        let detail = if is_dot { Detail::Totals } else { Detail::Samples };
        visit(inner, tenant, &question.selection, detail, |batch| {
            calls.add(batch);
            if !is_dot {
                let samples = || question.selection.samples(batch);
                all.add(batch, samples());
                groups.iter_mut().for_each(|groups| groups.add(batch, samples()));
            }
        })?;
        let tree = calls.finish();
        if is_dot {
            return Ok(Given::Dot(tree.dot(question.max_nodes)));
        }
        let line = |points: &[Point]| flame::timeline(points, steps);
        let all = points(all).into_iter().next().map(|(_, points)| points);
        let groups = groups.map(points).unwrap_or_default();
        let groups = groups.into_iter().map(|(value, points)| (value, line(&points)));
        let graph = tree.flame_graph(question.max_nodes);
        let line_of_all = line(&all.unwrap_or_default());
        let render = flame::render(graph, &question.profile_type, line_of_all, groups);
        Ok(Given::Json(Box::new(render)))
    })
    .await
}

/// `/pyroscope/render-diff`.
pub(super) async fn render_diff(
    State(profiles): State<Profiles>,
    asked: Asks<AskedDiff>,
    request: Request,
) -> Response {
    answer(&profiles, asked, request, |asked, inner, tenant| {
        let rules = rules(inner);
        let side = |query: &str, from: &Option<String>, until: &Option<String>| {
            question(&rules, query, (from.as_deref(), until.as_deref()), asked.max_nodes)
        };
        let left = side(&asked.left_query, &asked.left_from, &asked.left_until)?;
        let right = side(&asked.right_query, &asked.right_from, &asked.right_until)?;
        if left.profile_type != right.profile_type {
            let (left, right) = (left.profile_type, right.profile_type);
            let words = format!("{left} and {right} cannot be compared");
            return Err(connect::Error::invalid(words));
        }
        let tree = |question: &MergeQuestion| {
            let mut calls = MergedCalls::new(question);
            visit(inner, tenant, &question.selection, Detail::Totals, |batch| calls.add(batch))?;
            Ok::<_, connect::Error>(calls.finish())
        };
        let graph = CallTree::diff(&tree(&left)?, &tree(&right)?, left.max_nodes);
        Ok(Given::Json(Box::new(flame::render_diff(graph, &left.profile_type))))
    })
    .await
}

async fn answer<Q: Send + 'static>(
    profiles: &Profiles,
    asked: Asks<Q>,
    request: Request,
    answer: impl FnOnce(&Q, &Inner, &Tenant) -> Result<Given, connect::Error> + Send + 'static,
) -> Response {
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(wrong) => return Failed(connect::Error::invalid(wrong.body_text())).into_response(),
    };
    let work = move |inner: &Inner, tenant: &Tenant, _: &_, _: &[u8]| answer(&asked, inner, tenant);
    match profiles.work(Kind::Question, request, work).await {
        Ok(Given::Json(render)) => Json(render).into_response(),
        Ok(Given::Dot(text)) => ([(header::CONTENT_TYPE, "text/plain")], text).into_response(),
        Err(error) => Failed(error).into_response(),
    }
}

pub(super) fn rules(inner: &Inner) -> Rules {
    Rules { limits: flame::Limits::default(), now_ms: millis((inner.clock)()) }
}

/// What is asked, which is about some time.
fn question(
    rules: &Rules,
    query: &str,
    (from, until): (Option<&str>, Option<&str>),
    max_nodes: Option<i64>,
) -> Result<MergeQuestion, connect::Error> {
    let now = model::Timestamp::from_nanos(rules.now_ms.saturating_mul(1_000_000));
    let time = |text: Option<&str>, otherwise: i64| match text {
        None | Some("") => Ok(otherwise),
        Some(text) => intake::time(text, now)
            .map(millis)
            .ok_or_else(|| connect::Error::invalid(format!("{text:?} is no time"))),
    };
    let (from, until) = (time(from, rules.now_ms - HOUR_MS)?, time(until, rules.now_ms)?);
    let question = rules.render(query, (from, until), max_nodes)?;
    question.ok_or_else(|| {
        let words = format!("from {from} to {until} there is no time that is looked at");
        connect::Error::invalid(words)
    })
}

/// Points by the value of the label that is grouped by, which is empty where there is none.
fn points(sums: SeriesSums) -> Vec<(String, Vec<Point>)> {
    let value = |series: &connect::Series| series.labels.first().map(|label| label.value.clone());
    let series = sums.finish().series.into_iter();
    series.map(|series| (value(&series).unwrap_or_default(), series.points)).collect()
}
