//! What a coordinator sends to a worker and a worker back: an error, or what is sent as the same bytes again; in bounded memory.
#![no_main]

use blocks::{Report, TASK_BASE_BYTES, TASK_FACTOR, Task};
use libfuzzer_sys::fuzz_target;
use testkit::alloc::most_held;
use throughline_fuzz as _;

fuzz_target!(|body: &[u8]| {
    let bytes = [&*Task::header().unwrap(), body].concat();
    let (task, most) = most_held(|| Task::decode(&bytes));
    let bound = TASK_BASE_BYTES + TASK_FACTOR * bytes.len();
    assert!(most <= bound, "{} bytes take {most} bytes, more than {bound}", bytes.len());
    if let Ok(task) = task {
        assert_eq!(Task::decode(&task.encode().unwrap()).unwrap(), task);
    }
    if let Ok(report) = Report::decode(body) {
        assert_eq!(Report::decode(&report.encode().unwrap()).unwrap(), report);
    }
});
