//! Tables of what analyses find: what is read for a question, and that it changes no answer.

use testkit::{skip, unpacked_trace};

use crate::ask::{open, rows};

#[test]
fn what_is_pushed_down_leaves_the_rows_that_filtering_all_leaves() {
    let Some(path) = unpacked_trace("kernel-basic-lttng210") else {
        return skip("no recording kernel-basic-lttng210");
    };
    let database = open(&path);
    for (pushed, plain) in [
        ("duration > 1000000", "duration + 0 > 1000000"),
        ("tid in (12039, 13665)", "tid + 0 in (12039, 13665)"),
        ("cpu = 1", "cpu + 0 = 1"),
        ("comm = 'dd'", "comm || '' = 'dd'"),
        ("kind in ('irq', 'disk', 'syscall')", "kind || '' in ('irq', 'disk', 'syscall')"),
        (
            "\"end\" < '2018-03-19T18:39:20'",
            "\"end\" + interval '0' second < '2018-03-19T18:39:20'",
        ),
        (
            "begin >= '2018-03-19T18:39:20.5' and kind = 'syscall'",
            "begin + interval '0' second >= '2018-03-19T18:39:20.5' and kind = 'syscall'",
        ),
        (
            "begin >= '2018-03-19T18:39:20.5' and kind = 'running'",
            "begin + interval '0' second >= '2018-03-19T18:39:20.5' and kind = 'running'",
        ),
    ] {
        let order = "order by \"end\", begin, kind, name, tid, cpu, sector, ret, irq";
        let of = |condition| format!("select * from spans where {condition} {order}");
        let (found, expected) = (rows(&database, &of(pushed)), rows(&database, &of(plain)));
        assert!(expected.len() > 10, "{plain}: {} rows", expected.len());
        assert!(found == expected, "{pushed}: {} and {} rows", found.len(), expected.len());
    }
    let plan = rows(
        &database,
        "explain select begin from spans where kind = 'irq' and duration > 5 and cpu = 1",
    )
    .concat();
    assert!(plan.contains("kinds=[irq], duration=[6, 9223372036854775807], cpus=[1]"), "{plan}");
}
