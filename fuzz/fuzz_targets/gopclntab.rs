//! An executable file of any bytes as a program of Go: its functions lie one behind the other, and what is told of them is bounded.
#![no_main]

use gopclntab::{Module, Table};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(module) = Module::find(bytes) else { return };
    let Ok(table) = Table::of(&module) else { return };
    let mut before = None;
    table.stacks(&module, |stack, depths| {
        assert!(before.replace(stack.function.begin).is_none_or(|before| before < stack.function.begin));
        let mut end = stack.function.begin;
        for (code, _) in depths {
            assert_eq!(code.start, end);
            end = code.end;
        }
    });
    for function in table.functions().take(64) {
        for at in [0, 4, 0x10, 0x20] {
            let frames = table.frames(bytes, function.begin.saturating_add(at));
            assert!(frames.len() <= 65);
            assert!(frames.iter().all(|it| !it.name.is_empty() && it.name.len() < 3 * 4096));
        }
    }
});
