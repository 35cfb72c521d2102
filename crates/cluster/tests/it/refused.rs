//! What is told when it cannot be done.

use std::net::TcpListener;

use blocks::{Error, Options, analyse};
use cluster::Cluster;

use crate::crew::{addresses, crew};
use crate::recipe::{hands, options, session};

fn refusal(workers: &str, options: &Options, traces: &std::path::Path) -> Error {
    let hands = hands();
    let workers = workers.split(',').map(|it| it.parse().unwrap()).collect();
    let engine = Cluster::new(&hands, workers).unwrap();
    analyse(&[traces.to_owned()], options, &hands, &engine).unwrap_err()
}

#[test]
fn nobody_at_an_address_is_named() {
    let (folder, _) = session(2, 10);
    let traces = folder.path().join("traces");
    let kept = options(Some(&folder.path().join("kept")));
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = refusal(&format!("{free},no-such-host.invalid"), &kept, &traces);
    assert!(!refused.is_loss());
    let refused = refused.to_string();
    assert!(refused.contains(&format!("worker {free}: ")), "{refused}");
    assert!(refused.contains("worker no-such-host.invalid:5345: cannot be found"), "{refused}");
    assert!(!refused.contains('\n'), "{refused}");
}

#[test]
fn something_that_is_no_worker_is_named() {
    let (folder, _) = session(2, 10);
    let traces = folder.path().join("traces");
    let kept = options(Some(&folder.path().join("kept")));
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let answering = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut socket, _) = other.accept().unwrap();
        let mut bytes = [0; 16];
        socket.read_exact(&mut bytes).unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let refused = refusal(&address.to_string(), &kept, &traces).to_string();
    answering.join().unwrap();
    assert!(refused.contains(&format!("worker {address}: ")), "{refused}");
    assert!(!refused.contains('\n'), "{refused}");
}

#[test]
fn without_a_place_for_blocks_there_is_nothing_to_bring() {
    let (folder, _) = session(2, 10);
    let traces = folder.path().join("traces");
    let crew = crew(1);
    let refused = refusal(&addresses(&crew)[0].to_string(), &Options::default(), &traces);
    assert!(refused.to_string().contains("what they make is kept as blocks"), "{refused}");
}
