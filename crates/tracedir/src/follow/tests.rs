use std::fs;

use super::*;
use crate::discover::OLD_CHUNK;

const METADATA: &str = "/* CTF 1.8 */
    typealias integer { size = 8; align = 8; } := u8;
    typealias integer { size = 64; align = 8; } := u64;
    trace { major = 1; minor = 8; byte_order = le; uuid = \"07070707-0707-0707-0707-070707070707\";
      packet.header := struct { u64 stream_instance_id; }; };
    clock { name = c; };
    typealias integer { size = 64; align = 8; map = clock.c.value; } := time;
    stream { packet.context := struct { time timestamp_begin; time timestamp_end; u64 content_size;
        u64 packet_size; u64 packet_seq_num; };
      event.header := struct { time timestamp; }; };
    event { name = tick; fields := struct { u8 none; }; };";

/// A packet of one event record, whose time is the packet's number.
fn packet(number: u64) -> Vec<u8> {
    const BITS: u64 = 8 * (6 * 8 + 9);
    let words = [0, number, number, BITS, BITS, number, number];
    words.iter().flat_map(|word| word.to_le_bytes()).chain([0]).collect()
}

struct Session(tempfile::TempDir);

impl Session {
    fn at(&self, place: &str) -> PathBuf {
        self.0.path().join(place)
    }

    fn write(&self, chunk: &str, packets: impl IntoIterator<Item = u64>) {
        let folder = self.at(chunk).join("ust");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("metadata"), METADATA).unwrap();
        let file = folder.join("ch");
        let mut bytes = fs::read(&file).unwrap_or_default();
        bytes.extend(packets.into_iter().flat_map(packet));
        fs::write(file, bytes).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::create_dir_all(self.at(to)).unwrap();
        fs::rename(self.at(from).join("ust"), self.at(to).join("ust")).unwrap();
    }

    fn archive(&self, from: &str, id: u64) {
        self.rename(from, &format!("archives/20261120T164407+0000-20261120T164408+0000-{id}"));
    }
}

/// Times; a loss of packets is negative.
fn drain(follow: &mut Follow) -> Vec<i64> {
    let mut times = Vec::new();
    while let Some(item) = follow.next_item() {
        times.push(match item {
            Item::Event(event) => event.timestamp.nanos(),
            Item::Loss(loss) => -i64::try_from(loss.count).unwrap(),
        });
    }
    times
}

/// Follows a session whose second chunk follows its first; `between` happens between listing and opening in look 3.
fn with_a_move(between: impl Fn(&Session)) -> Vec<i64> {
    let session = Session(tempfile::tempdir().unwrap());
    let mut follow = Follow::new(&[session.0.path()], FollowOptions::default());
    let mut given = Vec::new();
    session.write("", [1, 2]);
    for look in 0..8 {
        let now = Timestamp::from_nanos(look);
        match look {
            1 => {
                session.rename("", OLD_CHUNK);
                session.write(OLD_CHUNK, [3]);
                session.write("", [5]);
            }
            2 => session.write(OLD_CHUNK, [4]),
            _ => {}
        }
        let found = follow.watch.look(&follow.paths).unwrap();
        if look == 2 {
            between(&session);
        }
        follow.take(found, now).unwrap();
        given.extend(drain(&mut follow));
    }
    follow.finish(Timestamp::from_nanos(9)).unwrap();
    given.extend(drain(&mut follow));
    assert!(follow.findings().is_empty() && follow.late() == 0, "{:?}", follow.findings());
    given
}

#[test]
fn what_moves_between_listing_and_opening_is_given_once_and_in_order() {
    let in_order: Vec<i64> = (1..=8).collect();
    assert_eq!(with_a_move(|session| session.write("", [6, 7, 8])), in_order);
    let archived = |session: &Session| {
        session.archive(OLD_CHUNK, 0);
        session.write("", [6, 7, 8]);
    };
    assert_eq!(with_a_move(archived), in_order, "archived");
    let two_rotations = |session: &Session| {
        session.archive(OLD_CHUNK, 0);
        session.rename("", OLD_CHUNK);
        session.write("", [7, 8]);
        session.write(OLD_CHUNK, [6]);
    };
    assert_eq!(with_a_move(two_rotations), in_order, "two rotations");
    let archived_both = |session: &Session| {
        two_rotations(session);
        session.archive(OLD_CHUNK, 1);
    };
    assert_eq!(with_a_move(archived_both), in_order, "both archived");
}

#[test]
fn a_file_that_lies_where_another_was_is_not_read_for_it() {
    let session = Session(tempfile::tempdir().unwrap());
    let mut follow = Follow::new(&[session.0.path()], FollowOptions::default());
    session.write("", [1]);
    follow.poll(Timestamp::from_nanos(0)).unwrap();
    assert_eq!(drain(&mut follow), [1]);
    session.write("", [2]);
    follow.poll(Timestamp::from_nanos(1)).unwrap();
    // Before it is read, a file of the same length lies there.
    session.rename("", OLD_CHUNK);
    session.write("", [3, 4]);
    let mut given = drain(&mut follow);
    for now in 2..5 {
        follow.poll(Timestamp::from_nanos(now)).unwrap();
        given.extend(drain(&mut follow));
    }
    assert_eq!(given, [2, 3, 4]);
    assert!(follow.findings().is_empty(), "{:?}", follow.findings());
}
