//! What a page asks to follow.

use std::time::Duration;

use serde::Deserialize;

/// What is to be followed, from when on, and which events of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailRequest {
    /// The host that records the session.
    pub host: String,
    /// The session's name.
    pub session: String,
    /// Where to begin.
    pub begin: Begin,
    /// Patterns of event names, with `*` and `?`; none: all.
    pub names: Vec<String>,
    /// A condition on names and fields, as `throughline read --grep` takes it; empty: none.
    pub condition: String,
}

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// With what is recorded from now on.
    Now,
    /// With what was recorded so long ago.
    Ago(Duration),
    /// With the oldest that is kept.
    Beginning,
}

/// The most patterns of names.
const MAX_NAMES: usize = 64;
/// The longest condition, in bytes.
const MAX_CONDITION_BYTES: usize = 4096;

/// The query of `/api/v1/live/tail`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    host: String,
    session: String,
    #[serde(default)]
    begin: String,
    #[serde(default)]
    names: String,
    #[serde(default, rename = "where")]
    condition: String,
}

/// A query that asks for nothing that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadQuery {
    #[error("begin is now, beginning, or a number of seconds ago")]
    Begin,
    #[error("more than {MAX_NAMES} event names")]
    Names,
    #[error("the condition has more than {MAX_CONDITION_BYTES} bytes")]
    Condition,
}

impl TryFrom<Query> for TailRequest {
    type Error = BadQuery;

    /// Names are separated by spaces or commas.
    fn try_from(query: Query) -> Result<Self, BadQuery> {
        let begin = match query.begin.as_str() {
            "" | "now" => Begin::Now,
            "beginning" => Begin::Beginning,
            seconds => {
                Begin::Ago(Duration::from_secs(seconds.parse().map_err(|_no| BadQuery::Begin)?))
            }
        };
        let names = query.names.split([' ', ',']).filter(|name| !name.is_empty());
        let names: Vec<String> = names.map(str::to_owned).collect();
        if names.len() > MAX_NAMES {
            return Err(BadQuery::Names);
        }
        let condition = query.condition.trim().to_owned();
        if condition.len() > MAX_CONDITION_BYTES {
            return Err(BadQuery::Condition);
        }
        Ok(Self { host: query.host, session: query.session, begin, names, condition })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(begin: &str, names: &str, condition: &str) -> Result<TailRequest, BadQuery> {
        let [begin, names, condition] = [begin, names, condition].map(str::to_owned);
        let (host, session) = ("h".to_owned(), "s".to_owned());
        TailRequest::try_from(Query { host, session, begin, names, condition })
    }

    #[test]
    fn a_begin_is_a_word_or_seconds() {
        let begin = |text| asked(text, "", "").map(|asked| asked.begin);
        assert_eq!(begin(""), Ok(Begin::Now));
        assert_eq!(begin("now"), Ok(Begin::Now));
        assert_eq!(begin("beginning"), Ok(Begin::Beginning));
        assert_eq!(begin("300"), Ok(Begin::Ago(Duration::from_secs(300))));
        assert_eq!(begin("-5m"), Err(BadQuery::Begin));
    }

    #[test]
    fn names_are_separated_by_spaces_and_commas_and_bounded() {
        let names = |text: &str| asked("", text, "").map(|asked| asked.names);
        assert_eq!(names(" a:* , b "), Ok(vec!["a:*".to_owned(), "b".to_owned()]));
        assert_eq!(names(&"x ".repeat(MAX_NAMES)).map(|names| names.len()), Ok(MAX_NAMES));
        assert_eq!(names(&"x ".repeat(MAX_NAMES + 1)), Err(BadQuery::Names));
        let condition = "x".repeat(MAX_CONDITION_BYTES + 1);
        assert_eq!(asked("", "", &condition), Err(BadQuery::Condition));
    }
}
