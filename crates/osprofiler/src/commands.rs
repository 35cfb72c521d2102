//! The commands that are understood, and their refusals in Redis's words.

use std::ops::Range;

use crate::resp::{Replies, integer};
use crate::session::{self, Client};
use crate::traces::{Key, StoreError, TextKey, Traces};

/// Keys that are looked at for one `SCAN`, and without `COUNT`.
const MAX_SCANNED: usize = 1024;
const SCANNED: usize = 256;
/// Databases that can be selected. All are the same one.
const DATABASES: i64 = 16;
/// What is said of the arguments of an unknown command.
const MAX_SHOWN: usize = 128;

/// A request with all that it may act on.
pub(crate) struct Call<'c, 'o> {
    /// The command's name first.
    pub(crate) arguments: &'c [&'c [u8]],
    pub(crate) client: &'c mut Client,
    pub(crate) replies: Replies<'o>,
    traces: &'c mut dyn Traces,
}

/// An error reply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(String),
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    #[error("ERR DB index is out of range")]
    Database,
    #[error("ERR invalid cursor")]
    Cursor,
    #[error("ERR only a prefix and '*' can be matched")]
    Pattern,
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    #[error(
        "ERR only keys of OSProfiler are kept: osprofiler_opt:, osprofiler_error:, osprofiler:"
    )]
    Key,
    #[error("ERR traces are not deleted by clients; they go by age")]
    Delete,
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    Full,
    #[error("ERR {0}")]
    Store(String),
    #[error("NOAUTH Authentication required.")]
    Stranger,
    #[error("WRONGPASS invalid username-password pair or user is disabled.")]
    WrongPassword,
    #[error(
        "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"
    )]
    NoPassword,
    #[error("ERR Protocol version is not an integer or out of range")]
    VersionNumber,
    #[error("NOPROTO unsupported protocol version")]
    Version,
    #[error("ERR Syntax error in HELLO option '{0}'")]
    HelloOption(String),
    #[error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time"
    )]
    HelloStranger,
    #[error("ERR Client names cannot contain spaces, newlines or special characters.")]
    Name,
    #[error("ERR unknown subcommand '{name}'. Try {command} HELP.")]
    Subcommand { command: &'static str, name: String },
    #[error("ERR unknown command '{name}', with args beginning with: {arguments}")]
    Unknown { name: String, arguments: String },
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full => Self::Full,
            other => Self::Store(other.to_string()),
        }
    }
}

struct Command {
    name: &'static str,
    /// How many arguments it takes, with its name.
    takes: Range<usize>,
    run: fn(&mut Call<'_, '_>) -> Result<(), Refusal>,
}

const fn command(
    name: &'static str,
    takes: Range<usize>,
    run: fn(&mut Call<'_, '_>) -> Result<(), Refusal>,
) -> Command {
    Command { name, takes, run }
}

const ANY: usize = usize::MAX;

const COMMANDS: [Command; 21] = [
    command("lpush", 3..ANY, lpush),
    command("auth", 2..ANY, session::auth),
    command("client", 2..ANY, session::client),
    command("command", 1..ANY, list_commands),
    command("del", 2..ANY, |_call| Err(Refusal::Delete)),
    command("echo", 2..3, echo),
    command("exists", 2..ANY, exists),
    command("get", 2..3, get),
    command("hello", 1..ANY, session::hello),
    command("info", 1..ANY, info),
    command("lindex", 3..4, lindex),
    command("llen", 2..3, llen),
    command("lrange", 4..5, lrange),
    command("ping", 1..ANY, ping),
    command("quit", 1..ANY, session::quit),
    command("reset", 1..2, session::reset),
    command("scan", 2..ANY, scan),
    command("select", 2..3, select),
    command("set", 3..ANY, set),
    command("type", 2..3, kind),
    command("unlink", 2..ANY, |_call| Err(Refusal::Delete)),
];

/// What may be said without the password.
const FOR_STRANGERS: [&str; 4] = ["auth", "hello", "quit", "reset"];

/// Acts on a request, and replies.
pub(crate) fn act(
    arguments: &[&[u8]],
    client: &mut Client,
    traces: &mut dyn Traces,
    replies: Replies<'_>,
) {
    let mut call = Call { arguments, client, replies, traces };
    if let Err(refusal) = call.run() {
        call.replies.error(refusal.to_string().as_bytes());
    }
}

impl<'c> Call<'c, '_> {
    fn run(&mut self) -> Result<(), Refusal> {
        let Some((name, rest)) = self.arguments.split_first() else { return Ok(()) };
        // A browser that was led here by a page must not get further (as Redis does).
        if [b"post".as_slice(), b"host:"].iter().any(|word| name.eq_ignore_ascii_case(word)) {
            self.client.is_closing = true;
            return Ok(());
        }
        let known = COMMANDS.iter().find(|it| name.eq_ignore_ascii_case(it.name.as_bytes()));
        let command = known.ok_or_else(|| unknown(name, rest))?;
        if !command.takes.contains(&self.arguments.len()) {
            return Err(Refusal::Arity(command.name.to_owned()));
        }
        if !self.client.is_known && !FOR_STRANGERS.contains(&command.name) {
            return Err(Refusal::Stranger);
        }
        (command.run)(self)
    }

    fn argument(&self, place: usize) -> &'c [u8] {
        self.arguments.get(place).copied().unwrap_or_default()
    }

    fn key(&self) -> Result<Key<'c>, Refusal> {
        Key::parse(self.argument(1)).ok_or(Refusal::Key)
    }

    /// The trace that is meant; `None` for a text that is not there, whose type nobody knows.
    fn trace(&self) -> Result<Option<&'c str>, Refusal> {
        match self.key()? {
            Key::Trace(base_id) => Ok(Some(base_id)),
            Key::Text(key) if self.traces.get(key)?.is_none() => Ok(None),
            Key::Text(_) => Err(Refusal::WrongType),
        }
    }

    /// The text that is meant; the same holds.
    fn text(&self) -> Result<Option<TextKey<'c>>, Refusal> {
        match self.key()? {
            Key::Text(key) => Ok(Some(key)),
            Key::Trace(base_id) if self.traces.len(base_id)? == 0 => Ok(None),
            Key::Trace(_) => Err(Refusal::WrongType),
        }
    }

    /// The length of the trace that is meant.
    fn len(&self) -> Result<usize, Refusal> {
        Ok(self.trace()?.map_or(Ok(0), |base_id| self.traces.len(base_id))?)
    }

    fn number(&self, place: usize) -> Result<i64, Refusal> {
        integer(self.argument(place)).ok_or(Refusal::NotInteger)
    }

    fn length(&mut self, len: usize) {
        self.replies.integer(i64::try_from(len).unwrap_or(i64::MAX));
    }

    /// What `HELLO` answers.
    pub(crate) fn about(&mut self) {
        let id = self.client.id.try_into().unwrap_or(i64::MAX);
        self.replies.map(7);
        self.named("server", |value| value.bulk(b"redis"));
        self.named("version", |value| value.bulk(VERSION.as_bytes()));
        self.named("proto", |value| value.integer(value.version().number()));
        self.named("id", |value| value.integer(id));
        self.named("mode", |value| value.bulk(b"standalone"));
        self.named("role", |value| value.bulk(b"master"));
        self.named("modules", |value| value.array(0));
    }

    /// A field of a map.
    fn named(&mut self, name: &str, value: impl FnOnce(&mut Replies<'_>)) {
        self.replies.bulk(name.as_bytes());
        value(&mut self.replies);
    }
}

/// The version of Redis whose replies these are.
const VERSION: &str = "7.0.0";

fn unknown(name: &[u8], rest: &[&[u8]]) -> Refusal {
    let cut = |text: &[u8], most: usize| {
        String::from_utf8_lossy(text.get(..most).unwrap_or(text)).into_owned()
    };
    let mut arguments = String::new();
    for argument in rest {
        if arguments.len() >= MAX_SHOWN {
            break;
        }
        let most = MAX_SHOWN - arguments.len();
        arguments.push_str(&format!("'{}' ", cut(argument, most)));
    }
    Refusal::Unknown { name: cut(name, MAX_SHOWN), arguments }
}

fn lpush(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    let Key::Trace(base_id) = call.key()? else { return Err(Refusal::WrongType) };
    let mut len = 0;
    for notification in call.arguments.iter().skip(2) {
        len = call.traces.push(base_id, notification)?;
    }
    call.length(len);
    Ok(())
}

fn set(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    let [_, _, text] = *call.arguments else { return Err(Refusal::Syntax) };
    let Key::Text(key) = call.key()? else { return Err(Refusal::WrongType) };
    call.traces.set(key, text)?;
    call.replies.simple("OK");
    Ok(())
}

fn get(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    match call.text()?.map_or(Ok(None), |key| call.traces.get(key))? {
        Some(text) => call.replies.bulk(&text),
        None => call.replies.null(),
    }
    Ok(())
}

fn llen(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    let len = call.len()?;
    call.length(len);
    Ok(())
}

/// A place as Redis counts: from the end on when it is negative; perhaps before the begin.
fn place(number: i64, len: usize) -> i64 {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    if number < 0 { number.saturating_add(len) } else { number }
}

fn lindex(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    let len = call.len()?;
    let at = usize::try_from(place(call.number(2)?, len)).ok().filter(|at| *at < len);
    let (base_id, at) = (call.trace()?.unwrap_or_default(), at.unwrap_or(len));
    let found = call.traces.range(base_id, at..at.saturating_add(1))?;
    match found.first() {
        Some(notification) => call.replies.bulk(notification),
        None => call.replies.null(),
    }
    Ok(())
}

fn lrange(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    let (start, stop) = (call.number(2)?, call.number(3)?);
    let len = call.len()?;
    let start = usize::try_from(place(start, len).max(0)).unwrap_or(len);
    let end = usize::try_from(place(stop, len).saturating_add(1)).unwrap_or(0).min(len);
    let base_id = call.trace()?.unwrap_or_default();
    let found = call.traces.range(base_id, start..end.max(start))?;
    call.replies.array(found.len());
    for notification in &found {
        call.replies.bulk(notification);
    }
    Ok(())
}

/// What there is at a key.
fn kind_of(key: &[u8], traces: &dyn Traces) -> Result<&'static str, Refusal> {
    Ok(match Key::parse(key) {
        Some(Key::Trace(base_id)) if traces.len(base_id)? > 0 => "list",
        Some(Key::Text(key)) if traces.get(key)?.is_some() => "string",
        _ => "none",
    })
}

fn kind(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    let kind = kind_of(call.argument(1), call.traces)?;
    call.replies.simple(kind);
    Ok(())
}

fn exists(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    let mut count = 0;
    for key in call.arguments.iter().skip(1) {
        count += usize::from(kind_of(key, call.traces)? != "none");
    }
    call.length(count);
    Ok(())
}

/// `SCAN cursor [MATCH prefix*] [COUNT n]`
fn scan(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    let cursor = str::from_utf8(call.argument(1)).ok().and_then(|it| it.parse().ok());
    let cursor = cursor.ok_or(Refusal::Cursor)?;
    let (mut pattern, mut count) = (b"*".as_slice(), SCANNED);
    let mut rest = call.arguments.get(2..).unwrap_or_default();
    while let [option, value, behind @ ..] = rest {
        match option.to_ascii_uppercase().as_slice() {
            b"MATCH" => pattern = value,
            b"COUNT" => {
                let number = integer(value).ok_or(Refusal::NotInteger)?;
                count = usize::try_from(number).ok().filter(|it| *it > 0).ok_or(Refusal::Syntax)?;
            }
            _ => return Err(Refusal::Syntax),
        }
        rest = behind;
    }
    if !rest.is_empty() {
        return Err(Refusal::Syntax);
    }
    let pattern = str::from_utf8(pattern).ok().ok_or(Refusal::Pattern)?;
    let prefix = pattern.strip_suffix('*').unwrap_or(pattern);
    if prefix.contains(['*', '?', '[', '\\']) {
        return Err(Refusal::Pattern);
    }
    let mut page = call.traces.keys(prefix, cursor, count.min(MAX_SCANNED))?;
    if prefix.len() == pattern.len() {
        page.keys.retain(|key| key == prefix);
    }
    call.replies.array(2);
    call.replies.bulk(page.cursor.to_string().as_bytes());
    call.replies.array(page.keys.len());
    for key in &page.keys {
        call.replies.bulk(key.as_bytes());
    }
    Ok(())
}

fn select(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    if !(0..DATABASES).contains(&call.number(1)?) {
        return Err(Refusal::Database);
    }
    call.replies.simple("OK");
    Ok(())
}

fn ping(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    match *call.arguments {
        [_] => call.replies.simple("PONG"),
        [_, text] => call.replies.bulk(text),
        _ => return Err(Refusal::Arity("ping".to_owned())),
    }
    Ok(())
}

fn echo(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    let [_, text] = *call.arguments else { return Err(Refusal::Syntax) };
    call.replies.bulk(text);
    Ok(())
}

/// Clients ask for it to help who types. There is no help.
fn list_commands(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    if call.argument(1).eq_ignore_ascii_case(b"count") {
        call.length(COMMANDS.len());
    } else if call.argument(1).eq_ignore_ascii_case(b"docs") {
        call.replies.map(0);
    } else {
        call.replies.array(0);
    }
    Ok(())
}

fn info(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    call.replies.verbatim(&format!(
        "# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\nserver_name:throughline\r\n\r\n# Replication\r\nrole:master\r\n"
    ));
    Ok(())
}
