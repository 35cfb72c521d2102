//! The port at which services of OpenStack and `osprofiler trace` find what they take for a Redis server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use osprofiler::{Next, Password, Session};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::error::{Error, Result};
use crate::intake::Shared;
use crate::notifications::Door;
use crate::run::spawn;

/// Connections at a time; those that come later wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 1024;
/// What is read at a time, in bytes.
const READ: usize = 64 << 10;

/// A port that is open.
#[derive(Debug)]
pub(crate) struct RedisPort {
    pub(crate) address: SocketAddr,
    stop: watch::Sender<()>,
    thread: JoinHandle<()>,
}

impl RedisPort {
    pub(crate) fn open(
        address: SocketAddr,
        password: Option<&str>,
        shared: Arc<Shared>,
    ) -> Result<Self> {
        let failed = |source| Error::Port { address, source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::Thread)?;
        let listener = runtime.block_on(TcpListener::bind(address)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = watch::channel(());
        let password = password.map(|it| Arc::new(Password::new(it)));
        let thread = spawn("redis", move || {
            runtime.block_on(serve(listener, password, shared, stopped));
        })?;
        Ok(Self { address, stop, thread })
    }

    /// Ends; what was answered is kept.
    pub(crate) fn close(self) {
        drop(self.stop);
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

async fn serve(
    listener: TcpListener,
    password: Option<Arc<Password>>,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<()>,
) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    for id in 1.. {
        let accept = async {
            let place = Arc::clone(&room).acquire_owned().await;
            (place, listener.accept().await)
        };
        let accepted = tokio::select! {
            accepted = accept => accepted,
            // The sender is gone.
            _ = stopped.changed() => return,
        };
        let (Ok(place), Ok((stream, _))) = accepted else {
            // There is no descriptor left.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let session = Session::new(id, password.clone());
        let door = Door { shared: Arc::clone(&shared) };
        tokio::spawn(async move {
            let _place = place;
            // A client that goes away at any moment has had what it waited for.
            drop(converse(stream, session, door).await);
        });
    }
}

async fn converse(
    mut stream: TcpStream,
    mut session: Session,
    mut door: Door,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut bytes, mut replies) = (vec![0; READ], Vec::new());
    loop {
        let len = stream.read(&mut bytes).await?;
        if len == 0 {
            return Ok(());
        }
        let mut came = bytes.get(..len).unwrap_or_default();
        loop {
            let next = session.feed(came, &mut door, &mut replies);
            stream.write_all(&replies).await?;
            replies.clear();
            match next {
                Next::Read => break,
                Next::Write => came = &[],
                Next::Close => return Ok(()),
            }
        }
        replies.shrink_to(READ);
    }
}
