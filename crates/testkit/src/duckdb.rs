//! DuckDB with its extension for DuckLake, as a process that is asked.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// Attaches a catalogue, then answers each line of JSON, a query, by one with rows or a text that says what is wrong.
const PROGRAM: &str = r#"
import glob, importlib.util, json, sys
import duckdb
connection = duckdb.connect()
for name in ("ducklake", "sqlite_scanner", "postgres_scanner"):
    [folder] = importlib.util.find_spec("duckdb_extension_" + name).submodule_search_locations
    [file] = glob.glob(folder + "/extensions/*/*.duckdb_extension")
    connection.execute(f"LOAD '{file}'")
connection.execute("SET enable_progress_bar = false")
connection.execute("SET TimeZone = 'UTC'")
connection.execute(f"ATTACH 'ducklake:{sys.argv[1]}' AS lake ({sys.argv[2]})")
connection.execute("USE lake")
for line in sys.stdin:
    try:
        answer = connection.execute(json.loads(line)).fetchall()
    except Exception as error:
        answer = str(error)
    print(json.dumps(answer, default=str), flush=True)
"#;

/// A session in which a catalogue is attached.
#[derive(Debug)]
pub struct DuckDb {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl DuckDb {
    /// Whether there is one; said, when not.
    #[must_use]
    pub fn is_there() -> bool {
        let imports = "import duckdb, duckdb_extension_ducklake, duckdb_extension_sqlite_scanner, duckdb_extension_postgres_scanner";
        let output = Command::new("python-duckdb").args(["-c", imports]).output();
        let is_there = output.is_ok_and(|output| output.status.success());
        if !is_there {
            crate::skip("no python-duckdb with DuckLake (./test sets it up)");
        }
        is_there
    }

    /// Attaches `sqlite:PATH` or `postgres:…` as DuckDB writes addresses.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn attach(address: &str) -> Self {
        Self::attach_with(address, "READ_ONLY")
    }

    /// With other options.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn attach_with(address: &str, options: &str) -> Self {
        let mut command = Command::new("python-duckdb");
        command.args(["-c", PROGRAM, address, options]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a program");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let questions = child.stdin.take();
        Self { child, questions, answers }
    }

    /// All rows of an answer, or why there are none.
    ///
    /// # Errors
    /// What it says is wrong.
    ///
    /// # Panics
    /// When it ends.
    pub fn ask(&mut self, query: &str) -> Result<Value, String> {
        let questions = self.questions.as_mut().expect("a pipe");
        writeln!(questions, "{}", json!(query)).expect("a session that runs");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("text");
        match serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{query}: {answer:?}")) {
            Value::String(error) => Err(error),
            rows => Ok(rows),
        }
    }

    /// All rows of an answer.
    ///
    /// # Panics
    /// When there is none.
    pub fn rows(&mut self, query: &str) -> Value {
        self.ask(query).unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// The one value of an answer.
    ///
    /// # Panics
    /// When there is none.
    pub fn value(&mut self, query: &str) -> Value {
        let rows = self.rows(query);
        rows.pointer("/0/0").unwrap_or_else(|| panic!("{query}: {rows}")).clone()
    }
}

impl Drop for DuckDb {
    fn drop(&mut self) {
        self.questions = None;
        drop(self.child.wait());
    }
}
