//! Being told to end.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT and SIGTERM; what each means is the listener's to say.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// From here on the signals do not end the process by themselves. Needs a runtime.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let on = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
        })
    }

    /// Waits for the next of them.
    pub(crate) async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// For those without a runtime: something is received at the first signal; a second one ends the process at once.
pub(crate) fn on_signal() -> anyhow::Result<Receiver<()>> {
    on_signal_set(Arc::default())
}

/// As [`on_signal`]; also sets a flag, for those who wait for something else.
pub(crate) fn on_signal_set(flag: Arc<AtomicBool>) -> anyhow::Result<Receiver<()>> {
    let (sender, receiver) = mpsc::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let mut stop = runtime.block_on(async { Stop::listen() })?;
    thread::spawn(move || {
        runtime.block_on(async {
            stop.asked().await;
            flag.store(true, Ordering::Relaxed);
            // When nobody listens any more, the process is ending already.
            if sender.send(()).is_ok() {
                stop.asked().await;
                process::exit(130);
            }
        });
    });
    Ok(receiver)
}

/// Calls `act` at each SIGUSR1, which does not end the process from here on.
pub(crate) fn on_user_signal(act: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let listen = async { signal(SignalKind::user_defined1()) };
    let mut asked = runtime.block_on(listen).context("cannot listen for signals")?;
    thread::spawn(move || {
        runtime.block_on(async {
            while asked.recv().await.is_some() {
                act();
            }
        });
    });
    Ok(())
}
