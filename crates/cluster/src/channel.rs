//! Connections to workers, whose errors say which worker.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, SetPlanRequest, TaskKey, WorkerChannel, WorkerToCoordinatorMsg,
};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::HeaderMap;
use tokio::sync::SetOnce;
use tonic::transport::{Channel, Endpoint};
use url::Url;

use crate::error::Lost;
use crate::plan::external;

/// How long a worker may take to take a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// A machine that is gone without a word is asked after so long…
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(5);
/// …and given up when it has not answered for so long.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// The connections of one plan. Bound: its workers, and its tasks.
#[derive(Clone, Default)]
pub(crate) struct Channels {
    open: Arc<Mutex<BTreeMap<Url, Channel>>>,
    given: Arc<Mutex<HashMap<TaskKey, Arc<SetOnce<()>>>>>,
}

impl Channels {
    /// Connects to a worker and asks what it is.
    pub(crate) async fn greet(&self, url: &Url) -> Result<String> {
        let greeting = async {
            let mut client = self.client(url).await?;
            client.get_worker_info(GetWorkerInfoRequest {}).await
        };
        match tokio::time::timeout(2 * CONNECT, greeting).await {
            Ok(answer) => Ok(answer?.version),
            Err(_) => Err(lost(url, "does not say what it is".to_owned())),
        }
    }

    async fn client(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let known = self.open.lock().unwrap_or_else(PoisonError::into_inner).get(url).cloned();
        let channel = match known {
            Some(channel) => channel,
            None => self.connect(url).await?,
        };
        let inner = create_worker_client(BoxCloneSyncChannel::new(channel));
        Ok(Box::new(Named { url: url.clone(), inner, channels: self.clone() }))
    }

    /// Set when a worker has answered that it has a task, or will not have it.
    fn given(&self, task: TaskKey) -> Arc<SetOnce<()>> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(given.entry(task).or_default())
    }

    async fn connect(&self, url: &Url) -> Result<Channel> {
        let failed = |error: tonic::transport::Error| lost(url, model::with_causes(&error));
        let channel = Endpoint::from_shared(url.to_string())
            .map_err(failed)?
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(ASK_EVERY)
            .keep_alive_timeout(ANSWER_WITHIN)
            .keep_alive_while_idle(true)
            .connect()
            .await
            .map_err(failed)?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(url.clone(), channel.clone());
        Ok(channel)
    }
}

#[async_trait]
impl ChannelResolver for Channels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        self.client(url).await
    }
}

/// What a worker is called: its host and port.
pub(crate) fn name(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or_default();
    format!("{}:{port}", url.host_str().unwrap_or_default())
}

fn lost(url: &Url, why: String) -> DataFusionError {
    external(Lost { worker: name(url), why })
}

/// A client whose errors begin with its worker's name, and who asks for the rows of a task when its worker has it: one that is asked
/// before waits for the task, but not as long as for a place.
struct Named {
    url: Url,
    inner: Box<dyn WorkerChannel>,
    channels: Channels,
}

impl Named {
    fn names(&self) -> impl Fn(DataFusionError) -> DataFusionError + Send + Sync + Clone + use<> {
        let url = self.url.clone();
        move |error| {
            lost(&url, error.strip_backtrace().lines().next().unwrap_or_default().to_owned())
        }
    }
}

#[async_trait]
impl WorkerChannel for Named {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        set_plan_request: SetPlanRequest,
        to_worker: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let names = self.names();
        let given = self.channels.given(set_plan_request.task_key);
        let opened = self
            .inner
            .coordinator_channel(headers, set_plan_request, to_worker, metrics, task_ctx)
            .await;
        // A key is of one task, which is given once.
        drop(given.set(()));
        let from_worker = opened.map_err(&names)?;
        Ok(from_worker.map(move |message| message.map_err(&names)).boxed())
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let names = self.names();
        self.channels.given(request.task_key).wait().await;
        let begun = self.inner.execute_task(headers, request, metrics, task_ctx).await;
        let streams = begun.map_err(&names)?.into_iter();
        let named = |rows: BoxStream<'static, Result<RecordBatch>>| {
            let names = names.clone();
            rows.map(move |rows| rows.map_err(&names)).boxed()
        };
        Ok(streams.map(named).collect())
    }

    async fn get_worker_info(
        &mut self,
        request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse> {
        self.inner.get_worker_info(request).await.map_err(self.names())
    }
}
