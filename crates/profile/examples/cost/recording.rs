//! The samples of a profile that was recorded, to be put into packets again.

use profile::request::{AttributeValue, Location};
use profile::{
    BuildId, Builder, Frame, FrameId, FrameKind, Limits, Line, Mapping, Names, Process, ProcessId,
    Request, Status, Unnamed, keys,
};

use crate::{Event, Source};

/// Samples by time, and the request that says the rest.
pub(crate) struct Recording<'a> {
    request: Request<'a>,
    events: Vec<Event<'a>>,
}

impl<'a> Recording<'a> {
    /// Of the bytes of one request.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        let request = Request::decode(bytes, Limits::default()).expect("a profile");
        let mut events = Vec::new();
        let d = &request.dictionary;
        let number = |attributes: &[u32], key: &str| match d.find(attributes, key) {
            Some(AttributeValue::Int(value)) => u32::try_from(value).unwrap_or_default(),
            _ => 0,
        };
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
        Self { request, events }
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
        let d = &self.request.dictionary;
        let location = d.locations.get(at as usize).expect("of the recording");
        let lines: Vec<Line<'_>> = location.lines.iter().map(|line| self.line(line)).collect();
        let kind = d.find_text(&location.attributes, keys::FRAME_TYPE);
        let kind = if kind == Some("kernel") { FrameKind::Kernel } else { FrameKind::Native };
        let named = named || kind != FrameKind::Native;
        let mapping = d.mappings.get(location.mapping as usize);
        let build_ids: Vec<BuildId<'_>> = mapping
            .iter()
            .flat_map(|mapping| d.attributes_of(&mapping.attributes))
            .filter_map(|(key, value)| match key {
                keys::BUILD_ID_GNU => d.text(value).map(BuildId::Gnu),
                keys::BUILD_ID_GO => d.text(value).map(BuildId::Go),
                keys::BUILD_ID_HTLHASH => d.text(value).map(BuildId::HtlHash),
                _ => None,
            })
            .collect();
        let path = d.find_text(&location.attributes, keys::MAPPED_PATH);
        let mapping = match (mapping, path) {
            (_, Some(path)) => Some(Mapping {
                memory_start: 0,
                memory_limit: 0,
                file_offset: 0,
                path,
                build_ids: &[],
            }),
            (Some(mapping), None) if location.mapping != 0 => Some(Mapping {
                memory_start: mapping.memory_start,
                memory_limit: mapping.memory_limit,
                file_offset: mapping.file_offset,
                path: d.string(mapping.path),
                build_ids: &build_ids,
            }),
            _ => None,
        };
        let frame = Frame {
            kind,
            mapping: mapping.as_ref(),
            address: location.address,
            names: if named && !lines.is_empty() {
                Names::Known(&lines)
            } else {
                Names::Unnamed(self.reason(location))
            },
        };
        builder.frame(&frame).expect("room")
    }
}

impl Recording<'_> {
    fn line(&self, line: &profile::request::Line) -> Line<'_> {
        let d = &self.request.dictionary;
        let function = d.functions.get(line.function as usize).copied().unwrap_or_default();
        Line {
            function: d.string(function.name),
            system_name: d.string(function.system_name),
            file: d.string(function.file),
            line: u32::try_from(line.line).unwrap_or_default(),
            start_line: u32::try_from(function.start_line).unwrap_or_default(),
        }
    }

    fn reason(&self, location: &Location) -> Unnamed {
        use Unnamed::{Anonymous, Budget, Hidden, NoFile, NoMapping};
        let said = self.request.dictionary.find_text(&location.attributes, keys::UNNAMED);
        let known = [NoFile, Anonymous, NoMapping, Hidden, Budget];
        known.into_iter().find(|it| Some(it.as_str()) == said).unwrap_or(Unnamed::NoSymbol)
    }
}

fn status(said: Option<&str>) -> Status {
    use Status::{Fault, Interpreter, NoMapping, NoRow, Truncated};
    let known = [Truncated, NoRow, Fault, NoMapping, Interpreter];
    known.into_iter().find(|it| Some(it.as_str()) == said).unwrap_or(Status::Root)
}
