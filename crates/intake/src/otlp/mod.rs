//! OTLP profiles: requests of OpenTelemetry's profilers and packets of our own agent.
//!
//! **Labels.** Attributes of the resource that are text become labels under their own names, the first of a name. Left out is what differs from one run of a
//! program to the next, so that a series goes on when a process is started anew: numbers (`process.pid`, the time of its start) and what the command line was;
//! and what only says again where the program is (`process.executable.path`, `process.linux.cgroup`), as the agent leaves it out when it pushes pprof.
//! `service_name` is the attribute `service.name` of the sample or of the resource, else `unknown_service:` and the executable's name. Attributes of samples
//! that are text become labels as well, but for those of a thread, a CPU or a stack (`thread.name`, `throughline.stack.status`): they would make a series of each
//! thread. Attributes of scopes are passed over.
//!
//! **Samples.** Each event is a sample at its own time, or at the profile's where it has none. `samples:count:cpu:nanoseconds` becomes
//! `process_cpu:cpu:nanoseconds:cpu:nanoseconds`: each sample stands for one period. Functions inlined at an address are frames of
//! their own. Links are the spans of samples.
//!
//! **Ids.** A profile is called by its `profile_id`; one without, by the digest of the request's bytes and its place.

mod frames;
mod schema;

use hashbrown::HashMap;
use model::Timestamp;
use model::samples::ProfileType;
use profile::keys;
use profile::request::{Attribute, Dictionary, Profile, ResourceProfiles, Sample};

use self::frames::{Stacks, dangling, string};
use crate::draft::{Draft, Place};
use crate::error::Error;
use crate::id::digest;
use crate::identity::{Identity, NAME, SERVICE, UNKNOWN_SERVICE};
use crate::limits::Limits;
use crate::{Accepted, Encoding, Request, Taken, json};

/// Attributes that are no labels: of one run of a program, or of where it is.
const OF_RUN: [&str; 6] = [
    keys::EXECUTABLE_PATH,
    keys::CGROUP,
    keys::SERVICE_NAME,
    "process.command",
    "process.command_line",
    "process.creation.time",
];

/// Attributes of samples that are no labels: of a thread, a CPU or a stack.
const OF_THREAD: [&str; 5] =
    [keys::THREAD_ID, keys::THREAD_NAME, keys::CPU, keys::STATUS, keys::SERVICE_NAME];

/// An `ExportProfilesServiceRequest`, plain or in gzip.
///
/// # Errors
///
/// The body is no such message, too much of one, or has no dictionary: none was taken. Errors of single profiles stand in the answer.
pub fn otlp(
    body: &[u8],
    encoding: Encoding,
    limits: &Limits,
    received: Timestamp,
) -> Result<Taken, Error> {
    let mut request = Request::new(body, limits, received);
    let plain = request.ungzip(body, limits.body_bytes)?;
    let bytes = match encoding {
        Encoding::Protobuf => plain,
        Encoding::Json => json::encode(&plain, &schema::REQUEST, limits)?.into(),
    };
    let most = profile::Limits { bytes: limits.body_bytes, ..profile::Limits::default() };
    let decoded = profile::Request::decode(&bytes, most)?;
    let count: usize = decoded.resources.iter().map(|resource| resource.profiles.len()).sum();
    if count > limits.profiles {
        return Err(Error::TooMany { what: "profiles of a request", limit: limits.profiles });
    }
    if count > 0 && decoded.dictionary.strings.is_empty() {
        return Err(Error::NoDictionary);
    }
    request.taken.lost = decoded.losses();
    let whole = digest([&*bytes]);
    let mut stacks = Stacks::new(&decoded.dictionary);
    let mut place = 0u64;
    for resource in &decoded.resources {
        let labels = labels(&decoded.dictionary, resource, limits);
        for profile in &resource.profiles {
            place += 1;
            let id = profile.profile_id.try_into().map_or(0, u128::from_be_bytes);
            let id = match id {
                0 => digest([&whole.to_be_bytes()[..], &place.to_be_bytes()[..]]),
                id => id,
            };
            let conversion =
                Conversion::new(&decoded.dictionary, resource, profile, labels.clone(), id);
            let shown = conversion.as_ref().map_or("an unknown series", |it| &it.shown).to_owned();
            let outcome = conversion.and_then(|it| it.take(&mut stacks, &mut request));
            request.end(id, &shown, outcome);
        }
    }
    Ok(request.taken)
}

/// Labels of all profiles of a resource but for name and service.
fn labels(
    d: &Dictionary<'_>,
    resource: &ResourceProfiles<'_>,
    limits: &Limits,
) -> Result<Vec<(String, String)>, Error> {
    let mut labels: Vec<(String, String)> = Vec::new();
    for (name, value) in resource.attributes.iter().filter_map(|attribute| label(d, attribute)) {
        if OF_RUN.contains(&name) || labels.iter().any(|(known, _)| known == name) {
            continue;
        }
        let (found, limit) = (value.len(), limits.label_value_bytes);
        if found > limit {
            let name = name.chars().take(64).collect();
            return Err(Error::LabelValue { name, found, limit });
        }
        let (found, limit) = (labels.len() + 1, limits.label_names);
        if found > limit {
            let names: Vec<&str> = labels.iter().take(8).map(|(name, _)| name.as_str()).collect();
            return Err(Error::Labels { found, limit, names: format!("{}…", names.join(", ")) });
        }
        labels.push((name.to_owned(), value.to_owned()));
    }
    Ok(labels)
}

/// Name and value of an attribute that is text.
fn label<'a>(d: &Dictionary<'a>, attribute: &Attribute<'a>) -> Option<(&'a str, &'a str)> {
    let value = d.text(attribute.value).filter(|value| !value.is_empty())?;
    Some((d.key(attribute), value)).filter(|(name, _)| !name.is_empty())
}

/// A profile on its way.
struct Conversion<'a> {
    d: &'a Dictionary<'a>,
    profile: &'a Profile<'a>,
    id: u128,
    name: String,
    service: String,
    labels: Vec<(String, String)>,
    kind: ProfileType,
    /// What a value of 1 stands for.
    factor: i64,
    shown: String,
}

impl<'a> Conversion<'a> {
    fn new(
        d: &'a Dictionary<'a>,
        resource: &ResourceProfiles<'a>,
        profile: &'a Profile<'a>,
        labels: Result<Vec<(String, String)>, Error>,
        id: u128,
    ) -> Result<Self, Error> {
        let of = |key| resource.find_text(d, key).filter(|text| !text.is_empty());
        let service = match (of(keys::SERVICE_NAME), of(keys::EXECUTABLE_NAME)) {
            (Some(service), _) => service.to_owned(),
            (None, Some(executable)) => format!("{UNKNOWN_SERVICE}:{executable}"),
            (None, None) => UNKNOWN_SERVICE.to_owned(),
        };
        let text = |from, number| string(d, from, 0, number);
        let sample_type = (
            text("sample type", profile.sample_type.kind)?,
            text("sample type", profile.sample_type.unit)?,
        );
        let period_type = match profile.period {
            0 => ("", ""),
            _ => (
                text("period type", profile.period_type.kind)?,
                text("period type", profile.period_type.unit)?,
            ),
        };
        let (sample_type, factor) = match (sample_type, period_type) {
            (("samples", "count"), ("cpu", "nanoseconds")) => (period_type, profile.period),
            _ => (sample_type, 1),
        };
        let name = name(sample_type.0, period_type.0).to_owned();
        let mut new = Self {
            d,
            profile,
            id,
            name,
            service,
            labels: labels?,
            kind: ProfileType::default(),
            factor,
            shown: String::new(),
        };
        let identity = new.identity(None)?;
        new.kind = identity.kind(sample_type, period_type)?;
        new.shown = identity.shown();
        Ok(new)
    }

    /// Of samples that say their own service, or do not.
    fn identity(&self, service: Option<&str>) -> Result<Identity, Error> {
        let service = service.unwrap_or(&self.service);
        let own =
            [(NAME, &*self.name), (SERVICE, service), ("__delta__", "false"), ("__otel__", "true")];
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Identity::of(own.into_iter().chain(self.labels.iter().cloned()).collect())
    }

    fn take(self, stacks: &mut Stacks<'_>, request: &mut Request<'_>) -> Result<Accepted, Error> {
        let mut draft = Draft::default();
        let mut series: HashMap<&[u32], u32> = HashMap::new();
        let most = request.limits.otlp_samples;
        let most = most.saturating_sub(request.taken.batch.samples().len());
        for (place, sample) in self.profile.samples.iter().enumerate() {
            let (times, values) = (sample.times_unix_ns.len(), sample.values.len());
            if times != 0 && values != 0 && times != values {
                return Err(Error::Times { place, times, values });
            }
            let stack = stacks.stack(place, sample.stack, request, &mut draft)?;
            let (trace_id, span_id) = self.link(place, sample)?;
            let attributes = sample.attributes.as_slice();
            let series = match series.get(attributes) {
                Some(known) => *known,
                None => {
                    let new = self.series(place, attributes, request, &mut draft)?;
                    series.insert(attributes, new);
                    new
                }
            };
            for (at, value) in sample.events() {
                let at = at.unwrap_or(self.profile.time_unix_ns);
                let at = match i64::try_from(at) {
                    Ok(0) => request.received,
                    Ok(at) => Timestamp::from_nanos(at),
                    Err(_later) => Timestamp::MAX,
                };
                let value = value.checked_mul(self.factor).ok_or(Error::Overflow)?;
                let place = Place { series, stack, at, span_id, trace_id };
                draft.add(place, value, most)?;
            }
        }
        draft.finish(request, self.id)
    }

    /// The series of samples with these attributes.
    fn series(
        &self,
        sample: usize,
        attributes: &[u32],
        request: &mut Request<'_>,
        draft: &mut Draft,
    ) -> Result<u32, Error> {
        let mut labels = Vec::new();
        let mut service = None;
        for &number in attributes {
            let attribute = self.d.attributes.get(number as usize);
            let attribute =
                attribute.ok_or_else(|| dangling("sample", sample as u64, "attribute", number))?;
            match label(self.d, attribute) {
                Some((keys::SERVICE_NAME, value)) => service = Some(value),
                Some((name, value)) if !OF_THREAD.contains(&name) => labels.push((name, value)),
                _ => {}
            }
        }
        let identity = self.identity(service)?;
        draft.series(request, &identity, &self.kind, labels)
    }

    /// Trace and span of a sample; 0 for none.
    fn link(&self, place: usize, sample: &Sample) -> Result<(u128, u64), Error> {
        if sample.link == 0 {
            return Ok((0, 0));
        }
        let link = self.d.links.get(sample.link as usize);
        let link = link.ok_or_else(|| dangling("sample", place as u64, "link", sample.link))?;
        let trace_id = link.trace_id.try_into().map_or(0, u128::from_be_bytes);
        Ok((trace_id, link.span_id.try_into().map_or(0, u64::from_be_bytes)))
    }
}

/// The name of a profile, of its sample type or of its period's.
fn name<'t>(sample_type: &'t str, period_type: &'t str) -> &'t str {
    if sample_type == keys::OFF_CPU {
        return sample_type;
    }
    match (crate::ingest::metric(&[(sample_type, "")], None), period_type) {
        (own, "") => own,
        (own, period) if own == sample_type => period,
        (named, _) => named,
    }
}
