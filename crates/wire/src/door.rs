//! The relay's encrypted port: which protocol a connection speaks, and the words before it.
//!
//! The client names the protocol in the TLS handshake (ALPN, RFC 7301), one of [`Role::ALL`]. Then it sends a preamble,
//! and the relay answers with one byte:
//!
//! ```text
//! client ─▶ u16, big endian   length of the token, 0 (none) to 512
//!           bytes             the token
//! relay  ─▶ u8                0 welcome, else why not (see [`Answer`]); the connection ends
//! ```
//! What follows is [`crate::live`], as on the relay's plain ports.

use std::fmt;

use crate::live::Decoded;

/// The port when an address names none.
pub const DEFAULT_PORT: u16 = 5346;

/// Bytes of the length of the token.
const LEN_BYTES: usize = 2;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Requests of a producer.
    Control,
    /// Packets of a producer.
    Data,
    /// Requests of a viewer.
    Viewer,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Control, Self::Data, Self::Viewer];

    /// The name of its protocol in the TLS handshake.
    #[must_use]
    pub const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Control => b"throughline-control/1",
            Self::Data => b"throughline-data/1",
            Self::Viewer => b"throughline-viewer/1",
        }
    }

    /// The role of a protocol's name.
    #[must_use]
    pub fn of_alpn(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.alpn() == name)
    }
}

/// A secret that says who comes: 16 to 512 visible ASCII characters. It is shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Why a text is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// Too short to be a secret, or too long.
    #[error("a token has {} to {} characters, not {len}", Token::MIN_LEN, Token::MAX_LEN)]
    Len {
        /// Its length in bytes.
        len: usize,
    },
    /// Something else than visible ASCII characters.
    #[error("a token consists of letters, digits and other visible ASCII characters")]
    Character,
}

impl Token {
    /// The fewest characters.
    pub const MIN_LEN: usize = 16;
    /// The most characters.
    pub const MAX_LEN: usize = 512;

    /// Takes a text without spaces around it.
    ///
    /// # Errors
    /// [`BadToken`].
    pub fn new(text: &str) -> Result<Self, BadToken> {
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BadToken::Character);
        }
        match text.len() {
            Self::MIN_LEN..=Self::MAX_LEN => Ok(Self(text.to_owned())),
            len => Err(BadToken::Len { len }),
        }
    }

    /// The secret.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// What a client says first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Preamble<'a> {
    /// The token, when it has one.
    pub token: Option<&'a [u8]>,
}

impl fmt::Debug for Preamble<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preamble").field("has_token", &self.token.is_some()).finish()
    }
}

/// A preamble that announces a token longer than [`Token::MAX_LEN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a token of {len} bytes is announced, at most {} may be", Token::MAX_LEN)]
pub struct PreambleTooLong {
    /// The announced length.
    pub len: usize,
}

impl<'a> Preamble<'a> {
    /// The longest, in bytes.
    pub const MAX_LEN: usize = LEN_BYTES + Token::MAX_LEN;

    /// Appends the preamble of a client.
    pub fn encode(token: Option<&Token>, out: &mut Vec<u8>) {
        let token = token.map(Token::as_bytes).unwrap_or_default();
        // A token's length is bounded far below.
        let len = u16::try_from(token.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(token);
    }

    /// Reads a preamble at the front of `bytes`.
    ///
    /// # Errors
    /// [`PreambleTooLong`].
    pub fn decode(bytes: &'a [u8]) -> Result<Decoded<Self>, PreambleTooLong> {
        let Some((len, rest)) = bytes.split_first_chunk::<LEN_BYTES>() else {
            return Ok(Decoded::Incomplete { needed: LEN_BYTES });
        };
        let len = usize::from(u16::from_be_bytes(*len));
        if len > Token::MAX_LEN {
            return Err(PreambleTooLong { len });
        }
        let used = LEN_BYTES + len;
        Ok(match rest.get(..len) {
            Some(token) => {
                let token = Some(token).filter(|token| !token.is_empty());
                Decoded::Complete { value: Self { token }, used }
            }
            None => Decoded::Incomplete { needed: used },
        })
    }
}

/// What the relay says to a preamble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The protocol may begin.
    Welcome,
    /// It may not.
    Refused(Refusal),
}

/// Why a relay does not serve a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The token is missing, or the relay does not know it.
    #[error("the token is missing or not known to the relay")]
    Token,
    /// Who has the token may not do this.
    #[error("the token is for another role")]
    Role,
    /// A reason that this version does not know.
    #[error("the relay refused with code {0}")]
    Other(u8),
}

impl Answer {
    /// The byte that says so.
    #[must_use]
    pub const fn encode(self) -> u8 {
        match self {
            Self::Welcome => 0,
            Self::Refused(Refusal::Token) => 1,
            Self::Refused(Refusal::Role) => 2,
            Self::Refused(Refusal::Other(code)) => code,
        }
    }

    /// What a byte says.
    #[must_use]
    pub const fn decode(byte: u8) -> Self {
        match byte {
            0 => Self::Welcome,
            1 => Self::Refused(Refusal::Token),
            2 => Self::Refused(Refusal::Role),
            code => Self::Refused(Refusal::Other(code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preamble_is_read_as_it_was_written_and_waits_for_what_is_missing() {
        let token = Token::new("0123456789abcdef").unwrap();
        for token in [None, Some(&token)] {
            let mut bytes = Vec::new();
            Preamble::encode(token, &mut bytes);
            for cut in 0..bytes.len() {
                let cut = Preamble::decode(&bytes[..cut]).unwrap();
                assert!(matches!(cut, Decoded::Incomplete { needed } if needed <= bytes.len()));
            }
            let used = bytes.len();
            bytes.push(7);
            let value = Preamble { token: token.map(Token::as_bytes) };
            assert_eq!(Preamble::decode(&bytes), Ok(Decoded::Complete { value, used }));
        }
    }

    #[test]
    fn a_token_that_is_announced_too_long_is_refused_before_it_comes() {
        assert_eq!(Preamble::decode(&[2, 1]), Err(PreambleTooLong { len: 513 }));
        assert_eq!(Preamble::decode(&[2, 0]), Ok(Decoded::Incomplete { needed: 514 }));
        assert_eq!(Preamble::decode(&[255, 255]), Err(PreambleTooLong { len: 65535 }));
    }

    #[test]
    fn tokens_are_long_enough_visible_and_never_shown() {
        assert_eq!(Token::new("short"), Err(BadToken::Len { len: 5 }));
        assert_eq!(Token::new(&"x".repeat(513)), Err(BadToken::Len { len: 513 }));
        for text in ["with a space in it", "with\na line break", "with an umlaut ü...."] {
            assert_eq!(Token::new(text), Err(BadToken::Character), "{text:?}");
        }
        let secret = "0123456789abcdef";
        let token = Token::new(secret).unwrap();
        let shown = format!("{token:?} {:?}", Preamble { token: Some(token.as_bytes()) });
        assert!(!shown.contains(secret) && !shown.contains("48"), "{shown}");
    }

    #[test]
    fn each_answer_is_a_byte_and_each_role_a_name() {
        for byte in 0..=u8::MAX {
            assert_eq!(Answer::decode(byte).encode(), byte);
        }
        for role in Role::ALL {
            assert_eq!(Role::of_alpn(role.alpn()), Some(role));
        }
        assert_eq!(Role::of_alpn(b"h2"), None);
    }
}
