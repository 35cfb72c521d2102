//! One request to a server of a test.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// Asks in HTTP/1.0, which has the body end with the connection: status and body.
pub(crate) fn exchange(
    socket: TcpStream,
    method: &str,
    path: &str,
    body: &[u8],
) -> io::Result<(u16, Vec<u8>)> {
    exchange_with(socket, method, path, "", body)
}

/// With further lines of the head, each with its end.
pub(crate) fn exchange_with(
    mut socket: TcpStream,
    method: &str,
    path: &str,
    fields: &str,
    body: &[u8],
) -> io::Result<(u16, Vec<u8>)> {
    let request = format!(
        "{method} {path} HTTP/1.0\r\nhost: 127.0.0.1\r\naccept: application/json\r\n{fields}content-length: {}\r\n\r\n",
        body.len()
    );
    let mut answer = Vec::new();
    socket.write_all(request.as_bytes())?;
    socket.write_all(body)?;
    socket.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(0);
    let status = String::from_utf8_lossy(answer.get(9..12).unwrap_or_default()).parse();
    Ok((status.unwrap_or(0), answer.split_off((end + 4).min(answer.len()))))
}
