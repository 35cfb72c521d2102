//! Chunks as folders on disk.
//!
//! ```text
//! never rotated   FOLDER/kernel/{metadata, channel0_CPU}
//! rotated         FOLDER/archives/BEGIN-END-ID/kernel/...   closed chunks
//!                 FOLDER/BEGIN-ID/kernel/...                current chunk
//! ```
//! `BEGIN` and `END` are `YYYYMMDDTHHMMSS+0000`, the names LTTng gives, in UTC.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use ctf::writer::SealedPacket;

use super::{Recording, Sink, stream_name};
use crate::error::{Error, Result};

/// Writes to a local folder.
#[derive(Debug)]
pub(in crate::kernel) struct Folder {
    root: PathBuf,
    recording: Recording,
    chunk: Chunk,
}

#[derive(Debug)]
struct Chunk {
    id: u64,
    begin_unix_s: u64,
    path: PathBuf,
    streams: Vec<(PathBuf, File)>,
}

impl Folder {
    pub(in crate::kernel) fn create(root: &Path, recording: Recording) -> Result<Self> {
        let chunk = Chunk::create(root, &recording, 0, recording.begin_unix_s)?;
        Ok(Self { root: root.to_owned(), recording, chunk })
    }

    fn archive(&self, at_unix_s: u64) -> Result<()> {
        let archives = self.root.join("archives");
        fs::create_dir_all(&archives).map_err(Error::file(&archives))?;
        let Chunk { id, begin_unix_s, path, .. } = &self.chunk;
        let name = format!("{}-{}-{id}", date(*begin_unix_s), date(at_unix_s));
        let target = archives.join(name);
        fs::rename(path, &target).map_err(Error::file(target))
    }
}

impl Sink for Folder {
    fn packet(&mut self, stream: usize, packet: &SealedPacket) -> Result<()> {
        let Some((path, file)) = self.chunk.streams.get_mut(stream) else { return Ok(()) };
        file.write_all(&packet.bytes).map_err(Error::file(path.as_path()))
    }

    fn rotate(&mut self, at_unix_s: u64, _next: &[u64]) -> Result<()> {
        let next = Chunk::create(&self.root, &self.recording, self.chunk.id + 1, at_unix_s)?;
        self.archive(at_unix_s)?;
        self.chunk = next;
        Ok(())
    }

    fn finish(&mut self, at_unix_s: u64, _next: &[u64]) -> Result<()> {
        if self.recording.rotates { self.archive(at_unix_s) } else { Ok(()) }
    }
}

impl Chunk {
    fn create(root: &Path, recording: &Recording, id: u64, begin_unix_s: u64) -> Result<Self> {
        let path = if recording.rotates {
            root.join(format!("{}-{id}", date(begin_unix_s)))
        } else {
            root.to_owned()
        };
        let trace = path.join("kernel");
        fs::create_dir_all(&trace).map_err(Error::file(&trace))?;
        let metadata = trace.join("metadata");
        fs::write(&metadata, &recording.metadata).map_err(Error::file(&metadata))?;
        let create = |stream| {
            let path = trace.join(stream_name(stream));
            let file = File::create_new(&path).map_err(Error::file(&path))?;
            Ok((path, file))
        };
        let streams = (0..recording.streams).map(create).collect::<Result<_>>()?;
        Ok(Self { id, begin_unix_s, path, streams })
    }
}

/// `YYYYMMDDTHHMMSS+0000`.
fn date(unix_s: u64) -> String {
    let instant = i64::try_from(unix_s).ok().and_then(|at| jiff::Timestamp::from_second(at).ok());
    // No clock shows a later time than the calendar's last.
    instant.unwrap_or(jiff::Timestamp::MAX).strftime("%Y%m%dT%H%M%S+0000").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "19700101T000000+0000");
        assert_eq!(date(951_782_400), "20000229T000000+0000");
        assert_eq!(date(1_795_204_799), "20261120T195959+0000");
    }
}
