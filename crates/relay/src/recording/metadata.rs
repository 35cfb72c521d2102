//! Metadata of a recording session.

use wire::live::RelaySessionId;
use wire::live::ResetMetadata;
use wire::live::SendMetadata;

use super::Recording;
use crate::env::Env;
use crate::error::Error;
use crate::error::Result;
use crate::stream::Kind;

impl Recording {
    pub(crate) fn metadata(
        &mut self,
        env: &Env,
        session: RelaySessionId,
        request: SendMetadata<'_>,
    ) -> Result<()> {
        let handle = request.handle;
        let stream = self.own(session, handle)?;
        if stream.kind != Kind::Metadata {
            return Err(Error::WrongKind { handle });
        }
        let padding = u64::from(request.padding_len);
        if padding > env.limits.packet_bytes {
            return Err(Error::Meaningless { what: "padding larger than a packet may be" });
        }
        let chunk = stream.chunk;
        let folder = chunk.and_then(|chunk| self.chunks.get(&chunk)).map(|it| it.folder.clone());
        let folder = folder.ok_or(Error::NoChunk { handle })?;
        let stream = self.own(session, handle)?;
        if !stream.append_metadata(env, &folder, request.bytes, padding)? {
            return Err(Error::NoChunk { handle });
        }
        env.counters.metadata_bytes.add(request.bytes.len() as u64 + padding);
        Ok(())
    }

    /// Whether all of them may be written, before the first piece is.
    pub(crate) fn has_metadata_room(
        &mut self,
        env: &Env,
        session: RelaySessionId,
        request: &SendMetadata<'_>,
    ) -> Result<()> {
        let added = request.bytes.len() as u64 + u64::from(request.padding_len);
        self.own(session, request.handle)?.check_metadata_len(env, added)
    }

    pub(crate) fn reset_metadata(
        &mut self,
        env: &Env,
        session: RelaySessionId,
        request: ResetMetadata,
    ) -> Result<()> {
        let handle = request.handle;
        let stream = self.own(session, handle)?;
        if stream.kind != Kind::Metadata {
            return Err(Error::WrongKind { handle });
        }
        let chunk = stream.chunk;
        let folder = chunk.and_then(|chunk| self.chunks.get(&chunk)).map(|it| it.folder.clone());
        let folder = folder.ok_or(Error::NoChunk { handle })?;
        let stream = self.own(session, handle)?;
        if stream.reset_metadata(env, &folder)? { Ok(()) } else { Err(Error::NoChunk { handle }) }
    }
}
