//! Bytes as a profile request, plain or compressed: an error with a place in them, or a request that is checked and shown in every
//! view; and as what a process says of itself. What it takes is bounded by its limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profile::{Limits, ProcessContext, Request, packet_id, ungzip, view};

fuzz_target!(|bytes: &[u8]| {
    let _context = ProcessContext::decode(bytes);
    let limits = Limits { bytes: 1 << 20, records: 1 << 14, numbers: 1 << 16 };
    let Ok(plain) = ungzip(bytes, limits) else { return };
    assert!(plain.len() <= limits.bytes);
    match Request::decode(&plain, limits) {
        Err(error) => assert!(error.offset <= plain.len()),
        Ok(request) => {
            let _problems = request.check();
            let _id = packet_id(&plain).expect("what can be read whole can be read for its ids");
            let mut weights = view::Weights::new();
            weights.add(&request);
            let _folded = view::folded(&weights);
            let _hottest = view::hottest(&weights, 10, 80);
            let _diff = view::diff_text(&weights, &view::Weights::new(), 10);
            let _page = view::flame_graph(&weights, "fuzz");
            let _pprof = view::pprof(std::slice::from_ref(&request));
            let _firefox = view::firefox(&[request]);
        }
    }
});
