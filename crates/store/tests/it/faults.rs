//! A place that fails: before a block is written, after it was, when it is read, when it is full, or slowly. What was acknowledged is
//! there once, what was not is told, and all goes on without a restart.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use model::Timestamp;
use objects::{Deed, Faults, Io, Store};
use store::Error;
use store::lake::name::Tenant;
use store::lake::{Lake, Settings, Ticket};

use crate::lake::{at, blocks_in, samples, sum, tenant};

/// What goes wrong with names that begin so.
#[derive(Debug, Default)]
struct Faulty {
    prefix: Mutex<String>,
    fault: Mutex<Fault>,
    /// Tells when what is held may go on, and when something is held.
    changed: Condvar,
}

#[derive(Debug, Default)]
enum Fault {
    #[default]
    None,
    /// It is not done.
    Before(Deed),
    /// It is done, and the answer is no.
    After(Deed),
    /// Writing takes until something else is set; whether it is waited for.
    Slow(bool),
    /// Each of these by chance, of three in eight.
    Random(fastrand::Rng),
}

impl Faulty {
    fn set(&self, prefix: &str, fault: Fault) {
        prefix.clone_into(&mut self.prefix.lock().unwrap());
        *self.fault.lock().unwrap() = fault;
        self.changed.notify_all();
    }

    fn meets(&self, is_before: bool, deed: Deed, name: &str) -> io::Result<()> {
        if !name.starts_with(&*self.prefix.lock().unwrap()) {
            return Ok(());
        }
        let mut fault = self.fault.lock().unwrap();
        let fails = match &mut *fault {
            Fault::None => false,
            Fault::Before(wrong) => is_before && *wrong == deed,
            Fault::After(wrong) => !is_before && *wrong == deed,
            Fault::Random(random) => random.u8(0..16) < 3,
            Fault::Slow(is_held) => {
                if is_before && deed == Deed::Create {
                    *is_held = true;
                    self.changed.notify_all();
                    let is_slow = |fault: &mut Fault| matches!(fault, Fault::Slow(_));
                    drop(self.changed.wait_while(fault, is_slow).unwrap());
                }
                false
            }
        };
        if fails { Err(io::Error::other("a fault of the test")) } else { Ok(()) }
    }

    /// Waits until a write is held.
    fn is_held(&self) {
        let is_not = |fault: &mut Fault| !matches!(fault, Fault::Slow(true));
        drop(self.changed.wait_while(self.fault.lock().unwrap(), is_not).unwrap());
    }
}

impl Faults for Faulty {
    fn before(&self, deed: Deed, name: &str) -> io::Result<()> {
        self.meets(true, deed, name)
    }

    fn after(&self, deed: Deed, name: &str) -> io::Result<()> {
        self.meets(false, deed, name)
    }
}

fn open(folder: &Path, now: Timestamp) -> (Lake, Arc<Faulty>) {
    let io = Io::start().unwrap();
    let faults = Arc::new(Faulty::default());
    let store = Store::open(folder.to_str().unwrap(), &io).unwrap();
    let store = store.with_faults(Arc::clone(&faults) as Arc<dyn Faults>);
    (Lake::over(store, Settings::default(), now).unwrap(), faults)
}

fn push(lake: &Lake, tenant: &Tenant, second: i64, profile: u128) -> Ticket {
    lake.push(tenant, &samples("f", second, 1, profile)).unwrap()
}

#[test]
fn a_write_that_fails_before_or_after_it_was_done_is_told_and_counts_once_when_it_comes_again() {
    for fault in [Fault::Before(Deed::Create), Fault::After(Deed::Create)] {
        let folder = tempfile::tempdir().unwrap();
        let (lake, faults) = open(folder.path(), at(0));
        let (one, other) = (tenant("one"), tenant("other"));
        let is_done = matches!(fault, Fault::After(_));
        faults.set("one@", fault);
        for profile in 1..4 {
            let tickets = [push(&lake, &one, 0, 7), push(&lake, &other, 0, profile)];
            lake.flush(at(i64::try_from(profile).unwrap()));
            let refused = tickets[0].wait().unwrap_err();
            assert!(matches!(*refused, Error::Objects(_)), "{refused}");
            tickets[1].wait().unwrap();
        }
        assert_eq!((sum(&lake, &one), sum(&lake, &other)), (0, 3));
        assert_eq!(blocks_in(folder.path()).len(), if is_done { 6 } else { 3 });
        // It is well again, and the client has not given up.
        faults.set("", Fault::None);
        let again = push(&lake, &one, 0, 7);
        lake.flush(at(5));
        again.wait().unwrap();
        assert_eq!(sum(&lake, &one), 1);
        lake.compact(at(60)).unwrap();
        assert_eq!((sum(&lake, &one), sum(&lake, &other)), (1, 3));
        drop(lake);
        let (lake, _) = open(folder.path(), at(61));
        assert_eq!((sum(&lake, &one), sum(&lake, &other)), (1, 3));
    }
}

/// The process ends before files are removed whose writing was refused, and done.
#[test]
fn a_write_that_was_refused_and_done_counts_once_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let (lake, faults) = open(folder.path(), at(0));
    let one = tenant("one");
    faults.set("", Fault::After(Deed::Create));
    let refused = push(&lake, &one, 0, 7);
    lake.flush(at(1));
    assert!(refused.wait().is_err());
    faults.set("", Fault::None);
    let again = push(&lake, &one, 0, 7);
    lake.flush(at(2));
    again.wait().unwrap();
    assert_eq!(blocks_in(folder.path()).len(), 2);
    drop(lake);
    let (lake, _) = open(folder.path(), at(3));
    assert_eq!((sum(&lake, &one), blocks_in(folder.path()).len()), (1, 1));
}

#[test]
fn blocks_that_cannot_be_read_for_a_while_are_neither_lost_nor_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let (lake, _) = open(folder.path(), at(0));
    let (one, other) = (tenant("one"), tenant("other"));
    for second in 0..3 {
        let profile = u128::try_from(second).unwrap() + 1;
        let tickets = [push(&lake, &one, second, profile), push(&lake, &other, second, profile)];
        lake.flush(at(second));
        tickets.iter().for_each(|ticket| ticket.wait().unwrap());
    }
    drop(lake);
    let (lake, faults) = open(folder.path(), at(4));
    faults.set("one@", Fault::Before(Deed::Read));
    assert!(lake.select(&one, &store::block::Selection::all()).is_err());
    assert_eq!(sum(&lake, &other), 3);
    // The other's are merged; what is pushed meanwhile is taken.
    assert!(lake.compact(at(60)).is_err());
    assert_eq!(lake.blocks().iter().filter(|block| block.tenant == other).count(), 1);
    let pushed = push(&lake, &one, 61, 9);
    lake.flush(at(61));
    pushed.wait().unwrap();
    assert_eq!(lake.damaged(), []);
    faults.set("", Fault::None);
    assert_eq!((sum(&lake, &one), sum(&lake, &other)), (4, 3));
    lake.compact(at(120)).unwrap();
    assert_eq!((sum(&lake, &one), lake.blocks().iter().filter(|it| it.level == 0).count()), (4, 0));
}

#[test]
fn a_slow_write_keeps_nobody_from_asking_and_no_push_from_being_taken() {
    let folder = tempfile::tempdir().unwrap();
    let (lake, faults) = open(folder.path(), at(0));
    let (one, other) = (tenant("one"), tenant("other"));
    let first = push(&lake, &other, 0, 1);
    lake.flush(at(0));
    first.wait().unwrap();
    faults.set("one@", Fault::Slow(false));
    let slow = push(&lake, &one, 1, 7);
    thread::scope(|scope| {
        let flushing = scope.spawn(|| lake.flush(at(1)));
        faults.is_held();
        assert_eq!((sum(&lake, &other), sum(&lake, &one)), (1, 0));
        let next = push(&lake, &other, 2, 2);
        // The same again waits for the one that is written.
        let again = push(&lake, &one, 1, 7);
        faults.set("", Fault::None);
        flushing.join().unwrap();
        slow.wait().unwrap();
        again.wait().unwrap();
        lake.flush(at(2));
        next.wait().unwrap();
    });
    assert_eq!((sum(&lake, &one), sum(&lake, &other)), (1, 2));
}

/// Reads, writes and removals fail by chance, before and after they are done; clients send again what was refused.
#[test]
fn whatever_fails_all_that_was_acknowledged_is_there_once() {
    for seed in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let (mut lake, mut faults) = open(folder.path(), at(0));
        let tenants = ["one", "other", "third"].map(tenant);
        let mut waiting: BTreeMap<(usize, u128), Ticket> = BTreeMap::new();
        let mut refused: Vec<(usize, u128)> = Vec::new();
        let (mut acknowledged, mut failures) = ([0; 3], 0);
        for second in 1..120 {
            if second % 40 == 0 {
                drop(std::mem::take(&mut waiting));
                // A kill: what waited was neither acknowledged nor refused, and comes again, all of it.
                drop(lake);
                (lake, faults) = open(folder.path(), at(second));
                refused = all_until(second - 1);
            }
            let is_calm = second % 40 > 30;
            let fault = match is_calm {
                true => Fault::None,
                false => Fault::Random(fastrand::Rng::with_seed(seed * 1_000 + second as u64)),
            };
            faults.set("", fault);
            let profile = u128::try_from(second).unwrap();
            let new = (0..tenants.len()).map(|of| (of, profile));
            for (of, profile) in refused.drain(..).chain(new) {
                let sampled = i64::try_from(profile).unwrap();
                waiting.insert((of, profile), push(&lake, &tenants[of], sampled, profile));
            }
            lake.flush(at(second));
            for ((of, profile), ticket) in std::mem::take(&mut waiting) {
                match ticket.wait() {
                    Ok(()) => acknowledged[of] += 1,
                    Err(_) => {
                        failures += 1;
                        refused.push((of, profile));
                    }
                }
            }
            if second % 3 == 0 {
                drop(lake.compact(at(second)));
            }
        }
        assert!(failures > 20, "{failures} failed, seed {seed}");
        assert!(acknowledged.iter().all(|count| *count > 0), "{acknowledged:?}");
        faults.set("", Fault::None);
        assert_eq!(refused, [], "the last seconds were calm");
        let sums = |lake: &Lake| tenants.each_ref().map(|tenant| sum(lake, tenant));
        assert_eq!(sums(&lake), [119; 3], "seed {seed}");
        lake.compact(at(200)).unwrap();
        assert_eq!(sums(&lake), [119; 3], "merged, seed {seed}");
        assert_eq!(lake.damaged(), []);
        drop(lake);
        let (lake, _) = open(folder.path(), at(201));
        assert_eq!(sums(&lake), [119; 3], "opened again, seed {seed}");
    }
}

/// All profiles until a second.
fn all_until(second: i64) -> Vec<(usize, u128)> {
    let profiles = 1..=u128::try_from(second).unwrap();
    profiles.flat_map(|profile| (0..3).map(move |of| (of, profile))).collect()
}

/// A file system of a few hundred KiB, until it is dropped.
struct Tiny(tempfile::TempDir);

impl Tiny {
    /// `None` for who may not mount.
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(folder.path());
        let is_mounted = command.output().is_ok_and(|ran| ran.status.success());
        is_mounted.then_some(Self(folder))
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(self.0.path()).status());
    }
}

#[test]
fn a_disk_that_is_full_refuses_pushes_and_takes_them_when_it_has_room() {
    let Some(tiny) = Tiny::mount() else {
        testkit::skip("mounting a file system needs root");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let catalogue = Some(store::catalogue::url_of_file(&folder.path().join("c.sqlite")));
    let settings = Settings { catalogue, ..Settings::default() };
    let io = Io::start().unwrap();
    let open = |now| Lake::open(tiny.0.path().to_str().unwrap(), &io, settings.clone(), now);
    let lake = open(at(0)).unwrap();
    let one = tenant("one");
    let ballast = tiny.0.path().join("ballast");
    let fill = || drop(fs::write(&ballast, vec![7; 1 << 20]));
    let mut acknowledged = 0;
    for round in 0..3_i64 {
        let profile = |n: i64| u128::try_from(10 * round + n).unwrap();
        let pushed = push(&lake, &one, 10 * round, profile(1));
        lake.flush(at(10 * round));
        pushed.wait().unwrap();
        acknowledged += 1;
        fill();
        let refused = push(&lake, &one, 10 * round, profile(2));
        lake.flush(at(10 * round + 1));
        let error = refused.wait().unwrap_err();
        let said = format!("{:?}", error);
        assert!(matches!(*error, Error::Objects(_)) && said.contains("StorageFull"), "{said}");
        // What is there is answered meanwhile, and what cannot be merged stays.
        assert_eq!(sum(&lake, &one), acknowledged);
        drop(lake.compact(at(10 * round + 2)));
        assert_eq!(sum(&lake, &one), acknowledged);
        fs::remove_file(&ballast).unwrap();
        let again = push(&lake, &one, 10 * round, profile(2));
        lake.flush(at(10 * round + 3));
        again.wait().unwrap();
        acknowledged += 1;
        assert_eq!(sum(&lake, &one), acknowledged);
    }
    let parts = fs::read_dir(tiny.0.path()).unwrap();
    let parts =
        parts.filter(|it| it.as_ref().unwrap().path().extension().is_some_and(|it| it == "part"));
    assert_eq!(parts.count(), 0);
    drop(lake);
    assert_eq!(sum(&open(at(60)).unwrap(), &one), acknowledged);
}
