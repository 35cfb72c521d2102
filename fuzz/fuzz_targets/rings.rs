//! Words of a ring and a description of a call site, both any bytes: what is read ends, has consecutive numbers, and never goes beyond what was given.
#![no_main]

use rings::{Cursor, Item, Items, Value, describe};
use tracepoint::layout::{FieldType, Shape};

const SHAPE: Shape = Shape { rings: 1, ring_len: 16 << 10, sites_len: 4096 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let described = describe(bytes);
    let (site, rest) = match described {
        Some((site, len)) => (Some(site), &bytes[len..]),
        None => (None, bytes),
    };
    let words: Vec<u64> = rest.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let number = site.as_ref().map_or(0, |site| usize::from(site.number));
    let mut sites = vec![None; number];
    sites.push(site);
    let begin = Cursor { position: 0, number: 7, is_certain: false };
    let mut items = Items::new(&words, &sites, &SHAPE, begin);
    let mut next = None;
    while let Ok(Some(item)) = items.next_item() {
        let Item::Record(record) = item else { continue };
        assert!(next.is_none_or(|next| next <= record.number));
        next = Some(record.number + 1);
        let is_tagged = record.site.fields.iter().any(|(_, kind)| *kind == FieldType::Tagged);
        assert!(is_tagged || record.values().count() == record.site.fields.len());
        for value in record.values() {
            if let Value::Text(cut) | Value::Bytes(cut) = value {
                assert!(cut.bytes.len() <= rest.len() && cut.bytes.len() <= cut.had as usize);
            }
        }
    }
    assert!(items.cursor().position <= (words.len() * 8) as u64);
});
