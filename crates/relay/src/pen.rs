//! The right to write a packet to a stream's file, away from the recording session's lock.
//!
//! The stream lends its pen for one packet at a time. It takes it back when it ends, and then nobody writes there any
//! more: a write that has begun is waited for, and none begins.
//!
//! Lock order: a pen's lock may be taken while a recording session's is held; who writes takes no other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A stream's pen, or what it lent for a packet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pen {
    /// The number of the one that may write.
    holder: Arc<Mutex<u64>>,
    number: u64,
}

impl Pen {
    /// A pen for the next packet; the one before cannot write any more.
    pub(crate) fn lend(&self) -> Self {
        let mut holder = self.holder();
        *holder += 1;
        Self { holder: Arc::clone(&self.holder), number: *holder }
    }

    /// Nobody can write any more.
    pub(crate) fn take_back(&self) {
        *self.holder() += 1;
    }

    /// Whether it has not been taken back.
    pub(crate) fn is_valid(&self) -> bool {
        *self.holder() == self.number
    }

    /// Writes, if it has not been taken back; until it returns, it will not be.
    pub(crate) fn write<T>(&self, write: impl FnOnce() -> T) -> Option<T> {
        let holder = self.holder();
        (*holder == self.number).then(write)
    }

    /// It is a number: always whole.
    fn holder(&self) -> MutexGuard<'_, u64> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_pen_writes_until_it_is_taken_back() {
        let pen = Pen::default();
        let first = pen.lend();
        assert_eq!(first.write(|| 1), Some(1));
        let second = pen.lend();
        assert_eq!((first.write(|| 1), second.write(|| 2)), (None, Some(2)));
        pen.take_back();
        assert!(!second.is_valid());
        assert_eq!(second.write(|| 2), None);
    }
}
