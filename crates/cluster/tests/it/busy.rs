//! Workers that have more to do than they take at once.

use std::num::NonZeroUsize;
use std::sync::Barrier;
use std::thread;

use blocks::analyse;
use cluster::{Cluster, MAX_TASKS};

use crate::crew::{addresses, crew};
use crate::jobs::same;
use crate::recipe::{hands, options, run, session};

#[test]
fn a_plan_has_no_more_tasks_for_a_worker_than_it_takes() {
    let windows = 3 * MAX_TASKS;
    let (folder, _) = session(windows as u64, 20);
    let traces = folder.path().join("traces");
    let truth = run(&traces, &options(Some(&folder.path().join("alone"))));
    let (crew, hands) = (crew(1), hands());
    let engine = Cluster::new(&hands, addresses(&crew)).unwrap();
    let engine = engine.with_tasks(NonZeroUsize::new(windows).unwrap());
    let kept = options(Some(&folder.path().join("kept")));
    let answer = analyse(&[traces], &kept, &hands, &engine).unwrap();
    same(&truth, &answer);
    assert_eq!(answer.lost, [""; 0]);
}

/// Two tasks each at one worker, which is more than twice what it takes.
#[test]
fn coordinators_wait_for_a_worker_that_is_busy_and_do_not_call_it_lost() {
    const COORDINATORS: usize = MAX_TASKS + 4;
    let (folder, _) = session(20, 100);
    let traces = folder.path().join("traces");
    let truth = run(&traces, &options(Some(&folder.path().join("alone"))));
    let crew = crew(1);
    let ready = Barrier::new(COORDINATORS);
    thread::scope(|scope| {
        for number in 0..COORDINATORS {
            let kept = options(Some(&folder.path().join(format!("kept-{number}"))));
            let (crew, traces, truth, ready) = (&crew, &traces, &truth, &ready);
            scope.spawn(move || {
                let hands = hands();
                let engine = Cluster::new(&hands, addresses(crew)).unwrap();
                ready.wait();
                let answer = analyse(std::slice::from_ref(traces), &kept, &hands, &engine).unwrap();
                same(truth, &answer);
                assert_eq!(answer.lost, [""; 0], "{number}");
                assert_eq!(engine.absent(), [""; 0], "{number}");
            });
        }
    });
}
