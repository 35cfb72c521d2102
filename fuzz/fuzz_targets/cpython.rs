//! An executable file of any bytes as CPython's, and any bytes as a line table and as a name.

#![no_main]

use cpython::Interpreter;
use libfuzzer_sys::fuzz_target;
use unwind::Image;

fuzz_target!(|bytes: &[u8]| {
    for minor in 8..=14 {
        for instruction in [0, 2, 100, u32::MAX] {
            let _line = cpython::line(minor, bytes, 7, instruction);
        }
    }
    for width in 0..=5 {
        let text = cpython::text(bytes, width);
        assert_eq!(text.is_some(), matches!(width, 1 | 2 | 4));
    }
    let Ok(image) = Image::parse(bytes) else { return };
    if let Some(Ok(interpreter)) = Interpreter::of(bytes, &image, "python3.8") {
        let _is_evaluation = interpreter.is_evaluation(interpreter.code_type);
        assert!(interpreter.layout.frame_bytes <= 128 && interpreter.layout.code_bytes <= 256);
    }
});
