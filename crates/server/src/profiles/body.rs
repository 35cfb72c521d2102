//! Bodies of requests, which come as slowly as their senders like.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use wire::pyroscope::{self as connect, Code};

/// KiB of all bodies in memory, those included that have not come whole.
const ALL_KIB: usize = 512 << 10;
/// Of one tenant, where tenants are told apart: as much as the largest body.
const TENANT_KIB: usize = ALL_KIB / 2;
/// A body is there after this time, or refused: whoever sends slowly does not hold memory for longer.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// After which a body may come again for which there was no room.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Room for bodies: of all, and of a tenant.
#[derive(Debug, Clone)]
pub(super) struct Bodies {
    kib: Arc<Semaphore>,
    own_kib: Option<Arc<Semaphore>>,
}

/// A body, with its share of the room.
#[derive(Debug, Default)]
pub(super) struct Whole {
    pub(super) bytes: Vec<u8>,
    held: Option<OwnedSemaphorePermit>,
    own_held: Option<OwnedSemaphorePermit>,
}

impl Bodies {
    pub(super) fn new() -> Self {
        Self { kib: Arc::new(Semaphore::new(ALL_KIB)), own_kib: None }
    }

    /// A tenant's part of it.
    pub(super) fn part(&self) -> Self {
        Self { kib: Arc::clone(&self.kib), own_kib: Some(Arc::new(Semaphore::new(TENANT_KIB))) }
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
        let kib = whole.bytes.len().div_ceil(1 << 10);
        let is_held = hold(&self.kib, &mut whole.held, kib)
            && self.own_kib.as_ref().is_none_or(|own| hold(own, &mut whole.own_held, kib));
        if is_held {
            return Ok(());
        }
        let words = "no memory for more bodies of requests";
        Err(connect::Error::new(Code::Unavailable, words).again_after(AGAIN_AFTER))
    }
}

/// Whether so many are held in the end.
fn hold(of: &Arc<Semaphore>, held: &mut Option<OwnedSemaphorePermit>, wanted: usize) -> bool {
    let has = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
    let missing = u32::try_from(wanted.saturating_sub(has)).unwrap_or(u32::MAX);
    let Ok(more) = Arc::clone(of).try_acquire_many_owned(missing) else { return false };
    match held {
        Some(held) => held.merge(more),
        none => *none = Some(more),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_have_room_together_and_each_by_itself() {
        let bodies = Bodies { kib: Arc::new(Semaphore::new(4)), own_kib: None };
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

    #[tokio::test]
    async fn a_tenant_leaves_room_to_others() {
        let part = |kib| Some(Arc::new(Semaphore::new(kib)));
        let one = Bodies { kib: Arc::new(Semaphore::new(4)), own_kib: part(2) };
        let other = Bodies { own_kib: part(2), ..one.clone() };
        let first = one.read(Body::from(vec![7; 2_048]), 4_096).await.unwrap();
        assert!(one.read(Body::from(vec![7; 1]), 4_096).await.is_err());
        assert_eq!(other.read(Body::from(vec![7; 2_048]), 4_096).await.unwrap().bytes.len(), 2_048);
        drop(first);
        assert!(one.read(Body::from(vec![7; 1]), 4_096).await.is_ok());
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
