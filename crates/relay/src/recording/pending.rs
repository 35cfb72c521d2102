//! Questions of a producer whether all that it sent has been written.

use wire::live::DataPending;
use wire::live::PendingReply;
use wire::live::RelaySessionId;
use wire::live::StreamHandle;

use super::Recording;
use crate::error::Result;

impl Recording {
    pub(crate) fn begin_pending(&mut self, session: RelaySessionId) {
        for stream in self.streams.values_mut().filter(|stream| stream.session == session) {
            stream.asked = false;
        }
    }

    pub(crate) fn data_pending(
        &mut self,
        session: RelaySessionId,
        request: DataPending,
    ) -> Result<PendingReply> {
        if self.has_left(session, request.handle) {
            return Ok(PendingReply::Complete);
        }
        let stream = self.own(session, request.handle)?;
        stream.asked = true;
        let complete = stream.merge.is_complete(request.last, stream.kind.is_indexed());
        Ok(if complete { PendingReply::Complete } else { PendingReply::Pending })
    }

    pub(crate) fn quiescent(
        &mut self,
        session: RelaySessionId,
        handle: StreamHandle,
    ) -> Result<()> {
        if !self.has_left(session, handle) {
            self.own(session, handle)?.asked = true;
        }
        Ok(())
    }

    pub(crate) fn end_pending(&self, session: RelaySessionId) -> PendingReply {
        let mut streams = self.streams.values().filter(|stream| stream.session == session);
        if streams.any(|stream| !stream.asked) {
            PendingReply::Pending
        } else {
            PendingReply::Complete
        }
    }
}
