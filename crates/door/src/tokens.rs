//! Who may come to a relay with which token.
//!
//! A private file with one token a line; empty lines and those that begin with `#` say nothing:
//!
//! ```text
//! # name   roles             token                                hosts (none named: all)
//! web-1    producer          3b1f0c6b2f1c4a0d9e5d7c8a             web-1
//! desk     viewer            sha256:9f86d081…                     web-1,web-2
//! ci       producer,viewer   c0ffee00c0ffee00c0ffee00
//! ```
//! `sha256:` and 64 hexadecimal digits stand for a token that the file does not hold. What arrives is compared by its
//! SHA-256 with all tokens, in a time that depends on neither.

use std::collections::BTreeSet;
use std::path::Path;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use wire::door::{BadToken, Role, Token};

use crate::error::{Error, Result};
use crate::files;

/// The most tokens of a file.
const MAX_TOKENS: usize = 4096;
/// The most hosts of a token.
const MAX_HOSTS: usize = 1024;
/// The longest name of a token or host, in bytes.
const MAX_NAME_LEN: usize = 255;

/// What the owner of a token may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// What the owner is called.
    pub name: String,
    /// Whether it may record.
    pub is_producer: bool,
    /// Whether it may look at what is recorded.
    pub is_viewer: bool,
    /// The hosts whose sessions it may record or look at; `None`: all.
    pub hosts: Option<BTreeSet<String>>,
}

impl Grant {
    /// Whether a connection may be for this.
    #[must_use]
    pub const fn allows(&self, role: Role) -> bool {
        match role {
            Role::Control | Role::Data => self.is_producer,
            Role::Viewer => self.is_viewer,
        }
    }
}

/// The tokens of a file.
#[derive(Debug, Clone, Default)]
pub struct Tokens {
    /// Each with the SHA-256 of its token.
    grants: Vec<([u8; 32], Grant)>,
}

/// A file of tokens that is wrong in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct BadTokens {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: TokenProblem,
}

/// What is wrong in a line of a file of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenProblem {
    /// Not three or four words.
    #[error("not NAME ROLES TOKEN [HOST,...]")]
    Form,
    /// A name of a kind that cannot be.
    #[error("a name consists of letters, digits, '.', '-' and '_'")]
    Name,
    /// A name that another line has.
    #[error("the name is there twice")]
    SameName,
    /// Another role.
    #[error("a role is producer, viewer or producer,viewer")]
    Role,
    /// A token that is none.
    #[error(transparent)]
    Token(#[from] BadToken),
    /// Not a SHA-256.
    #[error("sha256: is followed by 64 hexadecimal digits")]
    Digest,
    /// A token that another line has.
    #[error("the token is there twice")]
    SameToken,
    /// Too many tokens or hosts.
    #[error("there are more than {limit}")]
    TooMany {
        /// The most there may be.
        limit: usize,
    },
}

impl Tokens {
    /// Reads a private file.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Open`], [`Error::TooLong`], [`Error::Tokens`].
    pub fn read(path: &Path) -> Result<Self> {
        let text = files::secret(path)?;
        Self::parse(&text).map_err(|source| Error::Tokens { path: path.to_owned(), source })
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// [`BadTokens`] with the first line that is wrong.
    pub fn parse(text: &str) -> std::result::Result<Self, BadTokens> {
        let mut grants = Vec::new();
        let (mut names, mut digests) = (BTreeSet::new(), BTreeSet::new());
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = |problem| BadTokens { line: index + 1, problem };
            let (digest, grant) = entry(line).map_err(bad)?;
            if grants.len() == MAX_TOKENS {
                return Err(bad(TokenProblem::TooMany { limit: MAX_TOKENS }));
            }
            if !names.insert(grant.name.clone()) {
                return Err(bad(TokenProblem::SameName));
            }
            if !digests.insert(digest) {
                return Err(bad(TokenProblem::SameToken));
            }
            grants.push((digest, grant));
        }
        Ok(Self { grants })
    }

    /// What the owner of a token may do; `None`: nobody has it.
    #[must_use]
    pub fn find(&self, token: &[u8]) -> Option<&Grant> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let (mut found, mut place) = (Choice::from(0), u32::MAX);
        for (number, (known, _)) in (0_u32..).zip(&self.grants) {
            let is_it = known.ct_eq(&digest);
            place.conditional_assign(&number, is_it);
            found |= is_it;
        }
        let place = bool::from(found).then_some(place)?;
        self.grants.get(usize::try_from(place).ok()?).map(|(_, grant)| grant)
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.grants.len()
    }

    /// Whether nobody may come.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }
}

fn entry(line: &str) -> std::result::Result<([u8; 32], Grant), TokenProblem> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (name, roles, token, hosts) = match words.as_slice() {
        [name, roles, token] => (*name, *roles, *token, None),
        [name, roles, token, hosts] => (*name, *roles, *token, Some(*hosts)),
        _ => return Err(TokenProblem::Form),
    };
    let (is_producer, is_viewer) = match roles {
        "producer" => (true, false),
        "viewer" => (false, true),
        "producer,viewer" | "viewer,producer" => (true, true),
        _ => return Err(TokenProblem::Role),
    };
    let hosts = hosts.map(|hosts| {
        let hosts: std::result::Result<BTreeSet<_>, _> = hosts.split(',').map(checked).collect();
        hosts.and_then(|hosts| match hosts.len() {
            0..=MAX_HOSTS => Ok(hosts),
            _ => Err(TokenProblem::TooMany { limit: MAX_HOSTS }),
        })
    });
    let grant = Grant { name: checked(name)?, is_producer, is_viewer, hosts: hosts.transpose()? };
    Ok((digest(token)?, grant))
}

fn checked(name: &str) -> std::result::Result<String, TokenProblem> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let is_good = !name.is_empty() && name.len() <= MAX_NAME_LEN && name.bytes().all(is_name);
    if is_good { Ok(name.to_owned()) } else { Err(TokenProblem::Name) }
}

fn digest(token: &str) -> std::result::Result<[u8; 32], TokenProblem> {
    let Some(hex) = token.strip_prefix("sha256:") else {
        return Ok(Sha256::digest(Token::new(token)?.as_bytes()).into());
    };
    let mut digest = [0; 32];
    let digits: Option<Vec<u8>> = hex
        .chars()
        .map(|digit| digit.to_digit(16).and_then(|digit| digit.try_into().ok()))
        .collect();
    let digits = digits.filter(|digits| digits.len() == 2 * digest.len());
    for (byte, pair) in digest.iter_mut().zip(digits.ok_or(TokenProblem::Digest)?.chunks_exact(2)) {
        *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbb";

    #[test]
    fn each_token_leads_to_its_owner_and_others_to_nobody() {
        let digest: String = Sha256::digest(B).iter().map(|byte| format!("{byte:02x}")).collect();
        let text =
            format!("# who\n\nweb-1 producer {A} web-1,web-2\n desk\tviewer sha256:{digest}\n");
        let tokens = Tokens::parse(&text).unwrap();
        assert_eq!(tokens.len(), 2);
        let web = tokens.find(A.as_bytes()).unwrap();
        assert_eq!(
            (web.name.as_str(), web.allows(Role::Data), web.allows(Role::Viewer)),
            ("web-1", true, false)
        );
        assert_eq!(web.hosts, Some(["web-1".to_owned(), "web-2".to_owned()].into()));
        let desk = tokens.find(B.as_bytes()).unwrap();
        assert_eq!(
            (desk.name.as_str(), desk.allows(Role::Control), desk.allows(Role::Viewer)),
            ("desk", false, true)
        );
        assert_eq!(desk.hosts, None);
        for token in ["", "aaaaaaaaaaaaaaaaaaa", "cccccccccccccccccccc", &digest] {
            assert_eq!(tokens.find(token.as_bytes()), None, "{token}");
        }
        assert!(Tokens::parse("# nobody").unwrap().is_empty());
    }

    #[test]
    fn what_is_wrong_is_named_by_its_line() {
        let check = |line: &str, problem| {
            let text = format!("# first\nweb producer {A}\n{line}\n");
            assert_eq!(Tokens::parse(&text).unwrap_err(), BadTokens { line: 3, problem }, "{line}");
        };
        check("x producer", TokenProblem::Form);
        check(&format!("x producer {B} h rest"), TokenProblem::Form);
        check(&format!("x reader {B}"), TokenProblem::Role);
        check(&format!("x/y viewer {B}"), TokenProblem::Name);
        check(&format!("x viewer {B} h,"), TokenProblem::Name);
        check(&format!("x viewer {B} h/../i"), TokenProblem::Name);
        check(&format!("web viewer {B}"), TokenProblem::SameName);
        check(&format!("x viewer {A}"), TokenProblem::SameToken);
        check("x viewer short", TokenProblem::Token(BadToken::Len { len: 5 }));
        check("x viewer sha256:12", TokenProblem::Digest);
        check(&format!("x viewer sha256:{}", "é".repeat(32)), TokenProblem::Digest);
        let many: String =
            (0..=MAX_TOKENS).map(|n| format!("n{n} viewer token-number-{n:08}\n")).collect();
        let problem = TokenProblem::TooMany { limit: MAX_TOKENS };
        assert_eq!(Tokens::parse(&many).unwrap_err(), BadTokens { line: MAX_TOKENS + 1, problem });
    }
}
