//! Compressed stream files: any place of any file is read or refused, and reading in pieces gives what reading at once does.
#![no_main]

use tracedir::seekable::{MAX_FRAME_BYTES, Seekable};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = Seekable::open(bytes, bytes.len() as u64) else { return };
    let mut whole = vec![0; MAX_FRAME_BYTES];
    // The first frames: each is at most as long as the buffer, and a small file may declare a million of them.
    for number in 0..file.table().frames().min(8) {
        let Some(frame) = file.table().frame(number) else { break };
        let Ok(read) = file.read_some_at(&mut whole, frame.content_offset) else { continue };
        assert!(frame.content_len == 0 || read == frame.content_len);
        let half = frame.content_len / 2;
        let mut piece = vec![0; (frame.content_len - half).min(100)];
        let read = file.read_some_at(&mut piece, frame.content_offset + half as u64);
        if frame.content_len > 0 {
            assert_eq!(read.ok(), Some(piece.len()));
            assert_eq!(piece, whole[half..half + piece.len()]);
        }
    }
    drop(file.read_some_at(&mut whole, u64::MAX));
});
