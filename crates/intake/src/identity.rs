//! Name and labels of a profile: what Pyroscope makes of the labels that clients send.

use model::samples::{Labels, ProfileType};

use crate::error::Error;
use crate::limits::Limits;

/// The label that names a profile.
pub(crate) const NAME: &str = "__name__";
/// The label that says whose profile it is.
pub(crate) const SERVICE: &str = "service_name";
/// The service of profiles that do not say theirs.
pub(crate) const UNKNOWN_SERVICE: &str = "unknown_service";

/// Labels that say again what the type says, or how a server is to keep the profile. One of a run of a process would make
/// series of each run.
const NOT_KEPT: [&str; 9] = [
    NAME,
    "__profile_type__",
    "__type__",
    "__unit__",
    "__period_type__",
    "__period_unit__",
    "__service_name__",
    "__session_id__",
    "__order__",
];

/// What all series of a profile share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The first part of its types.
    pub(crate) name: String,
    labels: Vec<(String, String)>,
}

impl Identity {
    /// Of the labels that were sent; of two with one name the first counts. Rules as Pyroscope has them by default:
    /// the name loses the prefix `godeltaprof_`; `wall` is `process_cpu` where the sender said type `cpu`.
    pub(crate) fn of(mut labels: Vec<(String, String)>) -> Result<Self, Error> {
        let find = |wanted: &str| {
            let found = labels.iter().find(|(name, value)| name == wanted && !value.is_empty());
            found.map(|(_, value)| value.clone())
        };
        let mut name = find(NAME).unwrap_or_default();
        let is_cpu = find("__type__").as_deref() == Some("cpu");
        let has_service = find(SERVICE).is_some();
        labels.retain(|(name, _)| !NOT_KEPT.contains(&name.as_str()));
        if let Some(rest) = name.strip_prefix("godeltaprof_") {
            name = rest.to_owned();
        }
        if name == "wall" && is_cpu {
            labels.push(("__name_replaced__".to_owned(), name));
            name = "process_cpu".to_owned();
        }
        if !has_service {
            labels.push((SERVICE.to_owned(), UNKNOWN_SERVICE.to_owned()));
        }
        part("profile name", &name)?;
        Ok(Self { name, labels })
    }

    /// Labels of a series, with those of samples.
    pub(crate) fn labels<'s>(
        &'s self,
        more: impl IntoIterator<Item = (&'s str, &'s str)>,
        limits: &Limits,
    ) -> Result<Labels, Error> {
        let own = self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let more = more.into_iter().filter(|(name, _)| !NOT_KEPT.contains(name));
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for (name, value) in own.chain(more) {
            let (found, limit) = (name.len(), limits.label_name_bytes);
            if found > limit {
                let begin = name.get(..name.floor_char_boundary(64)).unwrap_or_default().to_owned();
                return Err(Error::LabelName { found, limit, begin });
            }
            let (found, limit) = (value.len(), limits.label_value_bytes);
            if found > limit {
                return Err(Error::LabelValue { name: name.to_owned(), found, limit });
            }
            pairs.push((name, value));
        }
        let labels = Labels::new(pairs);
        let (found, limit) = (labels.len() + 1, limits.label_names);
        if found > limit {
            let names: Vec<&str> = labels.iter().take(8).map(|(name, _)| name).collect();
            return Err(Error::Labels { found, limit, names: format!("{}…", names.join(", ")) });
        }
        Ok(labels)
    }

    /// The type of a profile of this name.
    pub(crate) fn kind(
        &self,
        (sample_type, sample_unit): (&str, &str),
        (period_type, period_unit): (&str, &str),
    ) -> Result<ProfileType, Error> {
        part("sample type", sample_type)?;
        if sample_type.contains('-') {
            let (part, text) = ("sample type", sample_type.to_owned());
            return Err(Error::Type { part, text, why: "has a minus in it" });
        }
        part("sample unit", sample_unit)?;
        colons("period type", period_type)?;
        colons("period unit", period_unit)?;
        Ok(ProfileType {
            name: self.name.clone(),
            sample_type: sample_type.to_owned(),
            sample_unit: sample_unit.to_owned(),
            period_type: period_type.to_owned(),
            period_unit: period_unit.to_owned(),
        })
    }

    /// All of it.
    pub(crate) fn text(&self) -> String {
        format!("{:?}{:?}", self.name, self.labels)
    }

    /// Name and service, for errors.
    pub(crate) fn shown(&self) -> String {
        let service = self.labels.iter().find(|(name, _)| name == SERVICE);
        let service = service.map_or(UNKNOWN_SERVICE, |(_, value)| value);
        let short = |text: &str| text.chars().take(128).collect::<String>();
        format!("{}{{{SERVICE}={:?}}}", short(&self.name), short(service))
    }
}

/// A part of a type that must say something.
fn part(part: &'static str, text: &str) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::Type { part, text: String::new(), why: "says nothing" });
    }
    colons(part, text)
}

/// Parts of a type are told apart by colons.
fn colons(part: &'static str, text: &str) -> Result<(), Error> {
    const MOST: usize = 256;
    let why = match text {
        _ if text.contains(':') => "has a colon in it",
        _ if text.len() > MOST => "has more than 256 bytes",
        _ => return Ok(()),
    };
    let text = text.get(..text.floor_char_boundary(MOST)).unwrap_or_default().to_owned();
    Err(Error::Type { part, text, why })
}
