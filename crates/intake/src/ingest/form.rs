//! Bodies of several parts: `multipart/form-data` (RFC 7578, RFC 2046).

use crate::error::Error;

/// Parts that a body may have.
const MAX_PARTS: usize = 16;
/// Characters of a boundary, RFC 2046 section 5.1.1.
const MAX_BOUNDARY: usize = 70;

/// Name and content of each part.
pub(super) fn parts<'b>(
    content_type: &str,
    body: &'b [u8],
) -> Result<Vec<(String, &'b [u8])>, Error> {
    let boundary = parameter(content_type, "boundary");
    let boundary = boundary.filter(|it| (1..=MAX_BOUNDARY).contains(&it.len()));
    let delimiter = format!("\r\n--{}", boundary.ok_or_else(|| wrong("has no boundary"))?);
    let delimiter = delimiter.as_bytes();
    // The first delimiter may stand at the very begin.
    let first = delimiter.get(2..).unwrap_or_default();
    let mut rest = match body.strip_prefix(first) {
        Some(rest) => rest,
        None => split(body, delimiter).ok_or_else(|| wrong("has no part"))?.1,
    };
    let mut parts = Vec::new();
    while !rest.starts_with(b"--") {
        if parts.len() == MAX_PARTS {
            return Err(Error::TooMany { what: "parts of a form", limit: MAX_PARTS });
        }
        let (part, after) = split(rest, delimiter).ok_or_else(|| wrong("is cut"))?;
        let (head, content) =
            split(part, b"\r\n\r\n").ok_or_else(|| wrong("has a part without a head"))?;
        let name = std::str::from_utf8(head).ok().and_then(name_of);
        parts.push((name.ok_or_else(|| wrong("has a part without a name"))?, content));
        rest = after;
    }
    Ok(parts)
}

const fn wrong(why: &'static str) -> Error {
    Error::Form { why }
}

/// What stands before and behind the first of a mark.
fn split<'b>(bytes: &'b [u8], mark: &[u8]) -> Option<(&'b [u8], &'b [u8])> {
    let at = bytes.windows(mark.len()).position(|window| window == mark)?;
    let (before, behind) = bytes.split_at_checked(at)?;
    Some((before, behind.get(mark.len()..)?))
}

/// The name in a part's `Content-Disposition`.
fn name_of(head: &str) -> Option<String> {
    let mut lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
    let (_, value) =
        lines.find(|(key, _)| key.trim().eq_ignore_ascii_case("content-disposition"))?;
    parameter(value, "name").map(str::to_owned)
}

/// A parameter of a header's value: `form-data; name="profile"`.
fn parameter<'h>(value: &'h str, wanted: &str) -> Option<&'h str> {
    let mut pairs = value.split(';').skip(1).filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| key.trim().eq_ignore_ascii_case(wanted))?;
    Some(value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_names_and_any_bytes() {
        let body = b"before\r\n--xx\r\nContent-Disposition: form-data; name=\"a\"; filename=\"f\"\r\nX: y\r\n\r\n1\r\n2\r\n--xx\r\ncontent-disposition:form-data;name=b\r\n\r\n\r\n--xx--\r\n";
        let found = parts("multipart/form-data; boundary=\"xx\"", body).unwrap();
        assert_eq!(
            found,
            [("a".to_owned(), b"1\r\n2".as_slice()), ("b".to_owned(), b"".as_slice())]
        );
    }

    #[test]
    fn what_is_no_form_is_refused() {
        let check = |content_type: &str, body: &[u8], why: &str| {
            let error = parts(content_type, body).unwrap_err().to_string();
            assert_eq!(error, format!("the form {why}"));
        };
        let form = "multipart/form-data; boundary=x";
        check("multipart/form-data", b"", "has no boundary");
        check(form, b"nothing", "has no part");
        check(form, b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1", "is cut");
        check(form, b"--x\r\nno head\r\n--x--", "has a part without a head");
        check(form, b"--x\r\nA: b\r\n\r\n1\r\n--x--", "has a part without a name");
        let many = b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n".repeat(17);
        assert!(parts(form, &[many.as_slice(), b"--x--"].concat()).is_err());
    }
}
