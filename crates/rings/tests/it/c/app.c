/* The applications in C and C++, as app.rs has them in Rust: the first argument says what this one does. */
#define TRACEPOINT_IMPLEMENTATION
#include <throughline/tracepoint.h>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/wait.h>

#include "other.h"

#define RECORDS 20000u
#define THREADS 3u
#define SILENT_RECORDS 100000u
#define SIGNALS 300u

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* Waits until the other side says that it has seen enough. */
static void wait_for_input(void)
{
	char line[16];
	if (!fgets(line, sizeof line, stdin))
		fail("input");
}

static void end_of_part(void)
{
	say("written");
	wait_for_input();
}

/* What another field of a record is, so that one that is torn shows. */
static uint64_t mixed(uint64_t number)
{
	const uint64_t product = number * 0x9e3779b97f4a7c15u;
	return product << 29 | product >> 35;
}

static void tick(uint64_t thread, uint64_t number)
{
	TRACEPOINT("tick", tp_u64("thread", thread), tp_u64("number", number), tp_u64("mixed", mixed(number)));
}

static void *run_writer(void *of_thread)
{
	const uint64_t thread = *(const uint64_t *)of_thread;
	char name[16];
	snprintf(name, sizeof name, "writer-%u", (unsigned)thread);
	prctl(PR_SET_NAME, name);
	for (uint64_t number = 0; number < RECORDS; number++)
		tick(thread, number);
	return NULL;
}

/* Runs `run` on so many threads at a time, each with its number. */
static void on_threads(uint64_t count, void *(*run)(void *))
{
	pthread_t threads[THREADS];
	uint64_t numbers[THREADS];
	for (uint64_t at = 0; at < count; at++) {
		numbers[at] = at;
		if (pthread_create(&threads[at], NULL, run, &numbers[at]) != 0)
			fail("thread");
	}
	for (uint64_t at = 0; at < count; at++)
		pthread_join(threads[at], NULL);
}

static void threads(void)
{
	on_threads(THREADS, run_writer);
	end_of_part();
}

static uint64_t found;

static uint64_t find(void)
{
	/* Whoever finds a value may write records. */
	TRACEPOINT("found");
	return ++found;
}

static void types(void)
{
	static char longer[10000];
	const unsigned char bytes[] = {1, 2, 255};
	for (size_t at = 0; at < sizeof longer; at += 2)
		memcpy(longer + at, "\xc3\xa4", 2);
	TRACEPOINT("none");
	TRACEPOINT("all", tp_u64("a", UINT64_MAX), tp_i64("b", -1), tp_i64("c", INT64_MIN), tp_f64("d", 0.5f),
		   tp_f64("e", -1e300), tp_bool("f", 2), tp_bool("g", false), tp_text("h", "\xc3\xa4\0b", 4),
		   tp_str("i", "owned"), tp_bytes("j", bytes, sizeof bytes), tp_str("k", ""), tp_str("l", NULL),
		   tp_text("m", longer, sizeof longer), tp_str("n", "12345678"), tp_bytes("o", bytes, 0),
		   tp_u64("p", find()));
	other_unit(7);
	end_of_part();
}

/* Records whose fields are those that they say. */
static void tagged(void)
{
	static const tp_field fields[] = {{TP_TAGGED, "id"}, {TP_TAGGED, "part"}};
	static tp_site site = TP_SITE(TP_KIND_EVENT, TP_SEVERITY_WARN, "tagged", fields, 2);
	static char bytes[3 * 8192];
	memset(bytes, 'x', sizeof bytes);
	tp_record record;
	size_t words = 1 + tp_words(tp_string("base"));
	for (size_t at = 0; at < sizeof bytes; at += 8192)
		words += 1 + tp_words(tp_bytes_of(bytes + at, 8192));
	if (tp_begin(&record, &site, words)) {
		tp_put_tagged(&record, 0, tp_string("base"));
		for (size_t at = 0; at < sizeof bytes; at += 8192)
			tp_put_tagged(&record, 1, tp_bytes_of(bytes + at, 8192));
		if (!tp_end(&record))
			fail("a whole record");
	}
	/* One that is shorter than was said, and one that is longer, are not there. */
	if (tp_begin(&record, &site, 9)) {
		tp_put_tagged(&record, 1, tp_unsigned(1));
		if (tp_end(&record))
			fail("a short record");
	}
	if (tp_begin(&record, &site, 3)) {
		tp_put_tagged(&record, 1, tp_unsigned(1));
		tp_put_tagged(&record, 1, tp_unsigned(2));
		if (tp_end(&record))
			fail("a long record");
	}
	if (tp_begin(&record, &site, 8)) {
		tp_put_tagged(&record, 1, tp_signed(-5));
		tp_put_tagged(&record, 0, tp_float(0.25));
		tp_put_tagged(&record, 0, tp_truth(true));
		tp_put_tagged(&record, 1, tp_unsigned(3));
		if (!tp_end(&record))
			fail("a whole record");
	}
	end_of_part();
}

/* More than a ring of 16 KiB takes, and one record that no ring takes. */
static void full(void)
{
	static unsigned char longer[4096];
	for (uint64_t number = 0; number < 2000; number++)
		tick(0, number);
	TRACEPOINT("long", tp_bytes("bytes", longer, sizeof longer));
	end_of_part();
	for (uint64_t number = 2000; number < 2010; number++)
		tick(0, number);
	end_of_part();
}

/* A record of as many words as may be, and one of more, in a ring whose blocks are longer. */
static void longest(void)
{
	static const tp_field fields[] = {{TP_TAGGED, "part"}};
	static tp_site site = TP_SITE(TP_KIND_EVENT, TP_SEVERITY_UNSPECIFIED, "longest", fields, 1);
	tick(0, 0);
	for (size_t words = 65533; words <= 65535; words += 2) {
		tp_record record;
		if (!tp_begin(&record, &site, words))
			continue;
		tp_put_tagged(&record, 0, tp_string("x"));
		for (size_t at = 3; at < words; at += 2)
			tp_put_tagged(&record, 0, tp_unsigned(at));
		if (!tp_end(&record))
			fail("the longest record");
	}
	tick(0, 1);
	end_of_part();
}

static void *write_one(void *of_thread)
{
	tick(*(const uint64_t *)of_thread, 0);
	return NULL;
}

/* Many threads one after the other. */
static void many(void)
{
	for (uint64_t number = 0; number < 50; number++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, write_one, &number) != 0)
			fail("thread");
		pthread_join(thread, NULL);
		if (number == 24) {
			say("half");
			wait_for_input();
		}
	}
	end_of_part();
}

static void forked(void)
{
	TRACEPOINT("parent", tp_u64("number", 1));
	const pid_t child = fork();
	if (child == 0) {
		for (uint64_t number = 0; number < 10; number++)
			TRACEPOINT("child", tp_u64("number", number));
		say("child");
		wait_for_input();
		exit(0);
	}
	TRACEPOINT("parent", tp_u64("number", 2));
	if (waitpid(child, NULL, 0) != child)
		fail("child");
}

/* Ends before its thread has looked for an agent. */
static void brief(void)
{
	TRACEPOINT("brief", tp_u64("number", 7));
}

#define CHILDREN 50u
/* So many call sites that rules are being obeyed most of the time when they are told all the time. */
#define STORM_SITES 1000u
/* No child takes longer. */
#define CHILD_SECONDS 60u

static void *ask(void *of_options)
{
	for (;;)
		tp_start((const tp_options *)of_options);
	return NULL;
}

static void write_empty(tp_site *site)
{
	tp_record record;
	if (tp_begin(&record, site, 0))
		tp_end(&record);
}

/* Forks while the keeper obeys rules and another thread asks for options: each child asks too, and waits until it was told rules. */
static void fork_storm(void)
{
	static tp_site off = TP_SITE(TP_KIND_EVENT, TP_SEVERITY_UNSPECIFIED, "storm.off", NULL, 0);
	const tp_site one = TP_SITE(TP_KIND_EVENT, TP_SEVERITY_UNSPECIFIED, "storm.site", NULL, 0);
	static tp_site sites[STORM_SITES];
	for (size_t at = 0; at < STORM_SITES; at++) {
		sites[at] = one;
		write_empty(&sites[at]);
	}
	tp_options options = tp_options_default();
	pthread_t asker;
	if (pthread_create(&asker, NULL, ask, &options) != 0)
		fail("thread");
	say("begun");
	for (unsigned number = 0; number < CHILDREN; number++) {
		const pid_t child = fork();
		if (child == 0) {
			alarm(CHILD_SECONDS);
			if (!tp_start(&options))
				_exit(1);
			write_empty(&off);
			while (tp_on(&off))
				sched_yield();
			_exit(0);
		}
		int status = 0;
		if (waitpid(child, &status, 0) != child || status != 0)
			fail("a child waited for ever");
	}
	say("all have left");
	wait_for_input();
	/* The other thread has the options of this one. */
	_exit(0);
}

static void say_context(const char *who)
{
	char text[TP_TRACEPARENT_LEN + 1];
	TP_SPAN(span, "root");
	tp_to_traceparent(span.context, text);
	printf("%s %s\n", who, text);
	fflush(stdout);
	tp_span_end(&span);
}

/* Ids of a process and of its child, whose generator was in use before. */
static void fork_ids(void)
{
	say_context("before");
	const pid_t child = fork();
	if (child == 0) {
		say_context("child");
		_exit(0);
	}
	if (waitpid(child, NULL, 0) != child)
		fail("child");
	say_context("parent");
	wait_for_input();
}

static uint64_t handled;

static void handle(int signal)
{
	(void)signal;
	const uint64_t number = __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
	TRACEPOINT("signal", tp_u64("number", number), tp_u64("mixed", mixed(number)));
}

static void *interrupt(void *of_writer)
{
	for (uint64_t before = 0; before < SIGNALS; before = __atomic_load_n(&handled, __ATOMIC_RELAXED)) {
		pthread_kill(*(const pthread_t *)of_writer, SIGUSR1);
		while (__atomic_load_n(&handled, __ATOMIC_RELAXED) == before)
			sched_yield();
	}
	return NULL;
}

/* A thread that another one interrupts as often as it can, with a handler that writes records too. */
static void signals(void)
{
	pthread_t writer = pthread_self(), other;
	signal(SIGUSR1, handle);
	if (pthread_create(&other, NULL, interrupt, &writer) != 0)
		fail("thread");
	uint64_t number = 0;
	while (__atomic_load_n(&handled, __ATOMIC_RELAXED) < SIGNALS) {
		tick(0, number++);
		/* So that signals come outside of records too, where memory that is touched first would draw them otherwise. */
		volatile unsigned pause = 2000;
		while (pause > 0)
			pause = pause - 1;
	}
	pthread_join(other, NULL);
	printf("wrote %llu %llu\n", (unsigned long long)number, (unsigned long long)handled);
	fflush(stdout);
	wait_for_input();
}

static void rules(void)
{
	/* Registered first, and so turned off last. */
	static tp_site first = TP_SITE(TP_KIND_EVENT, TP_SEVERITY_UNSPECIFIED, "sql.first", NULL, 0);
	tp_record record;
	if (tp_begin(&record, &first, 0))
		tp_end(&record);
	uint64_t queries = 0;
	for (uint64_t number = 0; number < 2; number++) {
		TRACEPOINT("sql.query", tp_u64("number", queries++));
		TRACEPOINT("http", tp_u64("number", number));
		if (number == 1)
			break;
		end_of_part();
		while (tp_on(&first))
			sched_yield();
	}
	TRACEPOINT("sql.begin", tp_u64("number", 1));
	TRACEPOINT("sql.commit", tp_u64("number", 1));
	if (queries != 1)
		fail("a value of a site that is off");
	end_of_part();
}

static int witness;

static void *write_until_killed(void *of_thread)
{
	const uint64_t thread = *(const uint64_t *)of_thread;
	for (uint64_t number = 0;; number++) {
		tick(thread, number);
		const uint64_t written = number + 1;
		/* Later than the record: what is told here is published. */
		if (pwrite(witness, &written, sizeof written, (off_t)(thread * 8)) != sizeof written)
			break;
	}
	fail("witness");
	return NULL;
}

static void killed(void)
{
	tp_options options = tp_options_default();
	options.ring_len = 64u << 10;
	witness = open(getenv("RINGS_TEST_WITNESS"), O_WRONLY | O_CLOEXEC);
	if (witness < 0 || !tp_start(&options))
		fail("start");
	say("begun");
	on_threads(THREADS, write_until_killed);
}

/* A thread that may do no more than write and end: the process is killed when it asks the kernel for anything else. */
static void *write_silently(void *unused)
{
	(void)unused;
	struct sock_filter steps[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
	for (uint64_t number = 0; number <= SILENT_RECORDS; number++) {
		TRACEPOINT("pair", tp_u64("number", number), tp_str("text", "a text of some length"));
		if (number == 0 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
				    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0))
			fail("filter");
	}
	const char said[] = "no system calls\n";
	if (write(1, said, sizeof said - 1) > 0)
		syscall(SYS_exit, 0);
	return NULL;
}

static void silent(void)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, write_silently, NULL) != 0)
		fail("thread");
	wait_for_input();
}

static void spans(void)
{
	const char header[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
	const char *const wrong[] = {"",
				     "00",
				     "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
				     "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
				     "00-4BF92F3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
				     "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
				     "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
				     "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"};
	char sent[TP_TRACEPARENT_LEN + 1], own[TP_TRACEPARENT_LEN + 1];
	tp_context remote, not_sampled;
	for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++)
		if (tp_from_traceparent(wrong[at], &remote))
			fail(wrong[at]);
	if (!tp_from_traceparent("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", &remote) ||
	    !tp_from_traceparent(header, &remote))
		fail(header);
	TP_EVENT("before", tp_u64("number", 1));
	TP_SPAN_IN(request, remote, "request", tp_str("path", "/a"));
	const tp_context before = tp_enter(request.context);
	{
		TP_SPAN(decode, "decode", tp_u64("bytes", 512));
		tp_span_set_status(&decode, TP_STATUS_ERROR);
		const tp_context around = tp_enter(decode.context);
		TP_EVENT("inside", tp_u64("number", 2));
		tp_to_traceparent(tp_current(), sent);
		tp_enter(around);
		tp_span_end(&decode);
		tp_span_end(&decode);
	}
	tp_enter(before);
	if (tp_is_context(tp_current()))
		fail("in no span");
	TP_EVENT("after", tp_u64("number", 3));
	not_sampled = remote;
	not_sampled.is_sampled = false;
	TP_SPAN_IN(quiet, not_sampled, "quiet");
	tp_enter(quiet.context);
	TP_EVENT("quiet", tp_u64("number", 4));
	TP_SPAN(child, "quiet");
	if (child.context.trace_id_low != remote.trace_id_low || child.context.is_sampled || child.site)
		fail("not sampled");
	tp_span_end(&child);
	tp_span_end(&quiet);
	tp_enter(tp_no_context());
	tp_span_end(&request);
	TP_SPAN(root, "root");
	tp_to_traceparent(root.context, own);
	printf("contexts %s %s\n", sent, own);
	tp_span_end(&root);
	end_of_part();
}

/* Traces that begin here: a quarter by their ids, and then as many at once as a second allows. */
static void sampling(void)
{
	unsigned sampled = 0;
	for (unsigned at = 0; at < 10000; at++) {
		TP_SPAN_IN(root, tp_no_context(), "root");
		sampled += root.context.is_sampled;
	}
	printf("sampled %u\n", sampled);
	tp_set_sampling(1.0, 0.5);
	sampled = 0;
	for (unsigned at = 0; at < 1000; at++) {
		TP_SPAN_IN(root, tp_no_context(), "root");
		sampled += root.context.is_sampled;
	}
	printf("at once %u\n", sampled);
	fflush(stdout);
	wait_for_input();
}

/* As many nanoseconds as a record takes, of two integers. */
static void cost(void)
{
	const uint64_t count = 2000000;
	tick(0, 0);
	const uint64_t begin_ns = tp_monotonic_();
	for (uint64_t number = 0; number < count; number++)
		TRACEPOINT("pair", tp_u64("thread", 0), tp_u64("number", number));
	printf("ns %.1f\n", (double)(tp_monotonic_() - begin_ns) / (double)count);
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} roles[] = {{"threads", threads}, {"types", types}, {"tagged", tagged}, {"full", full}, {"brief", brief},
		     {"longest", longest}, {"many", many},
		     {"fork", forked},	   {"fork_ids", fork_ids}, {"fork_storm", fork_storm}, {"signals", signals}, {"rules", rules}, {"killed", killed},
		     {"silent", silent},   {"spans", spans},	   {"sampling", sampling}, {"cost", cost}};
	for (size_t at = 0; count == 2 && at < sizeof roles / sizeof *roles; at++)
		if (strcmp(arguments[1], roles[at].name) == 0) {
			roles[at].run();
			return 0;
		}
	fprintf(stderr, "no such application\n");
	return 2;
}
