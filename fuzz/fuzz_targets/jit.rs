//! What a process says of code that it made: a jitdump, or a perf map, that grows by pieces. Names are bounded, and what is read
//! in pieces says the same as what is read at once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use symbols::jit::{JitCode, JitDump, MAX_JIT_BYTES, PerfMap, V8Name};

fuzz_target!(|bytes: &[u8]| {
    let Some((step, file)) = bytes.split_first() else { return };
    let lengths = || (0..file.len()).step_by(usize::from(*step).max(1)).chain([file.len()]);
    let from = |offset: u64, len: usize| {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        file.get(offset..len.max(offset)).unwrap_or_default()
    };
    let whole = |code: &JitCode| {
        assert!(code.bytes() <= MAX_JIT_BYTES);
        let addresses = (0..64).map(|bit| 1_u64 << bit).chain([0, u64::MAX]);
        let found = addresses.map(|at| code.find(at).map(|it| it.name.to_owned()));
        (code.len(), found.collect::<Vec<_>>())
    };

    let (mut dump, mut code) = (JitDump::default(), JitCode::default());
    if dump.read(file).is_ok() {
        dump.advance(u64::MAX, &mut code);
        let at_once = whole(&code);
        let (mut grown, mut code) = (JitDump::default(), JitCode::default());
        for len in lengths() {
            grown.read(from(grown.offset(), len)).expect("what can be read at once can be read in pieces");
        }
        grown.advance(u64::MAX, &mut code);
        assert_eq!(whole(&code), at_once);
    }

    let (mut map, mut code) = (PerfMap::default(), JitCode::default());
    map.read(file, &mut code);
    let at_once = whole(&code);
    for name in &at_once.1 {
        let _written = name.as_deref().and_then(V8Name::of);
    }
    let (mut grown, mut code) = (PerfMap::default(), JitCode::default());
    for len in lengths() {
        let offset = grown.offset();
        if offset < len as u64 {
            grown.read(from(offset, len), &mut code);
        }
    }
    assert_eq!(whole(&code), at_once);
});
