//! A way to PostgreSQL on which answers are lost.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

/// The name of the server's socket in its folder.
const SOCKET: &str = ".s.PGSQL.5432";
const OPEN: u8 = 0;
const CUT_AT_COMMIT: u8 = 1;
const CLOSED: u8 = 2;

/// Passes on what is said, until it is told to lose the answer to a commit.
#[derive(Debug, Clone)]
pub(crate) struct Cut(Arc<AtomicU8>);

impl Cut {
    /// From a socket in one folder to the server's in another.
    pub(crate) fn start(from: &Path, to: &Path) -> Self {
        let listener = UnixListener::bind(from.join(SOCKET)).unwrap();
        let server = to.join(SOCKET);
        let state = Arc::new(AtomicU8::new(OPEN));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.load(Ordering::SeqCst) == CLOSED {
                    continue;
                }
                let (state, server) = (Arc::clone(&shared), server.clone());
                thread::spawn(move || drop(pass(&client, &server, &state)));
            }
        });
        Self(state)
    }

    /// The next commit is done, and not answered; nobody gets through after it.
    pub(crate) fn at_commit(&self) {
        self.0.store(CUT_AT_COMMIT, Ordering::SeqCst);
    }

    /// Whether that has happened.
    pub(crate) fn is_cut(&self) -> bool {
        self.0.load(Ordering::SeqCst) == CLOSED
    }

    /// All gets through.
    pub(crate) fn open(&self) {
        self.0.store(OPEN, Ordering::SeqCst);
    }
}

fn pass(client: &UnixStream, server: &Path, state: &AtomicU8) -> io::Result<()> {
    let server = UnixStream::connect(server)?;
    let (mut answers, mut back) = (server.try_clone()?, client.try_clone()?);
    let (mut asked, mut on) = (client.try_clone()?, server.try_clone()?);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut piece = [0; 8192];
            while let Ok(length @ 1..) = answers.read(&mut piece) {
                // The answer to the commit came, which is lost.
                if state.load(Ordering::SeqCst) == CLOSED
                    || back.write_all(&piece[..length]).is_err()
                {
                    break;
                }
            }
            drop((answers.shutdown(Shutdown::Both), back.shutdown(Shutdown::Both)));
        });
        let mut piece = [0; 8192];
        while let Ok(length @ 1..) = asked.read(&mut piece) {
            let is_commit = piece[..length].windows(7).any(|it| it == b"COMMIT\0");
            if is_commit && state.load(Ordering::SeqCst) == CUT_AT_COMMIT {
                state.store(CLOSED, Ordering::SeqCst);
            }
            if on.write_all(&piece[..length]).is_err() {
                break;
            }
        }
        drop((on.shutdown(Shutdown::Both), asked.shutdown(Shutdown::Both)));
    });
    Ok(())
}
