//! `settings.v1`: rules for exported metrics, and what pages keep; and what a rule would make.
//!
//! | path | reply |
//! |---|---|
//! | `POST /settings.v1.RecordingRulesService/METHOD` | `ListRecordingRules`, `GetRecordingRule`, `UpsertRecordingRule`, `DeleteRecordingRule` |
//! | `POST /settings.v1.SettingsService/METHOD` | `Get`, `Set`, `Delete` |
//! | `POST /api/rules/preview` | of `{"rule": …, "start": ms, "end": ms}` with the rule as it would be upserted: what it would make of these samples |
//!
//! Rules and settings are in the catalogue of the blocks, so that a rule holds from a cell on.

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use flame::Millis;
use model::Timestamp;
use prost::Message;
use rules::{Book, BookLimits, Preview, Settings};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use store::block::{Detail, Selection};
use store::catalogue::{self, Catalogue};
use store::lake::name::Tenant;
use wire::pyroscope::{
    self as connect, Code, DeleteSettingsRequest, DeleteSettingsResponse, Encoding,
    GetSettingsRequest, ListRecordingRulesRequest, SetSettingsRequest, SetSettingsResponse,
};

use super::call::{Call, call};
use super::querier::{millis, times};
use super::{AGAIN_AFTER, Failed, Inner, Kind, Profiles, of_store};

/// How often a change is made anew because somebody else made one meanwhile.
const TRIES: usize = 8;

const HOUR_MS: i64 = 3_600_000;

type Answer<T> = Result<T, connect::Error>;

/// Any method of the service of rules.
pub(super) async fn rules(
    State(profiles): State<Profiles>,
    Path(method): Path<String>,
    request: Request,
) -> Response {
    let answer = move |it: &Call<'_>| Ok(Asked(it).rules(&method)?.into());
    call(&profiles, Kind::Question, request, answer).await
}

/// Any method of the service of settings.
pub(super) async fn settings(
    State(profiles): State<Profiles>,
    Path(method): Path<String>,
    request: Request,
) -> Response {
    let answer = move |it: &Call<'_>| Ok(Asked(it).settings(&method)?.into());
    call(&profiles, Kind::Question, request, answer).await
}

/// What a rule would make.
pub(super) async fn preview(State(profiles): State<Profiles>, request: Request) -> Response {
    let work = profiles.work(Kind::Question, request, |inner, tenant, _headers, body| {
        previewed(inner, tenant, body)
    });
    match work.await {
        Ok(preview) => Json(preview).into_response(),
        Err(error) => Failed(error).into_response(),
    }
}

/// The body of a preview's request; times are milliseconds, and the last hour when they are not said.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedPreview {
    rule: serde_json::Value,
    start: Option<i64>,
    end: Option<i64>,
}

fn previewed(inner: &Inner, tenant: &Tenant, body: &[u8]) -> Answer<Preview> {
    let asked: AskedPreview = serde_json::from_slice(body).map_err(|error| {
        connect::Error::invalid(format!("the body is no such request: {error}"))
    })?;
    let rule = connect::decode(asked.rule.to_string().as_bytes(), Encoding::Json)?;
    let rule = rules::rule_of(rule)?;
    let now_ms = millis((inner.clock)());
    let range = flame::Rules { limits: flame::Limits::default(), now_ms };
    let end = asked.end.unwrap_or(now_ms);
    let time = range.range(asked.start.unwrap_or(end.saturating_sub(HOUR_MS)), end)?;
    // A range without samples.
    let time = time.unwrap_or(Millis { start: 1, end: 0 });
    let wanted = Selection {
        profile_type: Some(rule.profile_type()),
        series: &|series| rule.takes(series),
        times: times(time),
        detail: Detail::Totals,
    };
    let batch = inner.lake.select(tenant, &wanted).map_err(|error| of_store(&error))?;
    Ok(rules::preview(&rule, &inner.prefix(), &batch))
}

/// A request, and what it is about.
struct Asked<'a>(&'a Call<'a>);

impl Asked<'_> {
    fn rules(&self, method: &str) -> Answer<Vec<u8>> {
        let limits = &BookLimits::default();
        match method {
            "ListRecordingRules" => {
                self.of(|_: ListRecordingRulesRequest| Ok(rules::list_rules(&self.book()?)))
            }
            "GetRecordingRule" => self.of(|asked| rules::get_rule(&self.book()?, &asked)),
            "UpsertRecordingRule" => self.of(|asked: connect::UpsertRecordingRuleRequest| {
                self.change(|book, from_ms| rules::upsert_rule(book, asked, from_ms, limits))
            }),
            "DeleteRecordingRule" => self
                .of(|asked| self.change(|book, from_ms| rules::delete_rule(book, &asked, from_ms))),
            _ => Err(connect::Error::new(Code::Unimplemented, format!("there is no {method}"))),
        }
    }

    fn settings(&self, method: &str) -> Answer<Vec<u8>> {
        match method {
            "Get" => self.of(|_: GetSettingsRequest| Ok(self.all()?.get())),
            "Set" => self.of(|asked: SetSettingsRequest| {
                let now_ms = millis(self.now());
                let set = |all: &mut Settings| all.set(asked.setting.clone(), now_ms);
                Ok(SetSettingsResponse { setting: Some(self.change_settings(set)?) })
            }),
            "Delete" => self.of(|asked: DeleteSettingsRequest| {
                self.change_settings(|all| Ok(all.delete(&asked.name)))?;
                Ok(DeleteSettingsResponse {})
            }),
            _ => Err(connect::Error::new(Code::Unimplemented, format!("there is no {method}"))),
        }
    }

    /// The answer to a request of a kind.
    fn of<Q, A>(&self, answer: impl FnOnce(Q) -> Answer<A>) -> Answer<Vec<u8>>
    where
        Q: Message + Default + DeserializeOwned,
        A: Message + Serialize,
    {
        let asked = connect::decode(self.0.message, self.0.encoding)?;
        Ok(connect::encode(&answer(asked)?, self.0.encoding))
    }

    fn now(&self) -> Timestamp {
        (self.0.inner.clock)()
    }

    fn catalogue(&self) -> &Catalogue {
        self.0.inner.lake.catalogue()
    }

    fn book(&self) -> Answer<Book> {
        self.catalogue().rules(self.0.tenant).map_err(|error| unkept(&error))
    }

    fn all(&self) -> Answer<Settings> {
        self.catalogue().settings(self.0.tenant).map_err(|error| unkept(&error))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Book, i64) -> Answer<T>) -> Answer<T> {
        let lake = &self.0.inner.lake;
        let changed = lake.change_rules(self.0.tenant, self.now(), change);
        changed.map_err(|error| unkept(&error))?
    }

    fn change_settings<T>(&self, change: impl Fn(&mut Settings) -> Answer<T>) -> Answer<T> {
        tried(|| {
            let mut all = self.all()?;
            let expected = all.generation();
            let answer = change(&mut all)?;
            Ok((self.catalogue().put_settings(self.0.tenant, &all, expected), answer))
        })
    }
}

/// Does it until nobody comes between reading and writing.
fn tried<T>(change: impl Fn() -> Answer<(catalogue::Result<()>, T)>) -> Answer<T> {
    for _ in 0..TRIES {
        match change()? {
            (Ok(()), answer) => return Ok(answer),
            (Err(catalogue::Error::Generation { .. }), _) => {}
            (Err(error), _) => return Err(unkept(&error)),
        }
    }
    let words = "others change it all the time; try again";
    Err(connect::Error::new(Code::Aborted, words).again_after(AGAIN_AFTER))
}

fn unkept(error: &catalogue::Error) -> connect::Error {
    connect::Error::new(Code::Unavailable, model::with_causes(error)).again_after(AGAIN_AFTER)
}
