//! The samples of a profile that was recorded, to be put into packets again.

use profile::request::{AttributeValue, Dictionary, Location};
use profile::{
    BuildId, Builder, Frame, FrameId, FrameKind, Limits, Line, Mapping, Names, Process, ProcessId,
    Request, Status, Unnamed, keys,
};

use crate::{Event, Source};

/// Samples by time, and what they are made of.
pub(crate) struct Recording<'a> {
    request: Request<'a>,
    events: Vec<Event<'a>>,
    /// Of each mapping.
    build_ids: Vec<Vec<BuildId<'a>>>,
    frames: Vec<Known<'a>>,
}

/// A frame as a resolver has it.
struct Known<'a> {
    kind: FrameKind,
    /// Its place among the mappings.
    mapping: Option<usize>,
    /// Of a file without build IDs.
    path: Option<&'a str>,
    address: u64,
    lines: Vec<Line<'a>>,
    unnamed: Unnamed,
}

impl<'a> Recording<'a> {
    /// Of the bytes of one request.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        let request = Request::decode(bytes, Limits::default()).expect("a profile");
        let d = &request.dictionary;
        let build_ids = |mapping: &profile::request::Mapping| {
            let attributes = d.attributes_of(&mapping.attributes);
            attributes
                .filter_map(|(key, value)| match key {
                    keys::BUILD_ID_GNU => d.text(value).map(BuildId::Gnu),
                    keys::BUILD_ID_GO => d.text(value).map(BuildId::Go),
                    keys::BUILD_ID_HTLHASH => d.text(value).map(BuildId::HtlHash),
                    _ => None,
                })
                .collect()
        };
        let build_ids = d.mappings.iter().map(build_ids).collect();
        let frames = d.locations.iter().map(|location| known(d, location)).collect();
        let events = events(&request);
        Self { request, events, build_ids, frames }
    }
}

fn events<'a>(request: &Request<'a>) -> Vec<Event<'a>> {
    let d = &request.dictionary;
    let number = |attributes: &[u32], key: &str| match d.find(attributes, key) {
        Some(AttributeValue::Int(value)) => u32::try_from(value).unwrap_or_default(),
        _ => 0,
    };
    let mut events = Vec::new();
    for (process, resource) in request.resources.iter().enumerate() {
        for sample in resource.profiles.iter().flat_map(|profile| &profile.samples) {
            let thread_name = d.find_text(&sample.attributes, keys::THREAD_NAME);
            for (at, _) in sample.events() {
                events.push(Event {
                    at: at.unwrap_or_default(),
                    process,
                    stack: sample.stack as usize,
                    tid: number(&sample.attributes, keys::THREAD_ID),
                    thread_name: thread_name.unwrap_or_default(),
                    cpu: number(&sample.attributes, keys::CPU),
                    status: status(d.find_text(&sample.attributes, keys::STATUS)),
                });
            }
        }
    }
    let begin = events.iter().map(|event| event.at).min().unwrap_or_default();
    events.iter_mut().for_each(|event| event.at -= begin);
    events.sort_by_key(|event| event.at);
    events
}

fn known<'a>(d: &Dictionary<'a>, location: &Location) -> Known<'a> {
    let line = |line: &profile::request::Line| {
        let function = d.functions.get(line.function as usize).copied().unwrap_or_default();
        Line {
            function: d.string(function.name),
            system_name: d.string(function.system_name),
            file: d.string(function.file),
            line: u32::try_from(line.line).unwrap_or_default(),
            start_line: u32::try_from(function.start_line).unwrap_or_default(),
        }
    };
    let kind = d.find_text(&location.attributes, keys::FRAME_TYPE);
    Known {
        kind: KINDS.into_iter().find(|it| Some(it.as_str()) == kind).unwrap_or(FrameKind::Native),
        mapping: Some(location.mapping as usize).filter(|mapping| *mapping != 0),
        path: d.find_text(&location.attributes, keys::MAPPED_PATH),
        address: location.address,
        lines: location.lines.iter().map(line).collect(),
        unnamed: reason(d.find_text(&location.attributes, keys::UNNAMED)),
    }
}

impl Source for Recording<'_> {
    fn events(&self) -> &[Event<'_>] {
        &self.events
    }

    fn stack(&self, stack: usize) -> &[u32] {
        self.request.dictionary.stacks.get(stack).map_or(&[], Vec::as_slice)
    }

    fn process(&self, builder: &mut Builder, process: usize) -> ProcessId {
        let d = &self.request.dictionary;
        let resource = self.request.resources.get(process).expect("of the recording");
        let number = |key| match resource.find(d, key) {
            Some(AttributeValue::Int(value)) => u64::try_from(value).unwrap_or_default(),
            _ => 0,
        };
        let attributes: Vec<_> = resource
            .attributes
            .iter()
            .filter_map(|attribute| Some((d.key(attribute), d.text(attribute.value)?)))
            .collect();
        let process = Process {
            pid: u32::try_from(number(keys::PID)).unwrap_or_default(),
            start_boot_ns: number(keys::START_BOOT_NS),
            executable_name: resource.find_text(d, keys::EXECUTABLE_NAME).unwrap_or_default(),
            executable_path: resource.find_text(d, keys::EXECUTABLE_PATH).unwrap_or_default(),
            attributes: &attributes,
        };
        builder.process(&process).expect("room")
    }

    fn frame(&self, builder: &mut Builder, at: u32, named: bool) -> FrameId {
        let known = self.frames.get(at as usize).expect("of the recording");
        let of_file = |at: usize| {
            let mapping = self.request.dictionary.mappings.get(at)?;
            Some(Mapping {
                memory_start: mapping.memory_start,
                memory_limit: mapping.memory_limit,
                file_offset: mapping.file_offset,
                path: self.request.dictionary.string(mapping.path),
                build_ids: self.build_ids.get(at)?,
            })
        };
        let without_id = |path| Mapping {
            memory_start: 0,
            memory_limit: 0,
            file_offset: 0,
            path,
            build_ids: &[],
        };
        let mapping = known.mapping.and_then(of_file).or_else(|| known.path.map(without_id));
        let named = named || known.kind != FrameKind::Native;
        let frame = Frame {
            kind: known.kind,
            mapping: mapping.as_ref(),
            address: known.address,
            names: if named && !known.lines.is_empty() {
                Names::Known(&known.lines)
            } else {
                Names::Unnamed(known.unnamed)
            },
        };
        builder.frame(&frame).expect("room")
    }
}

/// Those that this program is met with; more may come.
const KINDS: [FrameKind; 6] = {
    use FrameKind::{CPython, Go, Jvm, Kernel, Native, V8Js};
    [Native, Kernel, CPython, Go, Jvm, V8Js]
};

fn reason(said: Option<&str>) -> Unnamed {
    use Unnamed::{Anonymous, Budget, Hidden, NoFile, NoMapping};
    let known = [NoFile, Anonymous, NoMapping, Hidden, Budget];
    known.into_iter().find(|it| Some(it.as_str()) == said).unwrap_or(Unnamed::NoSymbol)
}

fn status(said: Option<&str>) -> Status {
    use Status::{Fault, Interpreter, NoMapping, NoRow, Truncated};
    let known = [Truncated, NoRow, Fault, NoMapping, Interpreter];
    known.into_iter().find(|it| Some(it.as_str()) == said).unwrap_or(Status::Root)
}
