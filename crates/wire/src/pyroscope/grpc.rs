//! Unary calls of gRPC and gRPC-Web: the messages of [`super::connect`] in frames, and how a call ended behind them.
//!
//! ```text
//! offset  size
//! 0       1    flags: bit 0 the message is compressed (`grpc-encoding`), bit 7 these are trailers (answers of gRPC-Web only)
//! 1       4    length of what follows, big endian
//! 5       …    a message, or trailers as lines `name: value\r\n`
//! ```
//!
//! Source: `PROTOCOL-HTTP2.md` and `PROTOCOL-WEB.md` of `grpc/grpc`.

use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::{Code, Error};
use crate::proto::Writer;

/// Bytes before a message.
pub const FRAME_HEAD: usize = 5;

const COMPRESSED: u8 = 1;
const TRAILERS: u8 = 0x80;

/// The message of a request, and whether it is compressed.
///
/// # Errors
///
/// `internal`, as gRPC has it, for a frame that is cut or has other flags; `unimplemented` for more than one message.
pub fn unframe(body: &[u8]) -> Result<(bool, &[u8]), Error> {
    let cut = || {
        let words = format!("the body of {} bytes ends within a message", body.len());
        Error::new(Code::Internal, words)
    };
    let ([flags, length @ ..], rest) = body.split_first_chunk::<FRAME_HEAD>().ok_or_else(cut)?;
    if *flags & !COMPRESSED != 0 {
        return Err(Error::new(Code::Internal, format!("a message has the flags {flags:#04x}")));
    }
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    let (message, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
    if !rest.is_empty() {
        return Err(Error::new(Code::Unimplemented, "more than one message in a request"));
    }
    Ok((*flags == COMPRESSED, message))
}

/// A message of an answer. One of 4 GiB or more, of which there are none, is cut.
#[must_use]
pub fn frame(message: &[u8], is_compressed: bool) -> Vec<u8> {
    framed(u8::from(is_compressed) * COMPRESSED, message)
}

/// How a call ended, behind the messages of an answer of gRPC-Web.
#[must_use]
pub fn trailers_frame<'t>(trailers: impl IntoIterator<Item = (&'t str, String)>) -> Vec<u8> {
    let mut text = String::new();
    for (name, value) in trailers {
        text.extend([name, ": ", &value, "\r\n"]);
    }
    framed(TRAILERS, text.as_bytes())
}

fn framed(flags: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut out = Vec::with_capacity(FRAME_HEAD + bytes.len());
    out.push(flags);
    out.extend(length.to_be_bytes());
    out.extend(bytes);
    out
}

/// How a call ended, as names and values: `grpc-status`; with an error also `grpc-message` and, where it says when to come again,
/// `grpc-status-details-bin`.
#[must_use]
pub fn trailers(error: Option<&Error>) -> Vec<(&'static str, String)> {
    let Some(error) = error else { return vec![("grpc-status", "0".to_owned())] };
    let mut all = vec![
        ("grpc-status", error.code.grpc().to_string()),
        ("grpc-message", percent(&error.message)),
    ];
    if let Some(after) = error.retry_after {
        all.push(("grpc-status-details-bin", STANDARD_NO_PAD.encode(details(error, after))));
    }
    all
}

/// `google.rpc.Status` with a `RetryInfo`: without that, clients of OTLP do not send again what was too much.
fn details(error: &Error, after: Duration) -> Vec<u8> {
    let mut status = Writer::default();
    status.uint(1, error.code.grpc().into());
    status.text(2, &error.message);
    status.message(3, |any| {
        any.text(1, "type.googleapis.com/google.rpc.RetryInfo");
        any.message(2, |info| {
            info.message(1, |delay| {
                delay.uint(1, after.as_secs());
                delay.uint(2, after.subsec_nanos().into());
            });
        });
    });
    status.bytes
}

/// Text as it stands in `grpc-message`: visible characters of ASCII but `%` are themselves.
fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | ..b' ' | 0x7f.. => write!(out, "%{byte:02X}").unwrap_or_default(),
            plain => out.push(plain.into()),
        }
    }
    out
}

/// The time that `grpc-timeout` gives: up to 8 digits and a unit.
#[must_use]
pub fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3_600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_one_message() {
        assert_eq!(unframe(b"\0\0\0\0\x02ab"), Ok((false, b"ab".as_slice())));
        assert_eq!(unframe(b"\x01\0\0\0\0"), Ok((true, b"".as_slice())));
        let code = |body: &[u8]| unframe(body).unwrap_err().code;
        assert_eq!(code(b""), Code::Internal);
        assert_eq!(code(b"\0\0\0\0"), Code::Internal);
        assert_eq!(code(b"\0\xff\xff\xff\xffa"), Code::Internal);
        assert_eq!(code(b"\x80\0\0\0\0"), Code::Internal);
        assert_eq!(code(b"\0\0\0\0\0\0\0\0\0\0"), Code::Unimplemented);
        assert_eq!(unframe(&frame(b"message", true)), Ok((true, b"message".as_slice())));
    }

    #[test]
    fn how_a_call_ended_is_text_that_fields_may_have() {
        assert_eq!(trailers(None), [("grpc-status", "0".to_owned())]);
        let error = Error::new(Code::ResourceExhausted, "100 %\nü");
        let said = [("grpc-status", "8".to_owned()), ("grpc-message", "100 %25%0A%C3%BC".into())];
        assert_eq!(trailers(Some(&error)), said);
        let frame = trailers_frame(trailers(Some(&error)));
        assert_eq!(frame, b"\x80\0\0\0\x30grpc-status: 8\r\ngrpc-message: 100 %25%0A%C3%BC\r\n");
        // Made with protobuf's own library.
        let error = Error { retry_after: Some(Duration::from_millis(3_500)), ..error };
        let details = "CAgSCDEwMCAlCsO8GjYKKHR5cGUuZ29vZ2xlYXBpcy5jb20vZ29vZ2xlLnJwYy5SZXRyeUluZm8SCgoICAMQgMq17gE";
        assert_eq!(trailers(Some(&error))[2], ("grpc-status-details-bin", details.to_owned()));
    }

    #[test]
    fn a_deadline_has_a_unit() {
        assert_eq!(timeout("10S"), Some(Duration::from_secs(10)));
        assert_eq!(timeout("99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        assert_eq!(timeout("250m"), Some(Duration::from_millis(250)));
        for wrong in ["", "S", "1", "1s", "-1S", "100000000S", "1ü"] {
            assert_eq!(timeout(wrong), None, "{wrong}");
        }
    }
}
