//! Bodies of requests, which come as slowly as their senders like.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use wire::pyroscope::{self as connect, Code};

/// KiB of all bodies in memory, those included that have not come whole: two of the largest.
const ALL_KIB: usize = 512 << 10;
/// A body is there after this time, or refused: whoever sends slowly does not hold memory for longer.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// After which a body may come again for which there was no room.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Room for bodies.
#[derive(Debug)]
pub(super) struct Bodies {
    kib: Arc<Semaphore>,
}

/// A body, with its share of the room.
#[derive(Debug, Default)]
pub(super) struct Whole {
    pub(super) bytes: Vec<u8>,
    held: Option<OwnedSemaphorePermit>,
}

impl Bodies {
    pub(super) fn new() -> Self {
        Self { kib: Arc::new(Semaphore::new(ALL_KIB)) }
    }

    /// A body of so many bytes at most.
    pub(super) async fn read(&self, body: Body, most: usize) -> Result<Whole, connect::Error> {
        let read = timeout(BODY_TIMEOUT, self.collect(body, most));
        read.await.unwrap_or_else(|_elapsed| {
            let words = format!("the body did not come within {} s", BODY_TIMEOUT.as_secs());
            Err(connect::Error::new(Code::DeadlineExceeded, words))
        })
    }

    async fn collect(&self, mut body: Body, most: usize) -> Result<Whole, connect::Error> {
        let mut whole = Whole::default();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let words = format!("the body broke off: {}", model::with_causes(&error));
                connect::Error::new(Code::Canceled, words)
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if data.len() > most.saturating_sub(whole.bytes.len()) {
                let words = format!("the body has more than {most} bytes");
                return Err(connect::Error::new(Code::ResourceExhausted, words));
            }
            whole.bytes.extend_from_slice(&data);
            self.hold(&mut whole)?;
        }
        Ok(whole)
    }

    /// Takes room for what has come.
    fn hold(&self, whole: &mut Whole) -> Result<(), connect::Error> {
        let held = whole.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = whole.bytes.len().div_ceil(1 << 10).saturating_sub(held);
        if missing == 0 {
            return Ok(());
        }
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        let more = Arc::clone(&self.kib).try_acquire_many_owned(missing).map_err(|_none| {
            let words = "no memory for more bodies of requests";
            connect::Error::new(Code::Unavailable, words).again_after(AGAIN_AFTER)
        })?;
        match &mut whole.held {
            Some(held) => held.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_have_room_together_and_each_by_itself() {
        let bodies = Bodies { kib: Arc::new(Semaphore::new(4)) };
        let first = bodies.read(Body::from(vec![7; 2_049]), 4_096).await.unwrap();
        assert_eq!((first.bytes.len(), bodies.kib.available_permits()), (2_049, 1));
        let error = bodies.read(Body::from(vec![7; 1_025]), 4_096).await.unwrap_err();
        assert_eq!((error.code, error.retry_after), (Code::Unavailable, Some(AGAIN_AFTER)));
        assert_eq!(bodies.kib.available_permits(), 1);
        drop(first);
        assert_eq!(bodies.kib.available_permits(), 4);
        let error = bodies.read(Body::from(vec![7; 11]), 10).await.unwrap_err();
        assert_eq!((error.code, error.retry_after), (Code::ResourceExhausted, None));
        assert_eq!(bodies.read(Body::from(vec![7; 10]), 10).await.unwrap().bytes.len(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let never = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
        let error = Bodies::new().read(Body::from_stream(never), 10).await.unwrap_err();
        assert_eq!(error.code, Code::DeadlineExceeded);
        let broken = futures_util::stream::iter([Err::<Vec<u8>, _>(std::io::Error::other("cut"))]);
        let error = Bodies::new().read(Body::from_stream(broken), 10).await.unwrap_err();
        assert_eq!(error.code, Code::Canceled, "{error}");
    }
}
