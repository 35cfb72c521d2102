//! Streams that their producer sends under another handle since it came back.

use std::collections::BTreeMap;

use wire::live::StreamHandle;

/// At most one other handle for each stream there is.
#[derive(Debug, Default)]
pub(super) struct Renamed {
    known: BTreeMap<StreamHandle, StreamHandle>,
    /// The other way round.
    sent: BTreeMap<StreamHandle, StreamHandle>,
}

impl Renamed {
    /// The handle that a stream is known by which is sent under this one.
    pub(super) fn known(&self, sent: StreamHandle) -> StreamHandle {
        self.known.get(&sent).copied().unwrap_or(sent)
    }

    /// A stream is sent under another handle, and under none that it was sent under before.
    pub(super) fn rename(&mut self, known: StreamHandle, sent: StreamHandle) {
        self.forget(known);
        self.known.insert(sent, known);
        self.sent.insert(known, sent);
    }

    /// A stream is not there any more.
    pub(super) fn forget(&mut self, known: StreamHandle) {
        if let Some(sent) = self.sent.remove(&known) {
            self.known.remove(&sent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_its_last_handle_and_its_own() {
        let [own, second, third, other] = [1, 2, 3, 4].map(StreamHandle::new);
        let mut renamed = Renamed::default();
        assert_eq!(renamed.known(own), own);
        renamed.rename(own, second);
        renamed.rename(own, third);
        assert_eq!(
            [own, second, third, other].map(|it| renamed.known(it)),
            [own, second, own, other]
        );
        renamed.forget(other);
        assert_eq!(renamed.known(third), own);
        renamed.forget(own);
        assert_eq!(renamed.known(third), third);
        assert_eq!((renamed.known.len(), renamed.sent.len()), (0, 0));
    }
}
