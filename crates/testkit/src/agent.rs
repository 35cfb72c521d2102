//! `throughline agent`, and a collector for what it sends.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use crate::Running;

/// Has an agent begin to sample, in this folder, where `NAME.log` gets what it says.
///
/// # Panics
/// When it does not begin.
#[must_use]
pub fn start(binary: &Path, folder: &Path, name: &str, options: &[&str]) -> Running {
    // As a service has it unless it is told otherwise: the agent is to ask for more itself.
    const SCRIPT: &str = "ulimit -Sn 1024 && exec \"$0\" agent \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT]).arg(binary).args(options);
    command.current_dir(folder).stdout(Stdio::null());
    let mut agent = Running::start(&mut command, name, &folder.join(format!("{name}.log")));
    agent.wait_until_said("agent: sampling");
    agent
}

/// From now on `take` gets the body of whatever is posted at this address, and the answer is 200 when it comes back. Connections have
/// a thread each.
///
/// # Errors
/// When the address is taken.
pub fn collect(
    address: SocketAddr,
    take: impl Fn(Vec<u8>) + Send + Sync + 'static,
) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    let take = Arc::new(take);
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let take = Arc::clone(&take);
            thread::spawn(move || {
                let mut reader = BufReader::new(socket);
                while let Some(body) = posted(&mut reader) {
                    take(body);
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                    if reader.get_mut().write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(())
}

/// The body of the next request of a connection.
fn posted(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut length = None;
    loop {
        let mut line = String::new();
        let is_end = reader.read_line(&mut line).ok()? == 0;
        if is_end || line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok();
        }
    }
    let mut body = vec![0; length?];
    reader.read_exact(&mut body).ok()?;
    Some(body)
}
