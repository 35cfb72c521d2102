//! Bytes as a call tree of Pyroscope's, as a selector and as requests in either encoding: an error with a place in them, or what can be
//! written and read again.
#![no_main]

use flame::{CallTree, Limits, Rules, Selector};
use libfuzzer_sys::fuzz_target;
use wire::pyroscope::{
    Encoding, PushRequest, SelectMergeStacktracesRequest, SelectSeriesRequest, decode, encode,
};

fuzz_target!(|bytes: &[u8]| {
    match CallTree::decode(bytes) {
        Err(error) => assert!(error.offset <= bytes.len()),
        Ok(tree) => {
            assert!(tree.len() <= bytes.len() / 3);
            assert_eq!(CallTree::decode(&tree.encode()).as_ref(), Ok(&tree));
            let graph = tree.flame_graph(8);
            assert_eq!(graph.total, tree.total());
            let diff = CallTree::diff(&tree, &tree.cut(4), 8);
            assert_eq!((diff.left_ticks, diff.right_ticks), (graph.total, graph.total));
            let _dot = tree.dot(8);
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        match Selector::parse(text) {
            Err(error) => assert!(error.at <= text.len()),
            Ok(selector) => {
                let shown = selector.to_string();
                let read = Selector::parse(&shown).expect("what is written is read");
                assert_eq!(read.to_string(), shown);
            }
        }
    }
    let rules = Rules { limits: Limits::default(), now_ms: 1_700_000_000_000 };
    for encoding in [Encoding::Proto, Encoding::Json] {
        if let Ok(request) = decode::<PushRequest>(bytes, encoding) {
            assert_eq!(decode(&encode(&request, encoding), encoding), Ok(request));
        }
        if let Ok(request) = decode::<SelectMergeStacktracesRequest>(bytes, encoding) {
            let _question = rules.stacktraces(&request);
            assert_eq!(decode(&encode(&request, encoding), encoding), Ok(request));
        }
        if let Ok(request) = decode::<SelectSeriesRequest>(bytes, encoding) {
            let _question = rules.series(&request);
        }
    }
});
