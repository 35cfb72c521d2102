//! The thread that speaks with the database, for callers that do not wait for several things at once.

use std::ops::AsyncFnOnce;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sqlx::{AnyConnection, Connection as _};
use tokio::runtime::Runtime;

use super::{Error, Result};

type Job = Box<dyn FnOnce(&Runtime, &mut Link) + Send>;

/// A connection on a thread of its own. Each caller waits for its answer, so that no more jobs wait than there are callers.
#[derive(Debug)]
pub(super) struct Database {
    /// `None` at the end.
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread has.
struct Link {
    url: String,
    /// Whose commits are taken; `None` until the owner is known.
    epoch: Option<i64>,
    /// `None` after it broke.
    connection: Option<AnyConnection>,
}

impl Database {
    /// Starts the thread, which connects at once.
    pub(super) fn start(url: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Thread)?;
        let (jobs, taken) = mpsc::channel::<Job>();
        let mut link = Link { url: url.to_owned(), epoch: None, connection: None };
        let work = move || {
            for job in taken {
                job(&runtime, &mut link);
            }
            // SQLite puts its log into the file then. What is committed is durable without it.
            if let Some(connection) = link.connection {
                drop(runtime.block_on(connection.close()));
            }
        };
        let thread = thread::Builder::new().name("catalogue".to_owned()).spawn(work);
        Ok(Self { jobs: Some(jobs), thread: Some(thread.map_err(Error::Thread)?) })
    }

    /// Does all of `work` or nothing of it.
    ///
    /// # Errors
    ///
    /// What `work` says. After one that [`Error::is_unknown`] it may have been done.
    pub(super) fn transact<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&mut AnyConnection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.ask(async |link: &mut Link| link.transact(work).await)
    }

    /// From here on only this epoch's owner may commit.
    pub(super) fn own(&self, epoch: i64) -> Result<()> {
        self.ask(async move |link: &mut Link| {
            link.epoch = Some(epoch);
            Ok(())
        })
    }

    fn ask<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&mut Link) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = mpsc::sync_channel(1);
        let job: Job = Box::new(move |runtime, link| {
            // Whoever asked waits for it, or its thread is gone.
            drop(reply.send(runtime.block_on(link.within(work))));
        });
        let jobs = self.jobs.as_ref().ok_or(Error::Ended)?;
        jobs.send(job).map_err(|_gone| Error::Ended)?;
        answer.recv().map_err(|_gone| Error::Ended)?
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// A database that does not answer for so long is taken for gone. Closing 64 cells of 50,000 series takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);

impl Link {
    async fn within<T>(&mut self, work: impl AsyncFnOnce(&mut Self) -> Result<T>) -> Result<T> {
        // What it was doing ends with the connection.
        tokio::time::timeout(PATIENCE, work(self)).await.unwrap_or(Err(Error::Slow))
    }

    async fn transact<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut AnyConnection) -> Result<T>,
    ) -> Result<T> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => ducklake::connect(&self.url).await?,
        };
        let mut transaction = ducklake::begin(&mut connection).await?;
        let outcome = async {
            if let Some(epoch) = self.epoch {
                check_owner(&mut transaction, epoch).await?;
            }
            work(&mut transaction).await
        };
        let outcome = match outcome.await {
            Ok(done) => transaction.commit().await.map(|()| done).map_err(Error::from),
            Err(error) => match transaction.rollback().await {
                Ok(()) => Err(error),
                Err(_) => return Err(error),
            },
        };
        // A connection that failed is not used again: what it is in the middle of is not known.
        if !outcome.as_ref().is_err_and(Error::is_unknown) {
            self.connection = Some(connection);
        }
        outcome
    }
}

/// Refuses when another process took the catalogue over, and keeps others from doing so until the end of the transaction.
async fn check_owner(connection: &mut AnyConnection, epoch: i64) -> Result<()> {
    let touched = sqlx::query("UPDATE throughline_owner SET epoch = epoch WHERE epoch = $1")
        .bind(epoch)
        .execute(connection)
        .await?;
    if touched.rows_affected() == 1 { Ok(()) } else { Err(Error::Taken) }
}
