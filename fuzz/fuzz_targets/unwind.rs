//! An executable file of any bytes, and a walk by what it says.

#![no_main]

use libfuzzer_sys::fuzz_target;
use unwind::walk::{Code, MAX_FRAMES, Registers, walk};
use unwind::{Image, Table};

fuzz_target!(|bytes: &[u8]| {
    let Ok(image) = Image::parse(bytes) else { return };
    let Ok((table, _)) = Table::with_instructions(&image, bytes) else { return };
    let mut before = None;
    for (start, _) in table.rows() {
        assert!(before.replace(start).is_none_or(|before| before < start));
    }
    let word = |address: u64| Some(address.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17));
    let pc = table.base();
    let start = Registers { pc, sp: 1 << 20, fp: 1 << 21, lr: pc };
    let mut frames = 0;
    walk(image.architecture(), start, MAX_FRAMES, &word, |pc| Code::Rule(table.find(pc)), |_| frames += 1);
    assert!(frames <= MAX_FRAMES);
});
