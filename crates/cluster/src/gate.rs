//! How tasks come in: few at a time. The others stay with who sends them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Request;
use tokio::sync::Semaphore;
use tonic::server::NamedService;
use tower_service::Service;

/// The request that brings a task, of those that datafusion-distributed makes.
const BRINGS_A_TASK: &str = "/CoordinatorChannel";

/// Lets so many requests in at a time that bring a task. One is in until its task has a place; what comes after it is not read, so
/// that it is kept where it comes from, but for a window of its stream. All other requests pass.
#[derive(Debug, Clone)]
pub(crate) struct Gate<S> {
    inner: S,
    inside: Arc<Semaphore>,
}

impl<S> Gate<S> {
    pub(crate) fn new(inner: S, inside: usize) -> Self {
        Self { inner, inside: Arc::new(Semaphore::new(inside)) }
    }
}

impl<S: NamedService> NamedService for Gate<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B> Service<Request<B>> for Gate<S>
where
    S: Service<Request<B>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !request.uri().path().ends_with(BRINGS_A_TASK) {
            return Box::pin(self.inner.call(request));
        }
        // The one that was asked whether it is ready does it.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let inside = Arc::clone(&self.inside);
        Box::pin(async move {
            // Without a permit only when the semaphore is closed, which nobody does.
            let _permit = inside.acquire_owned().await.ok();
            inner.call(request).await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use futures_util::FutureExt;
    use tokio::sync::OwnedSemaphorePermit;

    use super::*;

    /// Says what has come to it, and answers when there is a place.
    #[derive(Clone)]
    struct Places {
        free: Arc<Semaphore>,
        come: Arc<Mutex<Vec<String>>>,
    }

    impl Service<Request<()>> for Places {
        type Response = OwnedSemaphorePermit;
        type Error = Infallible;
        type Future =
            Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<()>) -> Self::Future {
            self.come.lock().unwrap().push(request.uri().path().to_owned());
            Box::pin(Arc::clone(&self.free).acquire_owned().map(|place| Ok(place.unwrap())))
        }
    }

    #[test]
    fn who_waits_for_a_place_keeps_other_tasks_out_and_nothing_else() {
        let come = Arc::new(Mutex::new(Vec::new()));
        let places = Places { free: Arc::new(Semaphore::new(1)), come: Arc::clone(&come) };
        let mut gate = Gate::new(places, 1);
        let mut ask = |path: &str| gate.call(Request::get(path).body(()).unwrap());
        let task = |name: &str| format!("/{name}{BRINGS_A_TASK}");
        let first = ask(&task("1")).now_or_never().unwrap().unwrap();
        let (mut second, mut third) = (ask(&task("2")), ask(&task("3")));
        let mut other = ask("/other");
        assert!((&mut second).now_or_never().is_none());
        assert!((&mut third).now_or_never().is_none());
        assert!((&mut other).now_or_never().is_none());
        assert_eq!(*come.lock().unwrap(), [task("1"), "/other".to_owned(), task("2")]);
        drop(first);
        drop(other);
        drop(second.now_or_never().unwrap());
        drop(third.now_or_never().unwrap());
        assert_eq!(come.lock().unwrap().last(), Some(&task("3")));
    }

    #[test]
    fn who_goes_away_lets_the_next_one_in() {
        let (free, come) = (Arc::new(Semaphore::new(0)), Arc::default());
        let mut gate = Gate::new(Places { free: Arc::clone(&free), come }, 1);
        let mut ask = || gate.call(Request::get(BRINGS_A_TASK).body(()).unwrap());
        let (mut first, mut second) = (ask(), ask());
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        free.add_permits(1);
        assert!(second.now_or_never().is_some());
    }
}
