//! Requests from bytes, however those are cut, and replies.

use osprofiler::resp::{
    Bounds, Decoder, Error, MAX_ARGUMENTS, MAX_BULK_LEN, MAX_INLINE_LEN, MAX_REQUEST_LEN, Replies,
    Version, Wrong, integer,
};

use crate::server::request;

type Read = (Vec<Vec<Vec<u8>>>, Option<Error>);

/// All requests of pieces, and why there is none behind them.
fn read<'b>(pieces: impl IntoIterator<Item = &'b [u8]>) -> Read {
    let (mut decoder, mut requests) = (Decoder::new(Bounds::KNOWN), Vec::new());
    for piece in pieces {
        decoder.feed(piece);
        loop {
            match decoder.request() {
                Ok(None) => break,
                Ok(Some(request)) => requests.push(request.iter().map(|it| it.to_vec()).collect()),
                Err(error) => {
                    assert_eq!(decoder.request(), Err(error), "an error stays");
                    return (requests, Some(error));
                }
            }
        }
    }
    (requests, None)
}

fn words(requests: &[&[&str]]) -> Vec<Vec<Vec<u8>>> {
    let request = |request: &&[&str]| request.iter().map(|word| word.as_bytes().to_vec()).collect();
    requests.iter().map(request).collect()
}

fn wrong(bytes: &[u8]) -> (u64, Wrong) {
    let error = read([bytes]).1.unwrap_or_else(|| panic!("{}", bytes.escape_ascii()));
    (error.offset, error.wrong)
}

#[test]
fn requests_follow_each_other() {
    let bytes =
        [&request(&["GET", "a\r\nb"])[..], b"*0\r\n*-1\r\n\r\n  ping  x\n", &request(&[""])];
    let expected = words(&[&["GET", "a\r\nb"], &["ping", "x"], &[""]]);
    assert_eq!(read([&bytes.concat()[..]]), (expected, None));
}

#[test]
fn what_is_not_all_there_is_waited_for() {
    let whole = [request(&["LPUSH", "key", "value"]), b"PING\r\n".to_vec()].concat();
    for len in 0..whole.len() {
        let (requests, error) = read([&whole[..len]]);
        assert!(requests.len() < 2 && error.is_none(), "{len}");
        assert_eq!(read([&whole[..len], &whole[len..]]), read([&whole[..]]));
    }
}

#[test]
fn what_is_no_request_is_refused_with_its_place() {
    let (arguments, bulk) =
        (Wrong::Arguments { limit: MAX_ARGUMENTS }, Wrong::Bulk { limit: MAX_BULK_LEN });
    for text in [
        "*x\r\n",
        "*\r\n",
        "*1025\r\n",
        "*9999999999999999999\r\n",
        "*+1\r\n",
        "*01\r\n",
        "*1 \r\n",
    ] {
        assert_eq!(wrong(text.as_bytes()), (0, arguments), "{text}");
        assert_eq!(wrong(format!("PING\r\n{text}").as_bytes()), (6, arguments));
    }
    for text in ["$x\r\n", "$-1\r\n", "$\r\n", "$1048577\r\n", "$99999999999999999999\r\n"] {
        assert_eq!(wrong(format!("*2\r\n$1\r\na\r\n{text}").as_bytes()), (11, bulk), "{text}");
    }
    assert_eq!(wrong(b"*1\r\n+OK\r\n"), (4, Wrong::NoBulk { found: b'+' }));
    assert_eq!(wrong(b"*1\r\n$2\r\nabcd"), (10, Wrong::NoEnd));
    assert_eq!(wrong(b"\nECHO \"a b\"\n"), (1, Wrong::Quotes));
    assert_eq!(wrong(&[b'*'; 100]), (0, arguments));
    assert_eq!(wrong(&[b"*1\r\n$", &[b'1'; 100][..]].concat()), (4, bulk));
    let error = read([&b"*1\r\n:7\r\n"[..]]).1.unwrap();
    assert_eq!(error.to_string(), "byte 4 of the connection: expected '$', got ':'");
}

#[test]
fn the_longest_are_taken_and_no_longer_ones() {
    let bulk = |len: usize| {
        [format!("${len}\r\n").into_bytes(), vec![b'a'; len], b"\r\n".to_vec()].concat()
    };
    let many = |count: usize, len: usize| {
        [format!("*{count}\r\n").into_bytes(), bulk(len).repeat(count)].concat()
    };
    for (count, len) in [(1, MAX_BULK_LEN), (MAX_ARGUMENTS, 1), (3, MAX_BULK_LEN)] {
        let (requests, error) = read([&many(count, len)[..]]);
        assert_eq!((requests[0].len(), requests[0][0].len(), error), (count, len, None));
    }
    let too_long = Wrong::TooLong { limit: MAX_REQUEST_LEN };
    let at = 4 + 3 * bulk(MAX_BULK_LEN).len() as u64;
    assert_eq!(wrong(&many(4, MAX_BULK_LEN)), (at, too_long));
    let inline = |len: usize| [vec![b'a'; len], b"\n".to_vec()].concat();
    assert_eq!(read([&inline(MAX_INLINE_LEN)[..]]).0[0][0].len(), MAX_INLINE_LEN);
    let limit = MAX_INLINE_LEN;
    assert_eq!(wrong(&inline(limit + 1)), (0, Wrong::Inline { limit }));
    // Nothing is waited for that would be too long.
    assert_eq!(wrong(&inline(limit + 1)[..=limit]), (0, Wrong::Inline { limit }));
    let limit = MAX_ARGUMENTS;
    assert_eq!(
        wrong(&[&b"a ".repeat(limit + 1)[..], b"\n"].concat()),
        (0, Wrong::Arguments { limit })
    );
}

#[test]
fn however_mutated_bytes_are_cut_the_answer_is_the_same() {
    let whole = [
        request(&["LPUSH", "osprofiler_opt:a", "{\"a\": 1}"]),
        b"PING\r\n  GET osprofiler:a \n".to_vec(),
        request(&["SCAN", "0", "MATCH", "a*"]),
        b"*0\r\n".to_vec(),
    ]
    .concat();
    let mut random = fastrand::Rng::with_seed(11);
    let mut errors = 0;
    for _ in 0..5000 {
        let mut bytes = whole.clone();
        for _ in 0..random.usize(0..4) {
            let at = random.usize(..bytes.len());
            bytes[at] =
                if random.bool() { random.u8(..) } else { *random.choice(b"*$\r\n019-").unwrap() };
        }
        let at_once = read([&bytes[..]]);
        assert_eq!(read(bytes.chunks(1)), at_once, "{}", bytes.escape_ascii());
        let len = random.usize(2..40);
        assert_eq!(read(bytes.chunks(len)), at_once, "{}", bytes.escape_ascii());
        errors += usize::from(at_once.1.is_some());
    }
    assert!(errors > 500, "{errors}");
}

#[test]
fn numbers_are_read_as_redis_does() {
    for (text, number) in [
        ("0", Some(0)),
        ("-1", Some(-1)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("", None),
        ("-", None),
        ("-0", None),
        ("+1", None),
        ("01", None),
        (" 1", None),
        ("1a", None),
    ] {
        assert_eq!(integer(text.as_bytes()), number, "{text}");
    }
}

#[test]
fn replies_are_written_in_both_versions() {
    let written = |version| {
        let mut out = Vec::new();
        let mut replies = Replies::new(&mut out, version);
        replies.simple("OK");
        replies.error(b"ERR a\r\nb");
        replies.integer(-7);
        replies.bulk(b"a\r\n");
        replies.array(2);
        replies.map(1);
        replies.null();
        replies.verbatim("text");
        String::from_utf8(out).unwrap()
    };
    let same = "+OK\r\n-ERR a  b\r\n:-7\r\n$3\r\na\r\n\r\n*2\r\n";
    assert_eq!(written(Version::Resp2), format!("{same}*2\r\n$-1\r\n$4\r\ntext\r\n"));
    assert_eq!(written(Version::Resp3), format!("{same}%1\r\n_\r\n=8\r\ntxt:text\r\n"));
}
