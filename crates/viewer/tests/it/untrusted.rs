//! A relay that sends anything: an error or a finding, and nothing else.

use viewer::{Error, Options};

use crate::relay::{Mischief, Next, Script, Told, packets, view};

/// More polls than the whole session needs.
const POLLS: u64 = 60;

fn told(mischief: Mischief) -> Told {
    let [first, second] = packets(0, &[(&[1, 4], 0), (&[5], 2)]).try_into().unwrap();
    let a = vec![Next::WithNewStreams(first), Next::Packet(second)];
    let b = vec![Next::Inactive(2), Next::Packet(packets(1, &[(&[3], 0)]).remove(0))];
    let script = Script::new(vec![(1, a), (2, b)], &[2]);
    view(script.with(mischief), Options::default(), POLLS)
}

/// How many bytes the relay sends in the whole session.
fn whole_len() -> usize {
    let (mut enough, mut little) = (1 << 20, 0);
    while enough - little > 1 {
        let middle = usize::midpoint(enough, little);
        if told(Mischief::Cut(middle)).error.is_none() { enough = middle } else { little = middle }
    }
    enough
}

#[test]
fn a_connection_may_end_at_any_byte() {
    let whole = told(Mischief::None);
    assert_eq!(whole.events, [(1, 0), (3, 1), (4, 0), (5, 0)]);
    assert!(whole.error.is_none() && whole.findings == 0, "{whole:?}");
    let len = whole_len();
    assert!(len > 10_000, "lists of streams are long");
    for at in 0..len {
        let told = told(Mischief::Cut(at));
        assert!(matches!(told.error, Some(Error::Closed)), "{at}: {told:?}");
        assert!(whole.events.starts_with(&told.events), "{at}: {told:?}");
    }
}

#[test]
fn any_number_may_be_wrong() {
    let whole = told(Mischief::None);
    let len = whole_len();
    // Most of what is sent are names in fields of fixed length, where nothing depends on the exact byte.
    for bytes in [[0xFF; 4], [0x7F, 0xFF, 0xFF, 0xFF], [0, 1, 0, 1]] {
        for at in (0..len).filter(|at| !(700..13_000).contains(at) || at % 31 == 0) {
            let told = told(Mischief::Forge { at, bytes });
            assert!(told.events.len() <= whole.events.len(), "{at} {bytes:?}: {told:?}");
            // A stream of metadata may have become one of data.
            assert!(told.streams <= 3, "{at} {bytes:?}: {told:?}");
        }
    }
}
