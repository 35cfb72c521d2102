//! What the address of a request to `/ingest` says.
//!
//! `units` and `aggregationType` are passed over: the type of a profile says both.

use model::Timestamp;
use percent_encoding::percent_decode_str;

use super::time;
use crate::error::Error;
use crate::id::digest;

/// The parameters of a request, as far as profiles depend on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The application, its last part perhaps a type.
    pub app: String,
    /// Labels behind it; none twice.
    pub labels: Vec<(String, String)>,
    /// When the profile begins; its arrival if not said.
    pub from: Timestamp,
    /// When it ends; its arrival if not said.
    pub until: Timestamp,
    /// Samples per second; 0 where values are no samples of time.
    pub sample_rate: u32,
    /// Who made it.
    pub spy: String,
    /// How it is written; empty if not said.
    pub format: String,
    /// Name, begin and end as they stand there.
    said: [String; 3],
}

impl Query {
    /// Of what stands behind the question mark. Of a parameter that stands there twice the first counts.
    ///
    /// # Errors
    ///
    /// [`Error::Query`], with the parameter.
    pub fn parse(query: &str, received: Timestamp) -> Result<Self, Error> {
        let mut said: [Option<String>; 6] = Default::default();
        const KEYS: [&str; 6] = ["name", "from", "until", "sampleRate", "spyName", "format"];
        for pair in query.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let slot = KEYS.iter().zip(&mut said).find(|(known, _)| **known == key);
            let Some((parameter, slot)) = slot else { continue };
            if slot.is_none() {
                let value = value.replace('+', " ");
                let decoded = percent_decode_str(&value).decode_utf8();
                let text = decoded.map_err(|_not_utf8| wrong(parameter, &value, "is not UTF-8"))?;
                *slot = Some(text.into_owned());
            }
        }
        let [name, from, until, rate, spy, format] = said.map(Option::unwrap_or_default);
        let (app, labels) = application(&name)?;
        let time_of = |parameter, text: &str| match text.trim() {
            "" => Ok(received),
            text => time::parse(text, received).ok_or_else(|| wrong(parameter, text, "is no time")),
        };
        const DEFAULT_RATE: u32 = 100;
        const MOST: u32 = 1_000_000_000;
        let sample_rate = rate.parse().unwrap_or(DEFAULT_RATE);
        if sample_rate > MOST {
            return Err(wrong("sampleRate", &rate, "is more than once in a nanosecond"));
        }
        Ok(Self {
            from: time_of("from", &from)?,
            until: time_of("until", &until)?,
            app,
            labels,
            sample_rate,
            spy: if spy.is_empty() { "unknown".to_owned() } else { spy },
            format,
            said: [name, from, until],
        })
    }

    /// What a profile without an id is called: the first 16 bytes of the SHA-256 of name, begin and end as the request says them and of
    /// the profile's bytes, unpacked. It is the same when the request is sent again.
    #[must_use]
    pub fn profile_id(&self, bytes: &[u8]) -> u128 {
        let [name, from, until] = &self.said;
        digest([name.as_bytes(), from.as_bytes(), until.as_bytes(), bytes])
    }

    /// Labels of the series of a profile with this name and, if it does not say its own, of this service.
    #[must_use]
    pub fn series(&self, name: &str, service: &str) -> Vec<(String, String)> {
        let mut labels = vec![
            ("__name__".to_owned(), name.to_owned()),
            ("__delta__".to_owned(), "false".to_owned()),
            ("pyroscope_spy".to_owned(), self.spy.clone()),
        ];
        let own = self.labels.iter().filter(|(name, _)| !name.starts_with("__"));
        labels.extend(own.cloned());
        let has_service = labels.iter().any(|(name, _)| name == "service_name");
        let label = if has_service { "app_name" } else { "service_name" };
        if labels.iter().all(|(name, _)| name != label) {
            labels.push((label.to_owned(), service.to_owned()));
        }
        labels
    }
}

fn wrong(parameter: &'static str, value: &str, why: &'static str) -> Error {
    let value = value.get(..value.floor_char_boundary(128)).unwrap_or_default().to_owned();
    Error::Query { parameter, value, why }
}

/// `app{label=value,label=value}`; the braces may be left out.
fn application(name: &str) -> Result<(String, Vec<(String, String)>), Error> {
    /// Labels that are read; a series may have far fewer.
    const MOST: usize = 1_024;
    let wrong = |why| Err(wrong("name", name, why));
    let (app, labels) = match name.split_once('{') {
        Some((app, rest)) => (app, rest.split_once('}').map_or(rest, |(labels, _)| labels)),
        None => (name, ""),
    };
    let app = app.trim();
    if app.is_empty() {
        return wrong("names no application");
    }
    let of_app = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    if !app.chars().all(of_app) {
        return wrong("has an application of other characters than letters, digits, _ - . and /");
    }
    let mut all: Vec<(String, String)> = Vec::new();
    for pair in labels.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return wrong("has a label without a value");
        };
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || !key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.')) {
            return wrong("has a label of other characters than letters, digits, _ and .");
        }
        all.retain(|(known, _)| known != key);
        if all.len() == MOST {
            return wrong("has more than 1,024 labels");
        }
        all.push((key.to_owned(), value.to_owned()));
    }
    Ok((app.to_owned(), all))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_nanos(1_800_000_000_000_000_000);

    #[test]
    fn a_query_says_who_when_and_how() {
        let text = "from=1795191872&name=a.b%7Bx.y%3D1%2F2%2C+z+%3D+%3Dq%2Cx.y%3D3%7D&until=now&spyName=&sampleRate=17&format=pprof&name=c&units=x";
        let query = Query::parse(text, NOW).unwrap();
        assert_eq!(query.app, "a.b");
        let pairs = [("z", "=q"), ("x.y", "3")];
        assert_eq!(query.labels, pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!((query.from.nanos(), query.until), (1_795_191_872_000_000_000, NOW));
        let said = (query.sample_rate, query.spy.as_str(), query.format.as_str());
        assert_eq!(said, (17, "unknown", "pprof"));
    }

    #[test]
    fn what_is_not_said_has_a_default() {
        let query = Query::parse("name=a", NOW).unwrap();
        assert_eq!((query.from, query.until, query.sample_rate), (NOW, NOW, 100));
        let rate = |text: &str| {
            Query::parse(&format!("name=a&sampleRate={text}"), NOW).unwrap().sample_rate
        };
        assert_eq!((rate("-5"), rate("x"), rate("0")), (100, 100, 0));
    }

    #[test]
    fn a_wrong_query_is_refused_with_its_parameter() {
        let check = |text: &str, expected: &str| {
            let error = Query::parse(text, NOW).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        };
        check("", "parameter name: \"\" names no application");
        check("name=%7Ba%3Db%7D", "parameter name: \"{a=b}\" names no application");
        check("name=a%20b", "parameter name: \"a b\" has an application of other");
        check("name=a%7Bb%7D", "parameter name: \"a{b}\" has a label without a value");
        check("name=a%7Bb-c%3D1%7D", "parameter name: \"a{b-c=1}\" has a label of other");
        check("name=a&from=never", "parameter from: \"never\" is no time");
        check("name=a&until=99999999999999", "parameter until: \"99999999999999\" is no time");
        check("name=a&sampleRate=1000000001", "parameter sampleRate: \"1000000001\" is more");
        check("name=%ff", "parameter name: \"%ff\" is not UTF-8");
    }
}
