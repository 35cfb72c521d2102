//! The client protocol of NATS, as far as a publisher needs it.
//!
//! ```text
//! server   INFO {json}␍␊   MSG SUBJECT SID [REPLY] LEN␍␊payload␍␊   HMSG SUBJECT SID [REPLY] HEADERS_LEN LEN␍␊headers payload␍␊
//!          PING␍␊   PONG␍␊   +OK␍␊   -ERR 'text'␍␊
//! client   CONNECT {json}␍␊   SUB SUBJECT SID␍␊   PUB SUBJECT REPLY LEN␍␊payload␍␊
//!          HPUB SUBJECT REPLY HEADERS_LEN LEN␍␊headers payload␍␊   PING␍␊   PONG␍␊
//! ```
//! Headers are `NATS/1.0[ STATUS[ TEXT]]␍␊`, then `Name: value␍␊` each, then `␍␊`. Source: docs.nats.io, reference of the client
//! protocol; ADR-4 (headers), ADR-1 and ADR-22 (acknowledgements of JetStream).

/// Longest line of a server: its `INFO` names the other servers of its cluster.
pub const MAX_LINE_LEN: usize = 64 << 10;
/// Longest payload with headers that is taken: answers to a publisher are short.
pub const MAX_PAYLOAD_LEN: usize = 1 << 20;

const END: &[u8] = b"\r\n";

/// What a server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromServer<'b> {
    /// Who it is and what it takes: JSON.
    Info(&'b [u8]),
    /// A message to one of our subscriptions.
    Message(Message<'b>),
    /// Asks whether we are there.
    Ping,
    /// All before our `PING` was taken.
    Pong,
    /// A request was taken.
    Ok,
    /// A request was refused; mostly the connection ends.
    Error(&'b str),
}

/// A message to a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'b> {
    /// Where it was sent to.
    pub subject: &'b str,
    /// Number of the subscription.
    pub subscription: &'b str,
    /// The status in its headers, such as 503: nobody listens there.
    pub status: Option<u16>,
    /// What it says.
    pub payload: &'b [u8],
}

/// Why bytes are no message of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A line without end.
    #[error("a line of more than {limit} bytes")]
    LineTooLong {
        /// The most that is taken.
        limit: usize,
    },
    /// More than any answer has.
    #[error("a message of {announced} bytes, the limit is {limit}")]
    PayloadTooLong {
        /// Its length.
        announced: u64,
        /// The most that is taken.
        limit: usize,
    },
    /// A line that is none of the known ones.
    #[error("not understood: {start:?}")]
    Line {
        /// Its first bytes.
        start: String,
    },
}

impl<'b> FromServer<'b> {
    /// The first message of `bytes` and how many of them it has; `None` when it is not all there yet.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn decode(bytes: &'b [u8]) -> Result<Option<(Self, usize)>, Error> {
        let Some(len) = bytes.windows(END.len()).take(MAX_LINE_LEN).position(|two| two == END)
        else {
            let limit = MAX_LINE_LEN;
            return if bytes.len() > limit { Err(Error::LineTooLong { limit }) } else { Ok(None) };
        };
        let line = bytes.get(..len).unwrap_or_default();
        let used = len + END.len();
        let bad = || Error::Line {
            start: String::from_utf8_lossy(line.get(..60).unwrap_or(line)).into_owned(),
        };
        let text = || str::from_utf8(line).map_err(|_not_text| bad());
        let (verb, rest) = line.split_at(line.iter().position(|byte| *byte == b' ').unwrap_or(len));
        let simple = match verb.to_ascii_uppercase().as_slice() {
            b"INFO" => Self::Info(rest.trim_ascii()),
            b"PING" => Self::Ping,
            b"PONG" => Self::Pong,
            b"+OK" => Self::Ok,
            b"-ERR" => Self::Error(text()?.get(4..).unwrap_or_default().trim().trim_matches('\'')),
            b"MSG" => return Message::decode(text()?, bytes, used, false, &bad),
            b"HMSG" => return Message::decode(text()?, bytes, used, true, &bad),
            _ => return Err(bad()),
        };
        Ok(Some((simple, used)))
    }
}

impl<'b> Message<'b> {
    fn decode(
        line: &'b str,
        bytes: &'b [u8],
        begin: usize,
        has_headers: bool,
        bad: &dyn Fn() -> Error,
    ) -> Result<Option<(FromServer<'b>, usize)>, Error> {
        let words: Vec<&str> = line.split_ascii_whitespace().skip(1).take(6).collect();
        let (subject, subscription, lens) = match (has_headers, words.as_slice()) {
            (false, [subject, sid, len] | [subject, sid, _, len]) => (subject, sid, ["0", len]),
            (true, [subject, sid, headers, len] | [subject, sid, _, headers, len]) => {
                (subject, sid, [*headers, len])
            }
            _ => return Err(bad()),
        };
        let [headers_len, len] = lens.map(|len| len.parse::<u64>().ok());
        let (Some(headers_len), Some(announced)) = (headers_len, len) else { return Err(bad()) };
        let limit = MAX_PAYLOAD_LEN;
        let len = usize::try_from(announced).ok().filter(|len| *len <= limit);
        let len = len.ok_or(Error::PayloadTooLong { announced, limit })?;
        let headers_len = usize::try_from(headers_len).ok().filter(|headers| *headers <= len);
        let headers_len = headers_len.ok_or_else(bad)?;
        let Some(rest) = bytes.get(begin..).filter(|rest| rest.len() >= len + END.len()) else {
            return Ok(None);
        };
        let (body, rest) = rest.split_at(len);
        if !rest.starts_with(END) {
            return Err(bad());
        }
        let (headers, payload) = body.split_at(headers_len);
        let message = Self { subject, subscription, status: status(headers), payload };
        Ok(Some((FromServer::Message(message), begin + len + END.len())))
    }
}

/// The status in the first line of headers.
fn status(headers: &[u8]) -> Option<u16> {
    let line = headers.strip_prefix(b"NATS/1.0")?;
    let line = line.split(|byte| *byte == b'\r').next()?;
    str::from_utf8(line).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// Whether a text can be a subject: words between dots, without wildcards.
#[must_use]
pub fn is_subject(text: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty()
            && word.chars().all(|c| !c.is_whitespace() && !c.is_control())
            && word != "*"
            && word != ">"
    };
    text.len() <= 1024 && text.split('.').all(is_word)
}

/// Writes what a client says.
#[derive(Debug)]
pub struct Writer<'o>(pub &'o mut Vec<u8>);

impl Writer<'_> {
    /// Who we are, as JSON.
    pub fn connect(&mut self, options: &str) {
        self.line(&["CONNECT", options]);
    }

    /// Asks whether all was taken.
    pub fn ping(&mut self) {
        self.line(&["PING"]);
    }

    /// Says that we are there.
    pub fn pong(&mut self) {
        self.line(&["PONG"]);
    }

    /// Asks for what is sent to a subject.
    pub fn subscribe(&mut self, subject: &str, subscription: u32) {
        self.line(&["SUB", subject, &subscription.to_string()]);
    }

    /// Sends to a subject; answers come to `reply`. Headers are neither empty nor hold line ends.
    pub fn publish(
        &mut self,
        subject: &str,
        reply: &str,
        headers: &[(&str, &str)],
        payload: &[u8],
    ) {
        if headers.is_empty() {
            self.line(&["PUB", subject, reply, &payload.len().to_string()]);
        } else {
            let lines = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
            let head = format!("NATS/1.0\r\n{}\r\n", lines.collect::<String>());
            let lens = [head.len(), head.len() + payload.len()].map(|len| len.to_string());
            let [head_len, len] = &lens;
            self.line(&["HPUB", subject, reply, head_len, len]);
            self.0.extend_from_slice(head.as_bytes());
        }
        self.0.extend_from_slice(payload);
        self.0.extend_from_slice(END);
    }

    fn line(&mut self, words: &[&str]) {
        for (at, word) in words.iter().enumerate() {
            if at > 0 {
                self.0.push(b' ');
            }
            self.0.extend_from_slice(word.as_bytes());
        }
        self.0.extend_from_slice(END);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Result<Option<(FromServer<'_>, usize)>, Error> {
        FromServer::decode(bytes)
    }

    fn message<'b>(status: Option<u16>, payload: &'b [u8]) -> FromServer<'b> {
        FromServer::Message(Message { subject: "_INBOX.a.1", subscription: "1", status, payload })
    }

    #[test]
    fn what_servers_say_is_understood_and_half_of_it_is_waited_for() {
        let cases: [(&[u8], FromServer<'_>); 9] = [
            (b"INFO {\"a\":1} \r\n", FromServer::Info(b"{\"a\":1}")),
            (b"PING\r\n", FromServer::Ping),
            (b"pong\r\n", FromServer::Pong),
            (b"+OK\r\n", FromServer::Ok),
            (b"-ERR 'Authorization Violation'\r\n", FromServer::Error("Authorization Violation")),
            (b"MSG _INBOX.a.1 1 5\r\nhe\r\no\r\n", message(None, b"he\r\no")),
            (b"MSG _INBOX.a.1 1 reply 0\r\n\r\n", message(None, b"")),
            (b"HMSG _INBOX.a.1 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", message(Some(503), b"")),
            (b"HMSG _INBOX.a.1 1 r 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n", message(None, b"hi")),
        ];
        for (bytes, expected) in cases {
            assert_eq!(decode(bytes), Ok(Some((expected, bytes.len()))));
            for len in 0..bytes.len() {
                assert_eq!(decode(&bytes[..len]), Ok(None), "{len} bytes");
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"\r\n",
            b"MSG a 1\r\n",
            b"MSG a 1 -5\r\n",
            b"MSG a 1 5\r\nhello!!",
            b"HMSG a 1 9 5\r\nhello\r\n",
            b"MSG \xFF 1 0\r\n\r\n",
            b"MSG a 1 2 3 4 5 6 7\r\n",
        ] {
            assert!(matches!(decode(bytes), Err(Error::Line { .. })), "{bytes:?}");
        }
        let long = b"MSG a 1 99999999999\r\n";
        assert!(matches!(
            decode(long),
            Err(Error::PayloadTooLong { announced: 99_999_999_999, .. })
        ));
        let line = vec![b'x'; MAX_LINE_LEN + 2];
        assert_eq!(decode(&line), Err(Error::LineTooLong { limit: MAX_LINE_LEN }));
    }

    #[test]
    fn what_is_written_has_its_lengths() {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        writer.connect("{}");
        writer.subscribe("_INBOX.a.*", 1);
        writer.publish("a.b", "_INBOX.a.1", &[], b"hi");
        writer.publish("a.b", "_INBOX.a.2", &[("Nats-Msg-Id", "7")], b"hi");
        writer.ping();
        writer.pong();
        let expected = "CONNECT {}\r\nSUB _INBOX.a.* 1\r\nPUB a.b _INBOX.a.1 2\r\nhi\r\n\
            HPUB a.b _INBOX.a.2 28 30\r\nNATS/1.0\r\nNats-Msg-Id: 7\r\n\r\nhi\r\nPING\r\nPONG\r\n";
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }

    #[test]
    fn a_subject_is_words_between_dots() {
        for subject in ["a", "trace.chunks", "a.b-c_d.$x"] {
            assert!(is_subject(subject), "{subject}");
        }
        for subject in ["", ".", "a.", "a..b", "a b", "a.*", "a.>", "a\r\nPUB"] {
            assert!(!is_subject(subject), "{subject:?}");
        }
    }
}
