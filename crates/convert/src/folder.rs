//! Trace folders into trace folders.
//!
//! Each trace folder, stream file and packet has its counterpart of the same name and place. Packets keep their
//! bounds, numbers and counts of discarded event records; a cut by time leaves out packets and event records, and moves
//! the bounds of what it cuts into.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::index::IndexVersion;
use ctf::packet::EventReader;
use ctf::writer::{Appended, OpenPacket, PacketStart, Schema, SealedPacket, WriteError};
use ctf::{ClockClass, CtfVersion, Scope, TraceClass};
use model::{TimeRange, Timestamp};
use tracedir::{MAX_METADATA_BYTES, MAX_PACKET_BYTES, StreamFile, TraceFolder, discover};

use crate::classes::{Extra, Extras, Mapped, Notes, map};
use crate::cut::cycles_in;
use crate::error::{Action, Cause, Damage, Error, Note};
use crate::packets::{Head, PacketFile};
use crate::values::Feeder;

/// What to make of the traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The version to write.
    pub version: CtfVersion,
    /// Event records with `range.begin <= time < range.end` are kept; those without a clock always are.
    pub range: TimeRange,
}

/// What a conversion came to.
#[derive(Debug, Default)]
pub struct Report {
    /// Trace folders written.
    pub traces: u64,
    /// Packets written.
    pub packets: u64,
    /// Event records written.
    pub events: u64,
    /// What takes the place of classes that the target has no form for.
    pub notes: Vec<Note>,
    /// What could not be read: the first [`Report::MAX_DAMAGE`].
    pub damage: Vec<Damage>,
    /// How much more could not be read.
    pub more_damage: u64,
    /// Trace folders whose metadata are of no use, and with it all in them: the first [`Report::MAX_DAMAGE`].
    pub refused: Vec<Error>,
}

impl Report {
    /// How much damage is told one by one.
    pub const MAX_DAMAGE: usize = 100;

    fn damage(&mut self, path: &Path, offset_bytes: u64, cause: Cause) {
        if self.damage.len() < Self::MAX_DAMAGE {
            self.damage.push(Damage { path: path.to_owned(), offset_bytes, cause });
        } else {
            self.more_damage += 1;
        }
    }

    fn refuse(&mut self, error: Error) {
        if self.refused.len() < Self::MAX_DAMAGE {
            self.refused.push(error);
        } else {
            self.more_damage += 1;
        }
    }
}

/// Converts all traces at or below `inputs` into the folder `out`, which is made whole or not at all: it appears when
/// everything is written. `progress` is told the bytes of streams that are done, and of all, and says whether to go on.
///
/// Of one input, the folders below it are laid out below `out` as they are; of several, each gets a folder of its
/// name.
///
/// # Errors
/// [`Error`]: metadata of no use in all folders, an `out` that is not empty, files that cannot be read or written, or a `progress` that
/// says to stop. Damage inside of streams and metadata of no use in some of the folders are no error, but in the report.
pub fn convert_ctf<P: AsRef<Path>>(
    inputs: &[P],
    out: &Path,
    options: &Options,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Report, Error> {
    let tasks = tasks(inputs)?;
    let partial = Partial::new(out)?;
    let total_bytes = tasks.iter().map(|(folder, _)| folder.stream_bytes()).sum();
    let mut job = Job {
        options,
        report: Report::default(),
        notes: Notes::default(),
        done_bytes: 0,
        total_bytes,
        progress,
    };
    for (folder, place) in &tasks {
        match job.trace(folder, &partial.path.join(place)) {
            Err(error) if error.is_of_metadata() => job.report.refuse(error),
            done => done?,
        }
    }
    let Job { mut report, notes, .. } = job;
    if report.traces == 0 && !report.refused.is_empty() {
        return Err(report.refused.swap_remove(0));
    }
    report.notes = notes.lines().map(|(what, count)| Note { what, count }).collect();
    partial.finish()?;
    Ok(report)
}

/// The trace folders, each with its place below the result.
fn tasks<P: AsRef<Path>>(inputs: &[P]) -> Result<Vec<(TraceFolder, PathBuf)>, Error> {
    let mut tasks = Vec::new();
    let mut names = HashSet::new();
    let mut seen = HashSet::new();
    for input in inputs {
        let input = input.as_ref();
        let base = if inputs.len() > 1 { own_name(input, &mut names) } else { PathBuf::new() };
        for folder in discover(&[input])? {
            let real =
                fs::canonicalize(&folder.path).map_err(Error::io(Action::Read, &folder.path))?;
            if !seen.insert(real) {
                continue;
            }
            let place = folder
                .path
                .strip_prefix(input)
                .map_or_else(|_| base.clone(), |below| base.join(below));
            tasks.push((folder, place));
        }
    }
    if tasks.is_empty() {
        let paths = inputs.iter().map(|path| path.as_ref().to_owned()).collect();
        return Err(tracedir::Error::NoTrace { paths }.into());
    }
    Ok(tasks)
}

/// The last name of an input's path, made one that no other input has.
fn own_name(input: &Path, taken: &mut HashSet<OsString>) -> PathBuf {
    let real = fs::canonicalize(input).unwrap_or_else(|_| input.to_owned());
    let stem = real.file_name().map_or_else(|| OsString::from("trace"), OsString::from);
    let mut name = stem.clone();
    let mut number = 2_u64;
    while !taken.insert(name.clone()) {
        name.clone_from(&stem);
        name.push(format!("-{number}"));
        number += 1;
    }
    PathBuf::from(name)
}

/// The result while it is not whole: beside its place, under a name that readers pass over; gone when not finished.
struct Partial {
    path: PathBuf,
    target: PathBuf,
}

impl Partial {
    fn new(target: &Path) -> Result<Self, Error> {
        // A link to an empty folder would not give way.
        if target.is_symlink() {
            return Err(Error::Exists { path: target.to_owned() });
        }
        match fs::read_dir(target) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(Error::Exists { path: target.to_owned() });
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                return Err(Error::Exists { path: target.to_owned() });
            }
            Err(error) => return Err(Error::io(Action::Read, target)(error)),
        }
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let mut name = OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        name.push(format!(".partial-{}", std::process::id()));
        let path = parent.unwrap_or_else(|| Path::new(".")).join(name);
        if let Some(parent) = parent {
            fs::create_dir_all(parent).map_err(Error::io(Action::Write, parent))?;
        }
        fs::create_dir(&path).map_err(Error::io(Action::Write, &path))?;
        Ok(Self { path, target: target.to_owned() })
    }

    /// An empty folder in the target's place gives way.
    fn finish(self) -> Result<(), Error> {
        fs::rename(&self.path, &self.target).map_err(Error::io(Action::Rename, &self.target))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After a rename there is nothing here; before one, a failure is under way that says more than this one.
        drop(fs::remove_dir_all(&self.path));
    }
}

struct Job<'j> {
    options: &'j Options,
    report: Report,
    notes: Notes,
    done_bytes: u64,
    total_bytes: u64,
    progress: &'j mut dyn FnMut(u64, u64) -> ControlFlow<()>,
}

/// A stream file that is being written, with its index.
struct Output {
    path: PathBuf,
    file: BufWriter<File>,
    index_path: PathBuf,
    index: BufWriter<File>,
    offset: u64,
    /// Whether the index can say what the packets do.
    is_indexed: bool,
}

impl Output {
    fn create(folder: &Path, name: &std::ffi::OsStr) -> Result<Self, Error> {
        let create = |path: &Path| {
            File::create(path).map(BufWriter::new).map_err(Error::io(Action::Write, path))
        };
        let index_folder = folder.join("index");
        fs::create_dir_all(&index_folder).map_err(Error::io(Action::Write, &index_folder))?;
        let mut index_name = name.to_owned();
        index_name.push(".idx");
        let (path, index_path) = (folder.join(name), index_folder.join(index_name));
        let (file, mut index) = (create(&path)?, create(&index_path)?);
        index
            .write_all(&IndexVersion::V1_1.header())
            .map_err(Error::io(Action::Write, &index_path))?;
        Ok(Self { path, file, index_path, index, offset: 0, is_indexed: true })
    }

    fn add(&mut self, packet: &SealedPacket) -> Result<(), Error> {
        self.file.write_all(&packet.bytes).map_err(Error::io(Action::Write, &self.path))?;
        // Packets that a tracer never closed say no end; an index must.
        self.is_indexed &= packet.begin <= packet.end;
        let mut entry = Vec::with_capacity(IndexVersion::V1_1.entry_len());
        packet.index_entry(self.offset).encode(IndexVersion::V1_1, &mut entry);
        self.index.write_all(&entry).map_err(Error::io(Action::Write, &self.index_path))?;
        self.offset += u64::try_from(packet.bytes.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    fn finish(mut self, has_clock: bool) -> Result<(), Error> {
        self.file.flush().map_err(Error::io(Action::Write, &self.path))?;
        self.index.flush().map_err(Error::io(Action::Write, &self.index_path))?;
        if !self.is_indexed || !has_clock {
            fs::remove_file(&self.index_path)
                .map_err(Error::io(Action::Write, &self.index_path))?;
        }
        Ok(())
    }
}

impl Job<'_> {
    fn trace(&mut self, folder: &TraceFolder, target: &Path) -> Result<(), Error> {
        let path = folder.metadata();
        if folder.metadata_len == 0 {
            let stream_bytes = folder.stream_bytes();
            return Err(tracedir::Error::MetadataEmpty { path, stream_bytes }.into());
        }
        if folder.metadata_len > MAX_METADATA_BYTES {
            let (len, limit) = (folder.metadata_len, MAX_METADATA_BYTES);
            return Err(tracedir::Error::MetadataTooLarge { path, len, limit }.into());
        }
        let bytes = fs::read(&path).map_err(Error::io(Action::Read, &path))?;
        let class = TraceClass::parse(&bytes)
            .map_err(|error| Error::Metadata { path, source: Box::new(error) })?;
        let class = Arc::new(class);
        let refused = |error| Error::Class { path: folder.path.clone(), source: Box::new(error) };
        let Mapped { class: mapped, streams, events, notes } =
            map(&class, self.options.version).map_err(refused)?;
        self.notes.join(&notes);
        let schema = Schema::new(mapped).map_err(refused)?;
        fs::create_dir_all(target).map_err(Error::io(Action::Write, target))?;
        let metadata = target.join("metadata");
        fs::write(&metadata, schema.metadata()).map_err(Error::io(Action::Write, &metadata))?;
        for file in &folder.stream_files {
            let name = file.path.file_name().unwrap_or_default();
            let output = Output::create(target, name)?;
            let mut stream = StreamJob {
                job: &mut *self,
                path: &file.path,
                file,
                schema: &schema,
                streams: &streams,
                events: &events,
                output,
                has_clock: true,
            };
            let packets = PacketFile::open(&file.path, &class)
                .map_err(Error::io(Action::Read, &file.path))?;
            stream.run(&packets)?;
            let StreamJob { output, has_clock, .. } = stream;
            output.finish(has_clock)?;
        }
        self.report.traces += 1;
        Ok(())
    }
}

/// One stream file.
struct StreamJob<'s, 'j> {
    job: &'s mut Job<'j>,
    path: &'s Path,
    file: &'s StreamFile,
    schema: &'s Schema,
    streams: &'s [[Extras; 2]],
    events: &'s [[Extras; 2]],
    output: Output,
    has_clock: bool,
}

impl<'s> StreamJob<'s, '_> {
    fn run(&mut self, packets: &PacketFile<'_>) -> Result<(), Error> {
        let path = self.path;
        let read = |error| Error::io(Action::Read, path)(error);
        let mut reader = None;
        let mut next = packets.head(0).map_err(read)?;
        let mut offset = 0;
        while let Some(found) = next {
            let head = match found {
                Ok(head) => head,
                Err(cause) => {
                    let reason = match &cause {
                        Cause::Decode(error) => Some(&error.kind),
                        _ => None,
                    };
                    let after = self.file.after_damage(offset, reason);
                    self.job.report.damage(self.path, offset, cause);
                    let Some(after) = after else { break };
                    offset = after;
                    next = packets.head(offset).map_err(read)?;
                    continue;
                }
            };
            offset = head.offset + head.len.max(1);
            next = packets.head(offset).map_err(read)?;
            let follower = next.as_ref().and_then(|next| next.as_ref().ok());
            match self.place(packets.clock(&head), &head, follower) {
                Place::Inside(bounds) => {
                    match packets.events(&head, reader.take()).map_err(read)? {
                        Err(cause) => self.job.report.damage(self.path, head.offset, cause),
                        Ok(mut opened) => {
                            self.packet(&mut opened, &head, bounds)?;
                            reader = Some(opened);
                        }
                    }
                }
                Place::Before => {}
                Place::After => break,
            }
            self.job.done_bytes += head.len;
            if (self.job.progress)(self.job.done_bytes, self.job.total_bytes).is_break() {
                return Err(Error::Stopped);
            }
        }
        Ok(())
    }

    /// Where a packet lies to the range: by its bounds, which are advice. A packet in front is left out when the
    /// next one begins in front, too: a tracer's known fault is an end that is too early.
    fn place(&self, clock: Option<&ClockClass>, head: &Head, follower: Option<&Head>) -> Place {
        let Some(clock) = clock else { return Place::Inside(None) };
        let range = &self.job.options.range;
        let time = |cycles: Option<u64>| clock.to_ns(cycles?).ok().map(Timestamp::from_nanos);
        let begins = time(head.info.begin);
        if begins.is_some_and(|begin| begin >= range.end) {
            return Place::After;
        }
        let is_before = |at: Option<Timestamp>| at.is_some_and(|at| at < range.begin);
        let end = head.info.end.filter(|end| *end != 0);
        let last = follower.map_or(end, |follower| follower.info.begin);
        if is_before(time(end)) && is_before(time(last)) {
            return Place::Before;
        }
        if *range == TimeRange::ALL {
            return Place::Inside(None);
        }
        cycles_in(clock, range).map_or(Place::Before, |bounds| Place::Inside(Some(bounds)))
    }

    fn packet(
        &mut self,
        reader: &mut EventReader<Vec<u8>>,
        head: &Head,
        bounds: Option<(u64, u64)>,
    ) -> Result<(), Error> {
        let refused = |error| Error::Value {
            path: self.path.to_owned(),
            offset_bytes: head.offset,
            source: Box::new(error),
        };
        self.has_clock &= reader.clock_class().is_some();
        let (first, last) = bounds.unwrap_or((0, u64::MAX));
        let [_, common] = self.stream_extras(head.info.stream_class_id);
        let mut open: Option<OpenPacket<'s>> = None;
        let mut latest = None;
        loop {
            match reader.advance() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.job.report.damage(self.path, head.offset, error.into());
                    break;
                }
            }
            let Some(event) = reader.event() else { break };
            let time = event.clock_value().unwrap_or(0);
            let is_timed = event.timestamp_ns().is_some();
            if is_timed && !(first..=last).contains(&time) {
                continue;
            }
            if open.is_none() {
                let begin = head.info.begin.unwrap_or(time).clamp(first, last);
                open = Some(self.open(reader, head, begin).map_err(refused)?);
            }
            let Some(event) = reader.event() else { break };
            let Some(packet) = &mut open else { break };
            self.append(packet, &event, common, time).map_err(refused)?;
            latest = Some(latest.unwrap_or(0).max(time));
            self.job.report.events += 1;
        }
        let packet = match open {
            Some(packet) => packet,
            None => {
                let begin = head.info.begin.or(head.info.end).unwrap_or(0).clamp(first, last);
                self.open(reader, head, begin).map_err(refused)?
            }
        };
        // An end of 0 says that the tracer did not close the packet.
        let begin = packet.begin();
        let end = match head.info.end {
            Some(0) => 0,
            Some(end) => end.clamp(first, last),
            None => latest.unwrap_or(begin),
        };
        let sealed = packet.seal(end, head.info.events_discarded.unwrap_or(0));
        self.output.add(&sealed)?;
        self.job.report.packets += 1;
        Ok(())
    }

    fn open(
        &self,
        reader: &EventReader<Vec<u8>>,
        head: &Head,
        begin: u64,
    ) -> Result<OpenPacket<'s>, WriteError> {
        let schema: &'s Schema = self.schema;
        let version = self.job.options.version;
        let info = &head.info;
        let start = PacketStart {
            stream_class: info.stream_class_id,
            instance: info.stream_instance_id.unwrap_or(0),
            sequence_number: info.sequence_number.unwrap_or(0),
            begin,
            max_bytes: usize::try_from(MAX_PACKET_BYTES).unwrap_or(usize::MAX),
        };
        let [extras, _] = self.stream_extras(info.stream_class_id);
        schema.open(start, |record| {
            let mut feeder = Feeder { record, version, extras, is_packet: true, result: Ok(()) };
            reader.visit_packet(Scope::PacketContext, &mut feeder);
            feeder.result
        })
    }

    fn append(
        &self,
        packet: &mut OpenPacket<'_>,
        event: &ctf::EventRecord<'_>,
        common: &[Extra],
        time: u64,
    ) -> Result<(), WriteError> {
        let version = self.job.options.version;
        let class = event.class();
        let position = usize::try_from(class.index()).unwrap_or(usize::MAX);
        let [specific, payload] = self
            .events
            .get(position)
            .map_or([&[] as &[Extra]; 2], |all| all.each_ref().map(Vec::as_slice));
        let appended = packet.append(class.id(), time, |record| {
            for (scope, extras) in [
                (Scope::EventCommonContext, common),
                (Scope::EventSpecificContext, specific),
                (Scope::Payload, payload),
            ] {
                let mut feeder = Feeder {
                    record: &mut *record,
                    version,
                    extras,
                    is_packet: false,
                    result: Ok(()),
                };
                event.visit(scope, &mut feeder);
                feeder.result?;
            }
            Ok(())
        })?;
        match appended {
            Appended::Yes => Ok(()),
            Appended::Full => {
                Err(WriteError::TooLarge { bytes: MAX_PACKET_BYTES, max_bytes: MAX_PACKET_BYTES })
            }
        }
    }

    fn stream_extras(&self, id: u64) -> [&'s [Extra]; 2] {
        let streams = &self.schema.class().streams;
        let position = streams.iter().position(|stream| stream.id == id);
        let extras = position.and_then(|position| self.streams.get(position));
        extras.map_or([&[] as &[Extra]; 2], |all| all.each_ref().map(Vec::as_slice))
    }
}

/// Where a packet lies to the range of time.
enum Place {
    Before,
    /// With the cycles to keep, or all.
    Inside(Option<(u64, u64)>),
    After,
}
