//! What a NATS server says: any bytes are understood, waited for or refused, and each message is within what was given.
#![no_main]

use wire::nats::{FromServer, MAX_PAYLOAD_LEN};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some((said, used))) = FromServer::decode(rest) {
        assert!(used > 0 && used <= rest.len());
        if let FromServer::Message(message) = said {
            assert!(message.payload.len() <= MAX_PAYLOAD_LEN && message.payload.len() < used);
        }
        // Less of it is never something else.
        assert_eq!(FromServer::decode(&rest[..used - 1]), Ok(None));
        rest = &rest[used..];
    }
});
