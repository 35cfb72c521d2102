//! One client's connection: its requests are read and answered.

use std::fmt;
use std::sync::Arc;

use subtle::ConstantTimeEq;

use crate::commands::{self, Call, Refusal};
use crate::resp::{Bounds, Decoder, Replies, Version};
use crate::traces::Traces;

/// With as many bytes of replies no further request is acted on until they are written.
pub const MAX_REPLIES_LEN: usize = 4 << 20;

/// Bytes of a client's name.
const MAX_NAME_LEN: usize = 256;

/// What the caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Write the replies, and feed what the client sends.
    Read,
    /// Write and clear the replies, and feed nothing: requests are waiting.
    Write,
    /// Write the replies and close the connection.
    Close,
}

/// What clients must know; it is shown nowhere, and the time of an answer tells no more than its length.
#[derive(Clone)]
pub struct Password(Box<[u8]>);

impl Password {
    /// Of a text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.as_bytes().into())
    }

    fn is(&self, said: &[u8]) -> bool {
        self.0.ct_eq(said).into()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// A connection.
#[derive(Debug)]
pub struct Session {
    decoder: Decoder,
    client: Client,
}

/// Who is at the other end.
#[derive(Debug)]
pub(crate) struct Client {
    /// The connection's number.
    pub(crate) id: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) version: Version,
    pub(crate) is_closing: bool,
    pub(crate) is_known: bool,
    password: Option<Arc<Password>>,
}

impl Session {
    /// A new connection, with a number that no other has.
    #[must_use]
    pub const fn new(id: u64, password: Option<Arc<Password>>) -> Self {
        let is_known = password.is_none();
        let client = Client {
            id,
            name: Vec::new(),
            version: Version::Resp2,
            is_closing: false,
            is_known,
            password,
        };
        Self { decoder: Decoder::new(client.bounds()), client }
    }

    /// Takes what a client sent, acts on each whole request, and puts the replies behind what stands in `out`. Those are at most
    /// [`MAX_REPLIES_LEN`] bytes and one reply.
    pub fn feed(&mut self, bytes: &[u8], traces: &mut dyn Traces, out: &mut Vec<u8>) -> Next {
        let Self { decoder, client } = self;
        decoder.feed(bytes);
        while !client.is_closing {
            if out.len() >= MAX_REPLIES_LEN {
                return Next::Write;
            }
            let replies = Replies::new(out, client.version);
            match decoder.request() {
                Ok(None) => return Next::Read,
                Ok(Some(request)) => commands::act(&request, client, traces, replies),
                Err(error) => client.refuse_bytes(&error.wrong.reply(), replies),
            }
            decoder.set_bounds(client.bounds());
        }
        Next::Close
    }
}

impl Client {
    const fn bounds(&self) -> Bounds {
        if self.is_known { Bounds::KNOWN } else { Bounds::STRANGER }
    }

    fn refuse_bytes(&mut self, wrong: &str, mut replies: Replies<'_>) {
        self.is_closing = true;
        replies.error(format!("ERR Protocol error: {wrong}").as_bytes());
    }

    /// Lets in who says the password. Without one every user `default` is let in.
    fn authenticate(&mut self, user: &[u8], said: &[u8]) -> Result<(), Refusal> {
        let is_right = self.password.as_ref().is_none_or(|password| password.is(said));
        if user != b"default" || !is_right {
            return Err(Refusal::WrongPassword);
        }
        self.is_known = true;
        Ok(())
    }

    fn set_name(&mut self, name: &[u8]) -> Result<(), Refusal> {
        if name.len() > MAX_NAME_LEN || !name.iter().all(u8::is_ascii_graphic) {
            return Err(Refusal::Name);
        }
        self.name = name.to_vec();
        Ok(())
    }
}

pub(crate) fn auth(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    let client = &mut *call.client;
    match *call.arguments {
        [_, _] if client.password.is_none() => return Err(Refusal::NoPassword),
        [_, said] => client.authenticate(b"default", said)?,
        [_, user, said] => client.authenticate(user, said)?,
        _ => return Err(Refusal::Syntax),
    }
    call.replies.simple("OK");
    Ok(())
}

/// `HELLO [2|3 [AUTH user password] [SETNAME name]]`
pub(crate) fn hello(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    let client = &mut *call.client;
    let mut rest = call.arguments.get(1..).unwrap_or_default();
    let mut version = client.version;
    if let [number, options @ ..] = rest {
        version = match crate::resp::integer(number).ok_or(Refusal::VersionNumber)? {
            2 => Version::Resp2,
            3 => Version::Resp3,
            _ => return Err(Refusal::Version),
        };
        rest = options;
    }
    let mut name = None;
    while let [option, following @ ..] = rest {
        rest = match (option.to_ascii_uppercase().as_slice(), following) {
            (b"AUTH", [user, said, behind @ ..]) => {
                client.authenticate(user, said)?;
                behind
            }
            (b"SETNAME", [it, behind @ ..]) => {
                name = Some(it);
                behind
            }
            _ => return Err(Refusal::HelloOption(String::from_utf8_lossy(option).into_owned())),
        };
    }
    if !client.is_known {
        return Err(Refusal::HelloStranger);
    }
    name.map_or(Ok(()), |name| client.set_name(name))?;
    client.version = version;
    call.replies.set_version(version);
    call.about();
    Ok(())
}

/// Of the subcommands those that say who the client is; clients go on when others are refused.
pub(crate) fn client(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    let Some((subcommand, arguments)) = call.arguments.get(1..).and_then(<[_]>::split_first) else {
        return Err(Refusal::Syntax);
    };
    let name = String::from_utf8_lossy(subcommand).into_owned();
    let client = &mut *call.client;
    match (name.to_ascii_lowercase().as_str(), arguments) {
        ("id", []) => call.replies.integer(client.id.try_into().unwrap_or(i64::MAX)),
        ("getname", []) if client.name.is_empty() => call.replies.null(),
        ("getname", []) => call.replies.bulk(&client.name),
        ("setname", [name]) => {
            client.set_name(name)?;
            call.replies.simple("OK");
        }
        ("setinfo", [_, _]) | ("no-evict" | "no-touch", [_]) => call.replies.simple("OK"),
        (known @ ("id" | "getname" | "setname" | "setinfo" | "no-evict" | "no-touch"), _) => {
            return Err(Refusal::Arity(format!("client|{known}")));
        }
        _ => return Err(Refusal::Subcommand { command: "CLIENT", name }),
    }
    Ok(())
}

pub(crate) fn quit(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    call.client.is_closing = true;
    call.replies.simple("OK");
    Ok(())
}

pub(crate) fn reset(call: &mut Call<'_, '_>) -> Result<(), Refusal> {
    let client = &mut *call.client;
    client.name.clear();
    client.version = Version::Resp2;
    client.is_known = client.password.is_none();
    call.replies.simple("RESET");
    Ok(())
}
