//! The preamble of the relay's encrypted port, and a file of tokens.
#![no_main]

use door::{Answer, Preamble, Tokens};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    drop(Preamble::decode(bytes));
    if let Some(byte) = bytes.first() {
        assert_eq!(Answer::decode(*byte).encode(), *byte);
    }
    if let Ok(text) = str::from_utf8(bytes)
        && let Ok(tokens) = Tokens::parse(text)
    {
        // Nobody has what is no token.
        assert_eq!(tokens.find(b""), None);
    }
});
