//! The engine whose hands are elsewhere.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use blocks::{Engine, EngineError, Hands, MAX_TASK_BYTES, Outcome, Step, Work};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder};
use datafusion::prelude::SessionContext;
use datafusion_distributed::{
    DistributedExt, RouteTasksEvent, RouteTasksEventResponse, SessionStateBuilderExt,
    WorkerResolver,
};
use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use url::Url;

use crate::address::{Address, MAX_WORKERS};
use crate::channel::{Channels, name};
use crate::codec::Codec;
use crate::error::{Error, Lost};
use crate::plan::{Steps, cut, desired_tasks, reports};
use crate::split::{rounds, tasks};
use crate::version;

/// How many bytes the steps of one plan may take together: with what they have to know of the job, they fit into a task.
const ROUND_BYTES: usize = MAX_TASK_BYTES / 2;

/// Has steps done by those workers that answer. Who they are is asked for each plan anew.
#[derive(Debug)]
pub struct Cluster<'h> {
    hands: &'h Hands,
    addresses: Vec<Address>,
    tasks: Option<NonZeroUsize>,
    runtime: Runtime,
    version: String,
    stop: watch::Sender<bool>,
    absent: Mutex<BTreeMap<String, String>>,
}

/// Those who answered.
struct Workers {
    urls: Vec<Url>,
    channels: Channels,
}

impl WorkerResolver for Workers {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.urls.clone())
    }
}

impl<'h> Cluster<'h> {
    /// Workers at these addresses. Hands bring the blocks that workers commit.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] without a thread; [`Error::Blocks`].
    pub fn new(hands: &'h Hands, addresses: Vec<Address>) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("cluster")
            .enable_all()
            .build()
            .map_err(|source| Error::Io { what: "cannot start threads".to_owned(), source })?;
        Ok(Self {
            hands,
            addresses,
            tasks: None,
            runtime,
            version: version()?,
            stop: watch::Sender::new(false),
            absent: Mutex::default(),
        })
    }

    /// Cuts each plan into so many tasks, at least two and at most [`crate::MAX_TASKS`] for each worker that answers; else there is
    /// one for each.
    #[must_use]
    pub fn with_tasks(self, tasks: NonZeroUsize) -> Self {
        Self { tasks: Some(tasks), ..self }
    }

    /// Workers that did not answer when they were asked, and why, a line each. Bound: the workers that addresses stand for.
    #[must_use]
    pub fn absent(&self) -> Vec<String> {
        let absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        absent.values().cloned().collect()
    }

    /// Waits, unless it is stopped before.
    fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T, EngineError> {
        let mut stop = self.stop.subscribe();
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => Err(EngineError::Stopped),
                done = future => Ok(done),
            }
        })
    }

    /// The workers that answer and are of this version.
    async fn workers(&self) -> Result<Workers, EngineError> {
        let channels = Channels::default();
        let mut tried = BTreeMap::new();
        let mut urls: Vec<Url> = Vec::new();
        for address in &self.addresses {
            match address.resolve().await {
                Ok(sockets) => urls.extend(sockets.iter().filter_map(|socket| url_of(*socket))),
                Err(error) => drop(tried.insert(
                    address.to_string(),
                    format!("worker {address}: cannot be found: {error}"),
                )),
            }
        }
        urls.sort();
        urls.dedup();
        urls.truncate(MAX_WORKERS);
        let answers = join_all(urls.iter().map(|url| channels.greet(url))).await;
        let mut there = Vec::new();
        for (url, answer) in urls.into_iter().zip(answers) {
            match answer {
                Ok(version) if version == self.version => there.push(url),
                Ok(version) => {
                    let problem = format!("it is {version:?}; this is {:?}", self.version);
                    let place = format!("worker {}", name(&url));
                    return Err(blocks::Error::Step { place, problem }.into());
                }
                Err(error) => drop(tried.insert(name(&url), line(&error))),
            }
        }
        let mut absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        tried.iter().for_each(|(name, line)| drop(absent.insert(name.clone(), line.clone())));
        if there.is_empty() {
            return Err(EngineError::Nobody { tried: tried.into_values().collect() });
        }
        Ok(Workers { urls: there, channels })
    }

    /// Plans steps for these workers and begins to execute the plan.
    async fn begin(
        &self,
        workers: Workers,
        work: &Arc<Work>,
        steps: Vec<Step>,
    ) -> Result<SendableRecordBatchStream> {
        let tasks = tasks(workers.urls.len(), self.tasks.map(NonZeroUsize::get));
        let urls = workers.urls.clone();
        let in_turn = move |event: RouteTasksEvent<'_>| {
            let urls = urls.iter().cycle().take(event.task_count).cloned().collect();
            Some(Ok(RouteTasksEventResponse::new(urls)))
        };
        let channels = workers.channels.clone();
        let state = SessionStateBuilder::new()
            .with_distributed_worker_resolver(workers)
            .with_distributed_channel_resolver(channels)
            .with_distributed_planner()
            .with_distributed_max_tasks_per_stage(tasks)?
            .with_distributed_metrics_collection(false)?
            .with_distributed_compression(None)?
            .with_distributed_user_codec(Codec { place: None })
            .with_distributed_desired_task_count_handler(desired_tasks)
            .with_distributed_scale_up_leaf_node_handler(cut)
            .with_distributed_route_tasks_handler(in_turn)
            .build();
        let table = Steps { work: Arc::clone(work), steps, tasks };
        SessionContext::new_with_state(state).read_table(Arc::new(table))?.execute_stream().await
    }

    /// Does the steps of one plan.
    fn round(
        &self,
        work: &Arc<Work>,
        steps: Vec<Step>,
        take: &mut dyn FnMut(Outcome) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, EngineError> {
        let lost = |error: DataFusionError| EngineError::Lost { what: line(&error) };
        let workers = self.wait(self.workers())??;
        let mut rows = self.wait(self.begin(workers, work, steps))?.map_err(lost)?;
        while let Some(batch) = self.wait(rows.next())? {
            for report in batch.and_then(|batch| reports(&batch)).map_err(lost)? {
                let outcome = self.hands.outcome(work, report)?;
                if take(outcome).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl Engine for Cluster<'_> {
    fn run(
        &self,
        work: &Arc<Work>,
        steps: Vec<Step>,
        take: &mut dyn FnMut(Outcome) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        if work.blocks.is_none() {
            let place = "workers".to_owned();
            let problem = "what they make is kept as blocks: say where".to_owned();
            return Err(blocks::Error::Step { place, problem }.into());
        }
        let bytes: Vec<usize> =
            steps.iter().map(Step::encoded_len).collect::<Result<_, blocks::Error>>()?;
        for round in rounds(&bytes, ROUND_BYTES) {
            let steps = steps.get(round).unwrap_or_default().to_vec();
            if self.round(work, steps, take)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn cancel(&self) {
        self.stop.send_replace(true);
    }

    fn is_cancelled(&self) -> bool {
        *self.stop.borrow()
    }
}

fn url_of(socket: std::net::SocketAddr) -> Option<Url> {
    Url::parse(&format!("http://{socket}")).ok()
}

/// What a plan ended with, on one line: which worker was lost, if one was.
fn line(error: &DataFusionError) -> String {
    let mut causes =
        std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| {
            error.source()
        });
    match causes.find_map(|cause| cause.downcast_ref::<Lost>()) {
        Some(lost) => lost.to_string(),
        None => error.strip_backtrace().lines().next().unwrap_or_default().to_owned(),
    }
}
