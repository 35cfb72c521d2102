//! Workers that live as long as a test wants.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use cluster::Address;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::recipe::hands;

/// A worker of this process, on a port of its own.
pub(crate) struct Worker {
    pub(crate) address: SocketAddr,
    _stop: oneshot::Sender<()>,
    _runtime: Runtime,
}

impl Worker {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let (hands, threads) = (Arc::new(hands()), NonZeroUsize::new(2));
        runtime.spawn(cluster::serve(listener, hands, threads, async {
            // It ends with the worker.
            drop(stopped.await);
        }));
        Self { address, _stop: stop, _runtime: runtime }
    }
}

pub(crate) fn crew(count: usize) -> Vec<Worker> {
    (0..count).map(|_| Worker::start()).collect()
}

pub(crate) fn addresses(crew: &[Worker]) -> Vec<Address> {
    crew.iter().map(|worker| worker.address.to_string().parse().unwrap()).collect()
}
