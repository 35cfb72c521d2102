//! `/ingest`: what older clients send, in each of its formats.

use intake::{Error, ErrorKind, Ingest, Limits, Taken, ingest};
use model::Timestamp;
use wire::proto::Writer;

use crate::support::{NOW, Pprof, any_time, captured, refusal, shown, sums};

fn take_within(
    query: &str,
    content_type: &str,
    body: &[u8],
    limits: &Limits,
) -> Result<Taken, Error> {
    ingest(Ingest { query, content_type, body }, limits, Timestamp::from_nanos(NOW))
}

fn take(query: &str, body: &[u8]) -> Taken {
    take_within(query, "", body, &any_time()).unwrap()
}

/// Lines of samples, labels left out.
fn stacks(taken: &Taken) -> Vec<String> {
    let lines = shown(taken);
    let parts = lines.iter().map(|line| line.split_once(" {").unwrap());
    parts.map(|(kind, rest)| format!("{kind} {}", rest.split_once("} ").unwrap().1)).collect()
}

const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

#[test]
fn what_node_sends_is_taken() {
    let query = "format=pprof&from=1795191872&name=capture.node.app%7Botel.scope.name%3Dcom.grafana.pyroscope%2Fnodejs%2Cregion%3Deu-west%7D&spyName=nodespy&until=1795191882&sampleRate=17";
    if let Some(body) = captured("node-0.6.4-ingest-wall-cpu.body") {
        let taken = take(query, &body);
        let expected = [
            ("wall:cpu:nanoseconds:wall:nanoseconds".to_owned(), 1_848_033_915),
            ("wall:samples:count:wall:nanoseconds".to_owned(), 832),
            ("wall:wall:nanoseconds:wall:nanoseconds".to_owned(), 1_927_840_000),
        ];
        assert_eq!(sums(&taken).into_iter().collect::<Vec<_>>(), expected);
        for (_, series) in taken.batch.all_series() {
            let label = |name| series.labels.get(name);
            assert_eq!(label("service_name"), Some("capture.node.app"));
            assert_eq!(label("otel.scope.name"), Some("com.grafana.pyroscope/nodejs"));
            assert_eq!(
                (label("pyroscope_spy"), label("__delta__")),
                (Some("nodespy"), Some("false"))
            );
        }
    }
    if let Some(body) = captured("node-0.6.4-ingest-heap.body") {
        let expected = [
            ("memory:inuse_objects:count:inuse_space:bytes".to_owned(), 84_675),
            ("memory:inuse_space:bytes:inuse_space:bytes".to_owned(), 14_717_274),
        ];
        assert_eq!(sums(&take(query, &body)).into_iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_form_is_taken_as_what_is_in_it() {
    let Some(body) = captured("node-0.4.5-ingest-multipart-wall.body") else { return };
    let content_type = "multipart/form-data; boundary=----formdata-undici-052466412784";
    let query = "from=1795191899&name=capture.node.app%7Bregion%3Deu-west%7D&spyName=nodespy&until=1795191909&sampleRate=17";
    let taken = take_within(query, content_type, &body, &any_time()).unwrap();
    let kinds: Vec<String> = sums(&taken).into_keys().collect();
    assert_eq!(
        kinds,
        ["wall:samples:count:wall:nanoseconds", "wall:wall:nanoseconds:wall:nanoseconds"]
    );
    assert!(taken.profiles.iter().all(Result::is_ok));
}

#[test]
fn what_python_sent_is_taken_once_unpacked() {
    let Some(body) = captured("python-0.8.7-ingest-pprof.body") else { return };
    let query = "name=capture.py.app&from=1795191840&until=1795191850&format=pprof&sampleRate=100&spyName=pyspy";
    let taken = take(query, &body);
    assert_eq!(sums(&taken).into_iter().collect::<Vec<_>>(), [(CPU.to_owned(), 7_910_000_000)]);
    assert_eq!(take(query, &body).profiles, taken.profiles);
}

#[test]
fn functions_of_scripts_are_called_by_their_file() {
    let check = |spy: &str, file: &str, expected: &str| {
        let mut profile = Pprof::small();
        profile.functions[0][3] = profile.string(file);
        let body = profile.sample(&[1], &[1], &[]).bytes();
        let taken = take(&format!("name=a&format=pprof&spyName={spy}"), &body);
        assert_eq!(stacks(&taken), [format!("{CPU} {expected} 1")]);
    };
    check("pyspy", "a.py", "a.py main");
    check("pyspy", "/a.py", "main");
    check("rbspy", "/a.rb", "/a.rb main");
    check("gospy", "a.go", "main");
    check("rbspy", "", "main");
}

#[test]
fn a_form_may_call_sample_types_otherwise() {
    let mut profile = Pprof::small().sample(&[1], &[1], &[]);
    profile.strings[1] = "waits".to_owned();
    profile.time_ns = 5;
    let form = |parts: &[(&str, &[u8])]| {
        let mut body = Vec::new();
        for (name, bytes) in parts {
            let head = format!("--xx\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
            body.extend([head.as_bytes(), bytes, b"\r\n"].concat());
        }
        body.extend(b"--xx--\r\n");
        take_within(
            "name=a&from=1795191872",
            "multipart/form-data; boundary=xx",
            &body,
            &any_time(),
        )
    };
    let bytes = profile.bytes();
    let config = br#"{"waits":{"units":"samples","display-name":"block_count","sampled":true}}"#;
    let kinds = |taken: Taken| sums(&taken).into_keys().collect::<Vec<_>>();
    let taken = form(&[("profile", &bytes), ("sample_type_config", config)]).unwrap();
    // A time in 1970 is none.
    assert_eq!(taken.batch.samples()[0].at.nanos(), 1_795_191_872_000_000_000);
    assert_eq!(kinds(taken), ["block:waits:nanoseconds:waits:nanoseconds"]);
    let plain = form(&[("profile", &bytes)]).unwrap();
    assert_eq!(kinds(plain), ["waits:waits:nanoseconds:waits:nanoseconds"]);
    let why = |parts: &[(&str, &[u8])]| form(parts).unwrap_err().to_string();
    assert_eq!(why(&[("other", b"")]), "the form has no part called profile");
    let before = why(&[("profile", &bytes), ("prev_profile", b"")]);
    assert_eq!(before, "the form has the profile before, too: update the client");
    assert!(why(&[("profile", &bytes), ("sample_type_config", b"{")]).starts_with("JSON: "));
}

#[test]
fn folded_stacks_are_times_of_their_rate() {
    let body = b"main;work 2\r\nmain;;work 1\nmain with blanks;x 3\nnothing\n\nmain 0\nmain -4";
    let taken = take("name=shop.cpu%7Ba%3Db%7D&sampleRate=50&from=1795191872", body);
    assert_eq!(
        shown(&taken),
        [
            format!(
                "{CPU} {{__delta__=false,a=b,pyroscope_spy=unknown,service_name=shop}} main with blanks;x 60000000"
            ),
            format!(
                "{CPU} {{__delta__=false,a=b,pyroscope_spy=unknown,service_name=shop}} main;work 60000000"
            ),
        ]
    );
    let left_out = taken.profiles[0].as_ref().unwrap().left_out;
    assert_eq!((left_out.lines, left_out.zeros, left_out.negatives), (1, 1, 1));
    let at = taken.batch.samples()[0].at.nanos();
    assert_eq!(at, 1_795_191_872_000_000_000);
    let counted = take("name=shop.cpu&sampleRate=0&format=folded", b"main 2");
    assert_eq!(stacks(&counted), ["process_cpu:samples:count:: main 2"]);
    let lines = take("name=shop.wall&format=lines", b"main;work\nmain\nmain;work\n");
    let wall = "wall:wall:nanoseconds:cpu:nanoseconds";
    assert_eq!(
        stacks(&lines),
        [format!("{wall} main 10000000"), format!("{wall} main;work 20000000")]
    );
}

#[test]
fn the_last_part_of_the_name_says_what_is_counted() {
    let kind = |name: &str| stacks(&take(&format!("name={name}"), b"main 1"))[0].clone();
    assert_eq!(kind("a.b.alloc_space"), "memory:alloc_space:bytes:: main 1");
    assert_eq!(kind("a.mutex_duration"), "mutex:delay:nanoseconds:: main 1");
    assert_eq!(kind("a.exceptions"), "exceptions:samples:count:: main 1");
    assert_eq!(kind("a"), format!("{CPU} main 10000000"));
    let error = take_within("name=a.b", "", b"main 1", &any_time()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Query);
    assert!(
        error.to_string().starts_with("parameter name: \"a.b\" does not end in what is counted")
    );
    let named = take("name=a.cpu%7Bservice_name%3Ds,__x%3Dy%7D", b"main 1");
    let labels = "{__delta__=false,app_name=a,pyroscope_spy=unknown,service_name=s}";
    assert_eq!(shown(&named), [format!("{CPU} {labels} main 10000000")]);
}

/// Name, value, children.
fn node(name: &str, value: u64, children: u64) -> Vec<u8> {
    let mut out = Writer::default();
    out.varint(name.len() as u64);
    out.bytes.extend(name.as_bytes());
    out.varint(value);
    out.varint(children);
    out.bytes
}

#[test]
fn trees_and_tries_are_stacks() {
    let query = "name=a.alloc_objects&format=";
    let kind = "memory:alloc_objects:count::";
    let tree =
        [node("", 0, 2), node("main", 1, 1), node("work", 2, 0), node("other", 3, 0)].concat();
    let expected =
        [format!("{kind} main 1"), format!("{kind} main;work 2"), format!("{kind} other 3")];
    assert_eq!(stacks(&take(&format!("{query}tree"), &tree)), expected);
    let trie =
        [node("", 0, 2), node("main", 1, 1), node(";work", 2, 0), node("other", 3, 0)].concat();
    assert_eq!(stacks(&take(&format!("{query}trie"), &trie)), expected);
    let typed = take_within(query, "binary/octet-stream+trie", &trie, &any_time()).unwrap();
    assert_eq!(stacks(&typed), expected);

    let check = |format: &str, body: &[u8], expected: &str| {
        let why = refusal(&take(&format!("{query}{format}"), body));
        assert!(why.contains(expected), "{why}");
    };
    for format in ["tree", "trie"] {
        check(format, &tree[..tree.len() - 1], &format!("are there at byte 24, in {format}"));
        check(format, &node("main", 1, 1 << 60), "bytes are needed");
        check(format, &node("main", 1, 1), "bytes are needed");
        check(format, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x01], "bytes are needed");
        check(format, &node("m", u64::MAX, 0), "more than 2^63 - 1");
        check(format, &[1, 0xff, 1, 0], "text that is not UTF-8");
    }
}

#[test]
fn speedscope_files_are_taken() {
    let file = |profiles: &str| {
        format!(
            r#"{{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{{"frames":[{{"name":"main"}},{{"name":"work","file":"w.js","line":7}}]}},"profiles":[{profiles}]}}"#
        )
    };
    let query = "name=a&format=speedscope";
    let sampled = r#"{"type":"sampled","name":"p","unit":"milliseconds","startValue":0,"endValue":4,"samples":[[0,1],[0],[0,1]],"weights":[1.5,2,0.25]}"#;
    let taken = take(query, file(sampled).as_bytes());
    assert_eq!(stacks(&taken), [format!("{CPU} main 2000000"), format!("{CPU} main;work 1750000")]);
    let series: Vec<_> = taken.batch.all_series().collect();
    assert_eq!(series[0].1.labels.get("profile_name"), Some("p"));

    let evented = r#"{"type":"evented","name":"q","unit":"none","startValue":1,"events":[{"type":"O","frame":0,"at":1},{"type":"O","frame":1,"at":3},{"type":"C","frame":1,"at":7},{"type":"C","frame":0,"at":8}]}"#;
    let both = take(query, file(&format!("{sampled},{evented}")).as_bytes());
    let wall = "wall:wall:nanoseconds:cpu:nanoseconds";
    let expected = [
        format!("{CPU} main 30000000"),
        format!("{CPU} main;work 40000000"),
        format!("{wall} main 2000000"),
        format!("{wall} main;work 1750000"),
    ];
    assert_eq!(stacks(&both), expected);
    let ids: Vec<u128> = both.profiles.iter().map(|it| it.as_ref().unwrap().id).collect();
    assert_ne!(ids[0], ids[1]);

    let bytes = sampled.replace("milliseconds", "bytes");
    let memory = "memory:samples:bytes::";
    let taken = take(query, file(&bytes).as_bytes());
    assert_eq!(stacks(&taken), [format!("{memory} main 2"), format!("{memory} main;work 2")]);

    let check = |profile: &str, expected: &str| {
        assert_eq!(refusal(&take(query, file(profile).as_bytes())), expected);
    };
    check(&sampled.replace("[0]", "[2]"), "profile 0 refers to frame 2, which is not there");
    check(&sampled.replace(",0.25", ""), "2 weights for 3 samples");
    check(
        &sampled.replace("0.25", "1e300"),
        "the values of equal samples add up to more than 2^63 - 1",
    );
    check(
        &sampled.replace("sampled", "other"),
        "speedscope's profile type \"other\" is not supported",
    );
    check(&evented.replace("\"at\":7", "\"at\":2"), "event number 2 is before the one before");
    let crossed = evented.replace("\"C\",\"frame\":1", "\"C\",\"frame\":0");
    check(&crossed, "event number 2 closes a frame that is not the innermost");
    let error = take_within(query, "", b"{}", &any_time()).unwrap_err().to_string();
    assert!(error.starts_with("JSON: "), "{error}");
}

#[test]
fn a_retry_has_the_same_id_and_another_profile_has_not() {
    let id = |query: &str, body: &[u8]| take(query, body).profiles[0].as_ref().unwrap().id;
    let first = id("name=a.cpu&from=1&until=2", b"main 1");
    assert_eq!(id("name=a.cpu&from=1&until=2", b"main 1"), first);
    let later = ingest(
        Ingest { query: "name=a.cpu&until=2&from=1", content_type: "", body: b"main 1" },
        &any_time(),
        Timestamp::from_nanos(NOW + 5),
    );
    assert_eq!(later.unwrap().profiles[0].as_ref().unwrap().id, first);
    for (query, body) in [
        ("name=b.cpu&from=1&until=2", b"main 1"),
        ("name=a.cpu&from=2&until=2", b"main 1"),
        ("name=a.cpu&from=1&until=3", b"main 1"),
        ("name=a.cpu&from=1&until=2", b"main 2"),
    ] {
        assert_ne!(id(query, body), first, "{query}");
    }
}

#[test]
fn what_cannot_be_taken_is_refused() {
    let check = |query: &str, body: &[u8], limits: &Limits, expected: &str, kind: ErrorKind| {
        let error = match take_within(query, "", body, limits) {
            Err(error) => error,
            Ok(taken) => taken.profiles.into_iter().next().unwrap().unwrap_err().error,
        };
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.kind(), kind);
    };
    let all = Limits::default();
    check(
        "name=a&format=jfr",
        b"FLR\0\0\x01",
        &all,
        "version 1 of JFR is not supported",
        ErrorKind::Unsupported,
    );
    check(
        "name=a",
        b"main 1\nmain x",
        &all,
        "line 2: \"x\" is no whole number",
        ErrorKind::Invalid,
    );
    check("name=a", b"main 1\n\xff 1", &all, "line 2: \"\" is not UTF-8", ErrorKind::Invalid);
    check("name=a&format=pprof", b"x", &all, "at byte", ErrorKind::Invalid);
    check("name=a&from=now-2h", b"main 1", &all, "before its arrival", ErrorKind::Invalid);
    let few = Limits { profile_samples: 1, ..all.clone() };
    check("name=a", b"a 1\na 1\nb 1", &few, "more than 1 different samples", ErrorKind::TooLarge);
    let short = Limits { text_bytes: 5, ..all };
    check("name=a", b"main 1", &short, "more than 5 bytes of text", ErrorKind::TooLarge);
    // An empty profile is one.
    for format in ["pprof", "groups", "lines"] {
        let empty = take(&format!("name=a&format={format}"), b"");
        assert_eq!(empty.profiles[0].as_ref().unwrap().samples, 0);
    }
}
