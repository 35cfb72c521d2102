//! The applications: this binary again, with the name of what it does in a variable.

use std::sync::atomic::{AtomicU64, Ordering};

use tracepoint::{Context, Options, Site, Status, Tracepoints, event, span, tracepoint};
use tracing_subscriber::layer::SubscriberExt;

/// Which of these is wanted.
pub(crate) const ROLE: &str = "RINGS_TEST_APP";
/// A file with a word for each thread: how many records it has written, for [`write_until_killed`].
pub(crate) const WITNESS: &str = "RINGS_TEST_WITNESS";

/// Records of each thread, for applications that end.
pub(crate) const RECORDS: u64 = 20_000;
pub(crate) const THREADS: u64 = 3;

/// Not a test: what the tests start.
#[test]
#[ignore = "started by other tests"]
fn app() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match &*role {
        "threads" => threads(),
        "types" => types(),
        "brief" => tracepoint!("brief", number: u64 = 7),
        "full" => full(),
        "longest" => longest(),
        "many" => many(),
        "fork" => fork(),
        "fork_storm" => fork_storm(),
        "signals" => signals(),
        "rules" => rules(),
        "killed" => write_until_killed(),
        "silent" => silent(),
        "lean" => lean(),
        "spans" => spans(),
        "layer" => layer(),
        role => panic!("{role}"),
    }
}

/// Waits until the other side says that it has seen enough.
fn wait_for_input() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

fn say(text: &str) {
    use std::io::Write;
    println!("{text}");
    std::io::stdout().flush().unwrap();
}

/// What another field of a record is, so that one that is torn shows.
pub(crate) const fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

fn threads() {
    let writers: Vec<_> = (0..THREADS)
        .map(|thread| {
            let write = move || {
                for number in 0..RECORDS {
                    tracepoint!("tick", thread: u64 = thread, number: u64 = number, mixed: u64 = mixed(number));
                }
            };
            std::thread::Builder::new().name(format!("writer-{thread}")).spawn(write).unwrap()
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    say("written");
    wait_for_input();
}

fn types() {
    let long = "ä".repeat(5_000);
    let owned = String::from("owned");
    tracepoint!("none");
    tracepoint!(
        "all", a: u8 = 255, b: u16 = 65_535, c: u32 = u32::MAX, d: u64 = u64::MAX, e: usize = 7,
        f: i8 = -1, g: i16 = -2, h: i32 = i32::MIN, i: i64 = i64::MIN, j: isize = -5,
        k: f32 = 0.5, l: f64 = -1e300, m: bool = true,
        n: str = "ä\0b", o: str = owned, p: [u8] = [1, 2, 255], q: str = "", r: str = long,
        s: str = "12345678",
    );
    say("written");
    wait_for_input();
}

/// More than a ring of 16 KiB takes, and one record that no ring takes.
fn full() {
    let long = [7u8; 4096];
    for number in 0..2_000u64 {
        tracepoint!("tick", thread: u64 = 0, number: u64 = number, mixed: u64 = mixed(number));
    }
    tracepoint!("long", bytes: [u8] = long);
    say("written");
    wait_for_input();
    for number in 2_000..2_010u64 {
        tracepoint!("tick", thread: u64 = 0, number: u64 = number, mixed: u64 = mixed(number));
    }
    say("written");
    wait_for_input();
}

/// Records of 63 texts of 8,192 bytes and another one, and of one text more in a span.
macro_rules! record_of_texts {
    ($write:ident, $long:expr, $last:expr; $($name:ident)*) => {
        $write!("longest", $($name: str = $long,)* last: str = $last)
    };
}

fn write_longest(long: &str, last: &str) {
    record_of_texts!(tracepoint, long, last;
        a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 c0 c1 c2 c3 c4 c5 c6 c7 c8 c9 d0 d1
        d2 d3 d4 d5 d6 d7 d8 d9 e0 e1 e2 e3 e4 e5 e6 e7 e8 e9 f0 f1 f2 f3 f4 f5 f6 f7 f8 f9 g0 g1 g2
    );
}

fn write_longest_in_span(long: &str, last: &str) {
    record_of_texts!(event, long, last;
        a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 c0 c1 c2 c3 c4 c5 c6 c7 c8 c9 d0 d1
        d2 d3 d4 d5 d6 d7 d8 d9 e0 e1 e2 e3 e4 e5 e6 e7 e8 e9 f0 f1 f2 f3 f4 f5 f6 f7 f8 f9 g0 g1 g2
    );
}

/// Records of as many words as may be, and of one more, in a ring whose blocks are longer.
fn longest() {
    use tracepoint::layout::{MAX_RECORD_WORDS, MAX_VALUE_LEN};
    let tick = |number| tracepoint!("tick", thread: u64 = 0, number: u64 = number, mixed: u64 = mixed(number));
    let long = "x".repeat(MAX_VALUE_LEN);
    // Of the record: two words, 63 texts, and the length of the last.
    let left = MAX_RECORD_WORDS as usize - 2 - 63 * (1 + MAX_VALUE_LEN / 8) - 1;
    tick(0);
    for (write, span_words) in [(write_longest as fn(&str, &str), 0), (write_longest_in_span, 3)] {
        let last = "x".repeat((left - span_words) * 8 + 1);
        write(&long, &last[1..]);
        write(&long, &last);
    }
    tick(1);
    say("written");
    wait_for_input();
}

/// Many threads one after the other, and more at a time than there are rings for.
fn many() {
    for thread in 0..50u64 {
        let write = move || tracepoint!("tick", thread: u64 = thread, number: u64 = 0, mixed: u64 = mixed(0));
        std::thread::spawn(write).join().unwrap();
        if thread == 24 {
            say("half");
            wait_for_input();
        }
    }
    say("written");
    wait_for_input();
}

fn fork() {
    tracepoint!("parent", number: u64 = 1);
    // SAFETY: the child writes records and leaves at once.
    #[expect(unsafe_code, reason = "a child that is not another program")]
    let child = unsafe { libc::fork() };
    if child == 0 {
        for number in 0..10u64 {
            tracepoint!("child", number: u64 = number);
        }
        say("child");
        wait_for_input();
        std::process::exit(0);
    }
    tracepoint!("parent", number: u64 = 2);
    let mut status = 0;
    // SAFETY: waits for the child of this process.
    #[expect(unsafe_code, reason = "no safe wrapper is at hand")]
    unsafe {
        libc::waitpid(child, &raw mut status, 0)
    };
}

/// Children of [`fork_storm`].
pub(crate) const CHILDREN: u64 = 50;
/// So many call sites that rules are being obeyed most of the time when they are told all the time.
const STORM_SITES: usize = 1000;
/// No child takes longer.
const CHILD_SECONDS: u32 = 60;

/// Forks while the keeper obeys rules and another thread asks for options: each child asks too, and waits until it was told rules.
fn fork_storm() {
    let sites: &[Site] = Vec::leak((0..STORM_SITES).map(|_| storm_site("storm.site")).collect());
    static OFF_AT_LAST: Site = storm_site("storm.off");
    sites.iter().for_each(|site| tracepoint::write(site, &()));
    let options = Options::default();
    let asked = options.clone();
    std::thread::spawn(move || {
        loop {
            tracepoint::start(asked.clone());
        }
    });
    say("begun");
    for _ in 0..CHILDREN {
        // SAFETY: the child starts what a child has of its own, and leaves without going back.
        #[expect(unsafe_code, reason = "a child that is not another program")]
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the signal ends a child that waits for ever.
            #[expect(unsafe_code, reason = "a child that is not another program")]
            unsafe {
                libc::alarm(CHILD_SECONDS)
            };
            assert!(tracepoint::start(options.clone()));
            tracepoint::write(&OFF_AT_LAST, &());
            while OFF_AT_LAST.is_on() {
                std::thread::yield_now();
            }
            // SAFETY: nothing is left to do.
            #[expect(unsafe_code, reason = "a child that is not another program")]
            unsafe {
                libc::_exit(0)
            };
        }
        let mut status = 0;
        // SAFETY: waits for the child of this process.
        #[expect(unsafe_code, reason = "no safe wrapper is at hand")]
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0), "a child waited for ever");
    }
    say("all have left");
    wait_for_input();
}

const fn storm_site(name: &'static str) -> Site {
    Site::new(tracepoint::layout::SiteKind::Event, name, module_path!(), (file!(), line!()), &[])
}

const SIGNALS: u64 = 300;
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handle(_signal: i32) {
    let number = HANDLED.fetch_add(1, Ordering::Relaxed);
    tracepoint!("signal", number: u64 = number, mixed: u64 = mixed(number));
}

/// A thread that another one interrupts as often as it can, with a handler that writes records too.
fn signals() {
    // SAFETY: the handler only writes records and counts; the thread that gets signals lives as long as the one that sends them.
    #[expect(unsafe_code, reason = "no safe wrapper is at hand")]
    let writer = unsafe {
        let handler = handle as extern "C" fn(i32) as libc::sighandler_t;
        libc::signal(libc::SIGUSR1, handler);
        libc::pthread_self()
    };
    let interrupts = std::thread::spawn(move || {
        while HANDLED.load(Ordering::Relaxed) < SIGNALS {
            let before = HANDLED.load(Ordering::Relaxed);
            // SAFETY: as above.
            #[expect(unsafe_code, reason = "no safe wrapper is at hand")]
            unsafe {
                libc::pthread_kill(writer, libc::SIGUSR1)
            };
            while HANDLED.load(Ordering::Relaxed) == before {
                std::thread::yield_now();
            }
        }
    });
    let mut number = 0;
    while HANDLED.load(Ordering::Relaxed) < SIGNALS {
        tracepoint!("tick", thread: u64 = 0, number: u64 = number, mixed: u64 = mixed(number));
        number += 1;
    }
    interrupts.join().unwrap();
    say(&format!("wrote {number} {}", HANDLED.load(Ordering::Relaxed)));
    wait_for_input();
}

fn rules() {
    // Registered first, and so turned off last.
    static FIRST: Site = Site::new(
        tracepoint::layout::SiteKind::Event,
        "sql.first",
        module_path!(),
        (file!(), line!()),
        &[],
    );
    tracepoint::write(&FIRST, &());
    let write = |number: u64| {
        tracepoint!("sql.query", number: u64 = number);
        tracepoint!("http", number: u64 = number);
    };
    write(0);
    say("written");
    wait_for_input();
    while FIRST.is_on() {
        std::thread::yield_now();
    }
    write(1);
    tracepoint!("sql.begin", number: u64 = 1);
    tracepoint!("sql.commit", number: u64 = 1);
    say("written");
    wait_for_input();
}

fn pair(number: u64) {
    tracepoint!("pair", number: u64 = number, text: str = "a text of some length");
}

/// A thread that may do no more than write and end.
fn silent() {
    let thread = std::thread::spawn(|| {
        pair(0);
        let said = b"no system calls\n";
        // SAFETY: the thread gives up what it does not need, says that it has come to the end, and ends without going back.
        #[expect(unsafe_code, reason = "what a thread may ask of the kernel has no safe wrapper")]
        unsafe {
            allow_only(&[libc::SYS_write, libc::SYS_exit]);
            (1..=crate::costs::RECORDS).for_each(pair);
            libc::write(1, said.as_ptr().cast(), said.len());
            libc::syscall(libc::SYS_exit, 0);
        }
    });
    wait_for_input();
    // It cannot be joined: its end was not that of a thread of this library.
    drop(thread);
}

/// The process is killed when this thread asks the kernel for anything else.
///
/// # Safety
/// What the thread does from then on needs no more.
#[expect(unsafe_code, reason = "what a thread may ask of the kernel has no safe wrapper")]
unsafe fn allow_only(calls: &[libc::c_long]) {
    let step = |code: u32, k: u32, jt: u8| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    let returns = |k: u32| step(libc::BPF_RET | libc::BPF_K, k, 0);
    // The number of the call is the first word of what the filter sees.
    let mut filter = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for (at, call) in calls.iter().enumerate() {
        let to_allowed = (calls.len() - at) as u8;
        filter.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *call as u32, to_allowed));
    }
    filter.push(returns(libc::SECCOMP_RET_KILL_PROCESS));
    filter.push(returns(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the filter lives until the kernel has copied it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

/// As much as the process's own records: a span, with an event in it, of both kinds.
fn nested(number: u64) {
    let span = span!("outer", number: u64 = number);
    let _entered = span.enter();
    event!("inside", number: u64 = number);
    let _inner = tracing::info_span!("inner", number).entered();
    tracing::info!(number, text = "a text", "said");
}

fn lean() {
    let subscriber = tracing_subscriber::registry().with(Tracepoints);
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let all = |number| {
        pair(number);
        nested(number);
    };
    all(0);
    let ((), held) = testkit::alloc::most_held(|| (1..=crate::costs::RECORDS).for_each(all));
    say(&format!("bytes held: {held}"));
    wait_for_input();
}

fn spans() {
    let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    event!("before", number: u64 = 1);
    let request = span!(parent: Context::from_traceparent(header), "request", path: str = "/a");
    let sent = request.in_scope(|| {
        let decode = span!("decode", bytes: u64 = 512);
        decode.set_status(Status::Error);
        let _entered = decode.enter();
        event!("inside", number: u64 = 2);
        Context::current()
    });
    assert_eq!(Context::current(), None);
    event!("after", number: u64 = 3);
    let not_sampled = Context::from_traceparent(&header.replace("-01", "-00"));
    let quiet = span!(parent: not_sampled, "quiet");
    let child = quiet.in_scope(|| {
        event!("quiet", number: u64 = 4);
        span!("quiet").context()
    });
    assert!(child.is_some_and(
        |child| !child.is_sampled() && child.trace_id() == not_sampled.unwrap().trace_id()
    ));
    drop(request);
    let root = span!("root");
    say(&format!("contexts {} {}", sent.unwrap(), root.context().unwrap()));
    drop(root);
    say("written");
    wait_for_input();
}

fn layer() {
    let subscriber = tracing_subscriber::registry().with(Tracepoints);
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    {
        let _remote = Context::from_traceparent(header).map(Context::enter);
        let request = tracing::info_span!("request", path = "/a", bytes = tracing::field::Empty);
        let entered = request.enter();
        tracing::warn!(code = -5, ratio = 0.5, ok = false, kind = ?Some(1), "slow {}", 7);
        let inner = tracing::debug_span!("inner");
        // It ends on another thread, after what is around it has been left.
        let other = inner.clone();
        let _inner = inner.enter();
        drop(entered);
        tracing::info!("left");
        request.record("bytes", 512);
        std::thread::spawn(move || other.in_scope(|| tracing::info!("elsewhere"))).join().unwrap();
    }
    tracing::info!("outside");
    tracing::info!(long = "x".repeat(20_000), after = 9, "cut");
    say("written");
    wait_for_input();
}

fn write_until_killed() {
    use std::os::unix::fs::FileExt;
    assert!(tracepoint::start(Options { ring_len: 64 << 10, ..Options::default() }));
    let witness = std::fs::OpenOptions::new().write(true).open(std::env::var(WITNESS).unwrap());
    let witness = std::sync::Arc::new(witness.unwrap());
    let writers: Vec<_> = (0..THREADS)
        .map(|thread| {
            let witness = std::sync::Arc::clone(&witness);
            std::thread::spawn(move || {
                for number in 0u64.. {
                    tracepoint!("tick", thread: u64 = thread, number: u64 = number, mixed: u64 = mixed(number));
                    // Later than the record: what is told here is published.
                    witness.write_all_at(&(number + 1).to_ne_bytes(), thread * 8).unwrap();
                }
            })
        })
        .collect();
    say("begun");
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}
