//! Questions in SQL, and their answers batch by batch.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::CatalogProvider;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use futures_util::StreamExt;
use mapper::PeriodRules;
use objects::Io;
use store::lake::Reader;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tracedir::{ClassCache, ReadOptions, Recording};

use crate::error::Error;
use crate::items::Items;
use crate::profiles::{self, Profiles};
use crate::source::{Lost, Progress, Recordings};
use crate::table::{Catalog, PUBLIC};
use crate::typed::{self, Files, is_exported};

/// Longest question that is read.
pub const MAX_SQL_BYTES: usize = 1 << 20;

/// The most keywords, operators and commas of a question. The engine goes down one call for each level of nesting, and
/// `a + b + c + …` nests as often as it has operators.
pub const MAX_STEPS: usize = 500;

/// Room for [`MAX_STEPS`] levels of nesting; only what is used is ever taken from the machine.
const STACK_BYTES: usize = 128 << 20;

/// How many batches may wait for who takes them.
const AHEAD: usize = 2;

/// The memory that sorting keeps for merging what it has written to files; less where there is little.
const MERGE_BYTES: usize = 10 << 20;

/// What answering may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that sorting, grouping and joining may hold in memory; what is more goes through temporary files where the
    /// operator can do that, and is an error elsewhere. Decoding holds [`Self::threads`] packets and a few batches beside.
    pub memory_bytes: usize,
    /// Threads.
    pub threads: usize,
}

/// Recordings that can be asked in SQL.
pub struct Database {
    context: SessionContext,
    asked: Asked,
    progress: Arc<Progress>,
    runtime: Runtime,
}

/// What is asked.
#[derive(Debug)]
enum Asked {
    Recordings(Arc<Recordings>),
    Exported(Arc<Files>),
    Profiles(Arc<Profiles>),
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Database {
    /// Opens all traces at or below `paths`, or files that [`export_events`](crate::export_events) has written; the table of
    /// periods has those that `periods` defines.
    ///
    /// # Errors
    /// As [`Recording::open_as`]; [`Error::NotExported`], [`Error::Mixed`]; [`Error::Io`] when no thread can be started.
    pub fn open<P: AsRef<Path>>(
        paths: &[P],
        options: &ReadOptions,
        periods: Option<PeriodRules>,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let exported = paths.iter().filter(|path| is_exported(path.as_ref())).count();
        if exported > 0 && exported < paths.len() {
            return Err(Error::Mixed);
        }
        let (asked, progress, catalog): (_, _, Arc<dyn CatalogProvider>) = if exported > 0 {
            let files = Arc::new(Files::open(paths)?);
            let catalog = typed::Catalog::new(Arc::clone(&files));
            (Asked::Exported(files), Arc::default(), Arc::new(catalog))
        } else {
            let recording = Recording::open_as(paths, options, &mut ClassCache::default())?;
            let recordings = Arc::new(Recordings::new(recording));
            let progress = Arc::clone(&recordings.progress);
            let paths = paths.iter().map(|path| path.as_ref().to_owned()).collect();
            let threads = NonZeroUsize::new(limits.threads);
            let analysing = mapper::Options { threads, ..mapper::Options::default() };
            let items = Items::new(paths, analysing, periods, Arc::clone(&recordings));
            let catalog = Catalog::new(&recordings, items);
            (Asked::Recordings(recordings), progress, Arc::new(catalog))
        };
        Self::start(asked, progress, catalog, limits)
    }

    /// Opens the blocks of a profile store: a folder, a bucket, or one block's file. Which blocks there are is asked of the catalogue at
    /// a URL, or of the folder's own; where there is none, of the blocks.
    ///
    /// # Errors
    /// [`Error::Profiles`]; [`Error::Io`] when no thread can be started.
    pub fn open_profiles(
        place: &str,
        catalogue: Option<&str>,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let io = Io::start().map_err(store::Error::from)?;
        let profiles = Arc::new(Profiles(Reader::open(place, catalogue, &io)?));
        let catalog = profiles::Catalog(Arc::clone(&profiles));
        Self::start(Asked::Profiles(profiles), Arc::default(), Arc::new(catalog), limits)
    }

    fn start(
        asked: Asked,
        progress: Arc<Progress>,
        catalog: Arc<dyn CatalogProvider>,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(limits.threads.max(1))
            .thread_stack_size(STACK_BYTES)
            .thread_name("query")
            .build()?;
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(limits.memory_bytes)))
            .build_arc()?;
        let config = SessionConfig::new()
            .with_target_partitions(limits.threads.max(1))
            .with_sort_spill_reservation_bytes(MERGE_BYTES.min(limits.memory_bytes / 6))
            .with_information_schema(true)
            .with_create_default_catalog_and_schema(false)
            .with_default_catalog_and_schema("throughline", PUBLIC);
        let context = SessionContext::new_with_config_rt(config, environment);
        context.register_catalog("throughline", catalog);
        Ok(Self { context, asked, progress, runtime })
    }

    /// Plans the answer to a question: one statement that changes nothing.
    ///
    /// # Errors
    /// [`Error::Query`] when it is not understood, [`Error::TooLong`], [`Error::TooManySteps`].
    pub fn ask(&self, sql: &str) -> Result<Answer<'_>, Error> {
        if sql.len() > MAX_SQL_BYTES {
            return Err(Error::TooLong { len: sql.len() });
        }
        let steps = steps(sql);
        if steps > MAX_STEPS {
            return Err(Error::TooManySteps { steps });
        }
        let (context, sql) = (self.context.clone(), sql.to_owned());
        let (rows, receiver) = mpsc::channel(AHEAD);
        let planned = self.runtime.spawn(async move {
            let only_questions = SQLOptions::new()
                .with_allow_ddl(false)
                .with_allow_dml(false)
                .with_allow_statements(false);
            let frame = context.sql_with_options(&sql, only_questions).await?;
            let plan = frame.create_physical_plan().await?;
            let stream = execute_stream(Arc::clone(&plan), context.task_ctx())?;
            Ok::<_, DataFusionError>((plan, stream))
        });
        let (plan, stream) = self.runtime.block_on(planned).map_err(ended)??;
        let schema = stream.schema();
        self.runtime.spawn(hand_over(stream, rows));
        Ok(Answer { plan, schema, rows: receiver, database: self })
    }

    /// How far reading is.
    #[must_use]
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Bytes of all files that a question about everything reads.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.asked {
            Asked::Recordings(recordings) => recordings.bytes(),
            Asked::Exported(files) => files.bytes(),
            Asked::Profiles(profiles) => profiles.0.bytes(),
        }
    }

    /// What was lost when the traces were recorded, in what was read so far.
    #[must_use]
    pub fn lost(&self) -> Lost {
        match &self.asked {
            Asked::Recordings(recordings) => recordings.lost(),
            Asked::Exported(files) => files.lost(),
            Asked::Profiles(_) => Lost::default(),
        }
    }

    /// What could not be read so far, and how much more of that there was than is listed.
    #[must_use]
    pub fn findings(&self) -> (Vec<String>, u64) {
        match &self.asked {
            Asked::Recordings(recordings) => recordings.findings(),
            Asked::Exported(_) | Asked::Profiles(_) => (Vec::new(), 0),
        }
    }
}

/// Takes rows from the plan until there are no more, or nobody wants them.
async fn hand_over(
    mut stream: SendableRecordBatchStream,
    rows: mpsc::Sender<Result<RecordBatch, DataFusionError>>,
) {
    while let Some(batch) = stream.next().await {
        if rows.send(batch).await.is_err() {
            break;
        }
    }
}

/// A task of ours is never aborted: it ended early because of a mistake in it.
fn ended(error: tokio::task::JoinError) -> Error {
    match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => Error::Io(error.into()),
    }
}

/// How many keywords, operators and commas a question has.
fn steps(sql: &str) -> usize {
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, sql).tokenize() else {
        // What is no SQL is refused where it is understood, before anything nests.
        return 0;
    };
    let is_step = |token: &&Token| match token {
        Token::Word(word) => word.keyword != Keyword::NoKeyword,
        Token::Whitespace(_)
        | Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::LParen
        | Token::RParen
        | Token::Period
        | Token::SemiColon
        | Token::EOF => false,
        _ => true,
    };
    tokens.iter().filter(is_step).count()
}

/// Rows, batch by batch.
pub struct Answer<'d> {
    plan: Arc<dyn ExecutionPlan>,
    schema: SchemaRef,
    rows: mpsc::Receiver<Result<RecordBatch, DataFusionError>>,
    /// Its threads make the rows.
    database: &'d Database,
}

impl std::fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl Answer<'_> {
    /// The columns.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The next rows; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Query`] when the question cannot be answered after all: a division by zero, too little memory.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        Ok(self.database.runtime.block_on(self.rows.recv()).transpose()?)
    }

    /// What the operators that read event records have counted under this name, such as `packets_read`; see `EXPLAIN ANALYZE`.
    #[must_use]
    pub fn counted(&self, name: &str) -> usize {
        fn sum(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
            let own = plan.metrics().and_then(|metrics| metrics.sum_by_name(name));
            let own = own.map_or(0, |value| value.as_usize());
            own + plan.children().into_iter().map(|child| sum(child, name)).sum::<usize>()
        }
        sum(&self.plan, name)
    }
}
