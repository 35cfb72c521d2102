/* Tracepoints for C and C++: records in shared memory, for an agent to store later.
 *
 * The same bytes as crate `tracepoint` writes: docs/formats/rings.md draws them, crates/tracepoint/src/layout.rs names them. C11 or
 * C++17, GCC or Clang, 64-bit Linux. One source file of a program or shared library says first of all
 *
 *     #define TRACEPOINT_IMPLEMENTATION
 *     #include <throughline/tracepoint.h>
 *
 * and is linked with -pthread; all others include the header only.
 *
 *     TRACEPOINT("cache.lookup", tp_text("key", key, key_len), tp_bool("hit", found));
 *
 *     TP_SPAN(request, "request", tp_str("path", path));
 *     tp_context before = tp_enter(request.context);
 *     TP_EVENT("decoded", tp_u64("bytes", bytes));
 *     tp_enter(before);
 *     tp_span_set_status(&request, TP_STATUS_OK);
 *     tp_span_end(&request);
 *
 * Fields: tp_u64, tp_i64, tp_f64, tp_bool (NAME, VALUE), tp_str (NAME, TEXT THAT ENDS WITH A ZERO), tp_text and tp_bytes (NAME, POINTER,
 * LENGTH); at most 16. Names are literals, UTF-8. Values are found only if the call site is on.
 *
 * - A record makes no system call, takes no lock and no memory. A thread's first record takes a ring, and the first of a call site
 *   describes it in that ring.
 * - A ring that is full drops and counts, or gives up what is oldest.
 * - Without an agent records stay where they are; what a process published before it was killed is the agent's.
 * - A signal handler may write records; one that comes between the parts of another is dropped and counted.
 * - A child that is forked has rings of its own.
 * - Call sites are turned on and off by the agent; one that is off costs a load and a branch.
 *
 * What the caller owes: a shared library with call sites is never unloaded. Symbols are hidden, so that each program and each
 * library that has the implementation has rings of its own; TRACEPOINT_API says otherwise.
 */
#ifndef THROUGHLINE_TRACEPOINT_H
#define THROUGHLINE_TRACEPOINT_H

#if defined(TRACEPOINT_IMPLEMENTATION) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(__linux__) || !defined(__LP64__)
#error "tracepoints are for 64-bit Linux"
#endif

#ifndef TRACEPOINT_API
#define TRACEPOINT_API __attribute__((visibility("hidden")))
#endif

/* The module that call sites of a source file say they are in. */
#ifndef TRACEPOINT_TARGET
#define TRACEPOINT_TARGET ""
#endif

#ifdef __cplusplus
extern "C" {
#define TP_CHECK_ static_assert
#else
#define TP_CHECK_ _Static_assert
#endif

/* ---------------------------------------------------------------------------------------------------------- the layout ---- */

#define TP_MAGIC "tl-rings"
#define TP_VERSION 2u
#define TP_HEADER_LEN 4096u
#define TP_RING_HEADER_LEN 4096u
#define TP_MAX_RINGS 4096u
#define TP_BLOCKS 8u
#define TP_MAX_SITES 4096u
#define TP_MAX_RECORD_WORDS 65535u
/* The longest text or bytes of a field; what is behind is cut off, and the length that it had is told. */
#define TP_MAX_VALUE_LEN 8192u
#define TP_SERVICE_LEN 128u
#define TP_MAX_DESCRIPTION_LEN 4096u
#define TP_MAX_FIELDS 64u
#define TP_DROP_PLACES 8u
#define TP_SITE_FILLER 0xFFFFu
#define TP_SITE_DROPPED 0xFFFEu

typedef enum tp_clock_kind { TP_CLOCK_TSC = 1, TP_CLOCK_COUNTER = 2, TP_CLOCK_MONOTONIC = 3 } tp_clock_kind;

/* What happens to a record that finds its ring full: it is dropped and counted, or the oldest block of records gives way. */
typedef enum tp_mode { TP_MODE_DROP = 1, TP_MODE_OVERWRITE = 2 } tp_mode;

typedef enum tp_ring_state { TP_RING_FREE = 0, TP_RING_CLAIMED = 1, TP_RING_OPEN = 2, TP_RING_ENDED = 3 } tp_ring_state;

typedef enum tp_drop_reason {
	TP_DROP_FULL = 0,
	TP_DROP_TOO_LONG = 1,
	TP_DROP_NO_ROOM_FOR_SITE = 2,
	TP_DROP_REENTRANT = 3,
	TP_DROP_NO_RING = 4,
	TP_DROP_THREAD_ENDED = 5,
	TP_DROP_TOO_MANY_SITES = 6,
	TP_DROP_TOO_MANY_SPANS = 7
} tp_drop_reason;

typedef enum tp_field_type {
	TP_UNSIGNED = 1,
	TP_SIGNED = 2,
	TP_FLOAT = 3,
	TP_BOOL = 4,
	TP_TEXT = 5,
	TP_BYTES = 6,
	/* A field that a record may have, once or several times, of a type that the record says. Of a call site all fields are, or none. */
	TP_TAGGED = 7
} tp_field_type;

typedef enum tp_site_kind {
	TP_KIND_EVENT = 1,
	TP_KIND_SPAN_BEGIN = 2,
	TP_KIND_SPAN_END = 3,
	TP_KIND_SPAN_EVENT = 4,
	TP_KIND_SPAN_RECORD = 5
} tp_site_kind;

/* Numbers of OpenTelemetry's SeverityNumber. */
typedef enum tp_severity {
	TP_SEVERITY_UNSPECIFIED = 0,
	TP_SEVERITY_TRACE = 1,
	TP_SEVERITY_DEBUG = 5,
	TP_SEVERITY_INFO = 9,
	TP_SEVERITY_WARN = 13,
	TP_SEVERITY_ERROR = 17
} tp_severity;

/* Codes of OpenTelemetry's Status. */
typedef enum tp_status { TP_STATUS_UNSET = 0, TP_STATUS_OK = 1, TP_STATUS_ERROR = 2 } tp_status;

/* What a ring's thread writes. */
typedef struct tp_thread_part {
	uint64_t head;
	uint64_t reserved;
	uint64_t dropped[TP_DROP_PLACES];
	uint64_t rest[6];
} tp_thread_part;

/* What a ring's reader writes. */
typedef struct tp_reader_part {
	uint64_t tail;
	uint64_t number;
	uint64_t rest[6];
} tp_reader_part;

typedef struct tp_ring_header {
	uint32_t state;
	uint32_t generation;
	uint32_t tid;
	uint32_t reserved;
	uint64_t name[2];
	uint64_t sites_len;
	uint64_t begin;
	uint64_t rest[2];
	tp_thread_part thread;
	tp_reader_part reader;
	uint64_t first_numbers[TP_BLOCKS];
} tp_ring_header;

TP_CHECK_(offsetof(tp_ring_header, thread) == 64, "the format says so");
TP_CHECK_(offsetof(tp_ring_header, reader) == 192, "the format says so");
TP_CHECK_(offsetof(tp_ring_header, first_numbers) == 256, "the format says so");

/* ------------------------------------------------------------------------------------------------------------- options ---- */

/* Where the agent of this machine listens unless it is said otherwise. */
#define TP_DEFAULT_SOCKET "/run/throughline/rings.sock"

/* How a process's rings are. Lengths are rounded to what is possible: rings up to a power of two. */
typedef struct tp_options {
	/* Whether there are any. TRACEPOINTS=0 or off: no. */
	bool is_on;
	/* Where the agent listens: TRACEPOINTS_SOCKET. Empty when that is too long for an address; nobody is looked for then. */
	char socket[108];
	/* Bytes of records for each thread: TRACEPOINTS_RING_BYTES, or 256 KiB. */
	uint64_t ring_len;
	/* Bytes of descriptions of call sites for each thread: 32 KiB. */
	uint64_t sites_len;
	/* Threads that write at a time: TRACEPOINTS_RINGS, or 256. Memory is taken as it is written to. */
	uint32_t rings;
	/* TRACEPOINTS_MODE: drop or overwrite. */
	tp_mode mode;
	/* What the process calls itself: TRACEPOINTS_SERVICE, else OTEL_SERVICE_NAME, else the program's name. */
	char service[TP_SERVICE_LEN + 1];
	/* How many of the traces that begin in the process are written, from 0 to 1: TRACEPOINTS_SAMPLE, else as OTEL_TRACES_SAMPLER and
	 * OTEL_TRACES_SAMPLER_ARG say. */
	double sample_ratio;
	/* The most of them in a second: TRACEPOINTS_SAMPLE_PER_SECOND. Negative: as many as come. */
	double sample_per_second;
} tp_options;

/* As the environment says. */
TRACEPOINT_API tp_options tp_options_default(void);

/* Makes the rings now, as is asked, or as the environment says when that is null, so that the first record need not. Gives whether there
 * are any: not when options say so, or memory is refused. What is asked after the first record is for children that are forked. */
TRACEPOINT_API bool tp_start(const tp_options *options);

/* Asks the same for whenever the first record makes the rings: for programs that fork before they write. */
TRACEPOINT_API void tp_configure(const tp_options *options);

/* From now on; see the options. */
TRACEPOINT_API void tp_set_sampling(double ratio, double per_second);

/* ---------------------------------------------------------------------------------------------------------- call sites ---- */

typedef struct tp_field {
	tp_field_type type;
	const char *name;
} tp_field;

/* A call site. A static, made by TP_SITE; the macros below make their own. */
typedef struct tp_site {
	const char *name;
	const char *target;
	const char *file;
	uint32_t line;
	uint8_t kind;
	uint8_t severity;
	uint16_t field_count;
	const tp_field *fields;
	/* TP_SITE_NEW_, TP_SITE_OFF_, or the site's number and one. */
	uint32_t state;
	/* TP_SITE_NEW_, TP_SITE_NONE_LEFT_, or its number and one. */
	uint32_t number;
	uint32_t is_judged;
	/* The one that was registered before. */
	struct tp_site *next;
} tp_site;

#define TP_SITE_OFF_ 0u
#define TP_SITE_NEW_ UINT32_MAX
#define TP_SITE_NONE_LEFT_ (UINT32_MAX - 1u)

/* The initial value of a call site: a tp_site_kind, a tp_severity, a literal, an array of tp_field and how many of them. */
#define TP_SITE(kind, severity, name, fields, field_count)                                                                     \
	{                                                                                                                      \
		(name), TRACEPOINT_TARGET, __FILE__, __LINE__, (kind), (severity), (uint16_t)(field_count), (fields),           \
			TP_SITE_NEW_, TP_SITE_NEW_, 0u, NULL                                                                    \
	}

/* Whether records would be written now, which an unused site does not know. */
static inline bool tp_on(const tp_site *site)
{
	return __atomic_load_n(&site->state, __ATOMIC_RELAXED) != TP_SITE_OFF_;
}

/* ------------------------------------------------------------------------------------------------------------- writing ---- */

/* What a thread knows of its ring. Nothing of it needs a destructor, so that it can be read at any time of a thread's life. */
struct tp_local_ {
	unsigned char *records;
	/* The ring's length less one. */
	uint64_t mask;
	uint64_t position;
	/* The nearest position at which something else than writing has to be done; 0 while a record is being written, so that a signal
	 * handler that writes one too finds out in the same comparison. */
	uint64_t limit;
	/* Of the next record. */
	uint64_t number;
	/* Null: the thread has no ring. */
	tp_ring_header *header;
	/* A bit for each site that is described in the ring. */
	uint64_t described[TP_MAX_SITES / 64];
	uint32_t life;
	tp_mode mode;
	/* Records that are still to be dropped before a ring is looked for. */
	uint32_t patience;
	unsigned char *sites;
	/* What was told of the counts in the ring's header. */
	uint64_t told[TP_DROP_PLACES];
};

/* A place in a distributed trace: what a span's children, and the requests that it sends, are told. Zeros: none. */
typedef struct tp_context {
	uint64_t trace_id_high;
	uint64_t trace_id_low;
	uint64_t span_id;
	bool is_sampled;
} tp_context;

extern TRACEPOINT_API __thread struct tp_local_ tp_local_;
extern TRACEPOINT_API __thread tp_context tp_current_;
extern TRACEPOINT_API uint32_t tp_clock_;

TRACEPOINT_API bool tp_prepare_(tp_site *site, uint64_t len, uint64_t *limit, uint32_t *number);
TRACEPOINT_API void tp_count_unfinished_(void);
TRACEPOINT_API uint64_t tp_monotonic_(void);

#define TP_INLINE_ static inline __attribute__((always_inline))

/* By the clock of records: a counter of the processor where it can be trusted, or else the kernel's. */
TP_INLINE_ uint64_t tp_now_(void)
{
#if defined(__x86_64__)
	if (__builtin_expect(__atomic_load_n(&tp_clock_, __ATOMIC_RELAXED) == TP_CLOCK_TSC, 1))
		return __builtin_ia32_rdtsc();
	return tp_monotonic_();
#elif defined(__aarch64__)
	uint64_t count;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
	return count;
#else
	return tp_monotonic_();
#endif
}

/* A record that is being written: tp_begin, one tp_put for each value, tp_end. */
typedef struct tp_record {
	uint64_t *at;
	uint64_t *end;
	uint64_t limit;
	uint64_t bytes;
} tp_record;

/* Begins a record with so many words of values, if its site is on and there is room; what is dropped is counted. Between this and tp_end
 * the thread writes no other record. */
TP_INLINE_ bool tp_begin(tp_record *record, tp_site *site, size_t words)
{
	const uint32_t state = __atomic_load_n(&site->state, __ATOMIC_RELAXED);
	if (state == TP_SITE_OFF_)
		return false;
	struct tp_local_ *const local = &tp_local_;
	uint32_t number = state - 1u;
	const uint64_t bytes = (2u + (uint64_t)words) * 8u;
	/* From here on a signal handler's record is not written, and what was found out stays true. */
	uint64_t limit = local->limit;
	local->limit = 0;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	const bool is_fit = local->position + bytes <= limit && bytes <= TP_MAX_RECORD_WORDS * 8u && number < TP_MAX_SITES &&
		(local->described[number / 64u] >> (number % 64u) & 1u);
	if (__builtin_expect(!is_fit, 0) && !tp_prepare_(site, bytes, &limit, &number))
		return false;
	uint64_t *const at = (uint64_t *)(void *)(local->records + (local->position & local->mask));
	at[0] = bytes / 8u | (uint64_t)number << 16 | local->number << 32;
	at[1] = tp_now_();
	record->at = at + 2;
	record->end = at + 2 + words;
	record->limit = limit;
	record->bytes = bytes;
	return true;
}

/* Publishes all of the record by one store. */
TP_INLINE_ void tp_publish_(const tp_record *record)
{
	struct tp_local_ *const local = &tp_local_;
	const uint64_t position = local->position + record->bytes;
	__atomic_store_n(&local->header->thread.head, position, __ATOMIC_RELEASE);
	local->position = position;
	local->number += 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	local->limit = record->limit;
}

/* Ends a record. One that has not the words that were announced is not published, and counted as too long; gives whether it is. */
TP_INLINE_ bool tp_end(tp_record *record)
{
	if (__builtin_expect(record->at == record->end, 1)) {
		tp_publish_(record);
		return true;
	}
	tp_count_unfinished_();
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	tp_local_.limit = record->limit;
	return false;
}

/* A value, and whether it is one word or bytes elsewhere. */
typedef struct tp_value {
	tp_field_type type;
	/* Or how many bytes there were. */
	uint64_t word;
	const void *bytes;
} tp_value;

TP_INLINE_ tp_value tp_value_word_(tp_field_type type, uint64_t word)
{
	const tp_value value = {type, word, NULL};
	return value;
}

TP_INLINE_ tp_value tp_value_bytes_(tp_field_type type, const void *bytes, size_t len)
{
	const tp_value value = {type, bytes ? len : 0, bytes};
	return value;
}

TP_INLINE_ tp_value tp_unsigned(uint64_t value)
{
	return tp_value_word_(TP_UNSIGNED, value);
}

TP_INLINE_ tp_value tp_signed(int64_t value)
{
	return tp_value_word_(TP_SIGNED, (uint64_t)value);
}

TP_INLINE_ tp_value tp_float(double value)
{
	uint64_t word;
	memcpy(&word, &value, sizeof word);
	return tp_value_word_(TP_FLOAT, word);
}

TP_INLINE_ tp_value tp_truth(bool value)
{
	return tp_value_word_(TP_BOOL, value ? 1u : 0u);
}

/* Text that ends with a zero; null is empty. */
TP_INLINE_ tp_value tp_string(const char *text)
{
	return tp_value_bytes_(TP_TEXT, text, text ? strlen(text) : 0);
}

/* UTF-8. */
TP_INLINE_ tp_value tp_string_of(const char *text, size_t len)
{
	return tp_value_bytes_(TP_TEXT, text, len);
}

TP_INLINE_ tp_value tp_bytes_of(const void *bytes, size_t len)
{
	return tp_value_bytes_(TP_BYTES, bytes, len);
}

TP_INLINE_ size_t tp_kept_(tp_value value)
{
	return value.word < TP_MAX_VALUE_LEN ? (size_t)value.word : TP_MAX_VALUE_LEN;
}

/* How many words of a record a value takes; one more when it is tagged. */
TP_INLINE_ size_t tp_words(tp_value value)
{
	return value.type == TP_TEXT || value.type == TP_BYTES ? 1u + (tp_kept_(value) + 7u) / 8u : 1u;
}

TP_INLINE_ uint64_t *tp_put_unchecked_(uint64_t *at, tp_value value)
{
	if (value.type != TP_TEXT && value.type != TP_BYTES) {
		*at = value.word;
		return at + 1;
	}
	const size_t kept = tp_kept_(value);
	const uint64_t had = value.word < UINT32_MAX ? value.word : UINT32_MAX;
	*at = (uint64_t)kept | had << 32;
	if (kept > 0) {
		/* Zeros behind the bytes, up to the end of the word. */
		at[(kept + 7u) / 8u] = 0;
		memcpy(at + 1, value.bytes, kept);
	}
	return at + 1 + (kept + 7u) / 8u;
}

/* The next value of a record; not when it finds no room in what was announced. */
TP_INLINE_ void tp_put(tp_record *record, tp_value value)
{
	if (record->at && (size_t)(record->end - record->at) >= tp_words(value))
		record->at = tp_put_unchecked_(record->at, value);
	else
		record->at = NULL;
}

/* The next value of a record whose fields are TP_TAGGED: of the field with that number. */
TP_INLINE_ void tp_put_tagged(tp_record *record, uint8_t field, tp_value value)
{
	tp_put(record, tp_unsigned((uint64_t)value.type | (uint64_t)field << 8));
	tp_put(record, value);
}

/* ------------------------------------------------------------------------------------------------------------ contexts ---- */

/* Where this thread is. */
TP_INLINE_ tp_context tp_current(void)
{
	return tp_current_;
}

/* Has this thread be in a span, until it is told where it is next; gives where it was. */
TP_INLINE_ tp_context tp_enter(tp_context context)
{
	const tp_context before = tp_current_;
	tp_current_ = context;
	return before;
}

/* Whether it is a span's. */
TP_INLINE_ bool tp_is_context(tp_context context)
{
	return (context.trace_id_high | context.trace_id_low) != 0 && context.span_id != 0;
}

/* None: a span whose parent it is begins a trace. */
TP_INLINE_ tp_context tp_no_context(void)
{
	const tp_context none = {0, 0, 0, true};
	return none;
}

/* From the value of a header `traceparent` (W3C Trace Context, section 3.2); of a later version what this one knows. Gives whether it is one. */
TRACEPOINT_API bool tp_from_traceparent(const char *text, tp_context *context);

#define TP_TRACEPARENT_LEN 55
/* As the value of a header `traceparent`, with a zero behind it. */
TRACEPOINT_API void tp_to_traceparent(tp_context context, char text[TP_TRACEPARENT_LEN + 1]);

/* --------------------------------------------------------------------------------------------------------------- spans ---- */

typedef struct tp_span_site {
	tp_site begin;
	tp_site end;
} tp_span_site;

/* A span, made by TP_SPAN or TP_SPAN_IN; tp_span_end ends it. */
typedef struct tp_span {
	/* Its own; its parent's when it is not written itself. */
	tp_context context;
	/* Null when it is not written. */
	tp_span_site *site;
	uint64_t status;
} tp_span;

TRACEPOINT_API tp_span tp_span_new_(tp_span_site *site, tp_context parent);

/* Says how it went; told at its end. */
static inline void tp_span_set_status(tp_span *span, tp_status status)
{
	span->status = (uint64_t)status;
}

/* Ends a span, once. */
static inline void tp_span_end(tp_span *span)
{
	tp_record record;
	if (span->site && tp_begin(&record, &span->site->end, 4)) {
		record.at[0] = span->context.trace_id_high;
		record.at[1] = span->context.trace_id_low;
		record.at[2] = span->context.span_id;
		record.at[3] = span->status;
		tp_publish_(&record);
	}
	span->site = NULL;
}

/* -------------------------------------------------------------------------------------------------------------- macros ---- */

/* Writes a record: a name, and fields. */
#define TRACEPOINT(...)                                                                                                        \
	do {                                                                                                                   \
		TP_FIELDS_(__VA_ARGS__)                                                                                        \
		static tp_site tp_site_ = TP_SITE(TP_KIND_EVENT, TP_SEVERITY_UNSPECIFIED, TP_FIRST_(__VA_ARGS__, 0),            \
						  tp_fields_, TP_COUNT_(__VA_ARGS__));                                         \
		if (tp_on(&tp_site_)) {                                                                                        \
			TP_WRITE_(&tp_site_, 0u, , __VA_ARGS__)                                                                \
		}                                                                                                              \
	} while (0)

/* Writes a record as TRACEPOINT does, of the span that this thread is in; none when that trace is not written. */
#define TP_EVENT(...)                                                                                                          \
	do {                                                                                                                   \
		TP_FIELDS_(__VA_ARGS__)                                                                                        \
		static tp_site tp_site_ = TP_SITE(TP_KIND_SPAN_EVENT, TP_SEVERITY_UNSPECIFIED, TP_FIRST_(__VA_ARGS__, 0),       \
						  tp_fields_, TP_COUNT_(__VA_ARGS__));                                         \
		if (tp_on(&tp_site_) && tp_current_.is_sampled) {                                                              \
			const tp_context tp_context_ = tp_current_;                                                            \
			TP_WRITE_(&tp_site_, 3u, TP_PUT_CONTEXT_(tp_context_), __VA_ARGS__)                                     \
		}                                                                                                              \
	} while (0)

/* Declares a variable, a span that begins here, in the one that this thread is in: the variable's name, the span's, and fields. */
#define TP_SPAN(variable, ...) TP_SPAN_IN(variable, tp_current(), __VA_ARGS__)

/* The same in another one's context; tp_no_context() begins a trace. */
#define TP_SPAN_IN(variable, parent, ...)                                                                                      \
	tp_span variable;                                                                                                      \
	do {                                                                                                                   \
		TP_FIELDS_(__VA_ARGS__)                                                                                        \
		static tp_span_site tp_site_ = {TP_SITE(TP_KIND_SPAN_BEGIN, TP_SEVERITY_UNSPECIFIED,                            \
							TP_FIRST_(__VA_ARGS__, 0), tp_fields_, TP_COUNT_(__VA_ARGS__)),         \
						TP_SITE(TP_KIND_SPAN_END, TP_SEVERITY_UNSPECIFIED,                              \
							TP_FIRST_(__VA_ARGS__, 0), NULL, 0)};                                   \
		const tp_context tp_parent_ = (parent);                                                                        \
		(variable).context = tp_parent_;                                                                               \
		(variable).site = NULL;                                                                                        \
		(variable).status = TP_STATUS_UNSET;                                                                           \
		if (tp_on(&tp_site_.begin)) {                                                                                  \
			(variable) = tp_span_new_(&tp_site_, tp_parent_);                                                      \
			if ((variable).site) {                                                                                 \
				TP_WRITE_(&tp_site_.begin, 4u,                                                                 \
					  TP_PUT_CONTEXT_((variable).context) *tp_record_.at++ = tp_parent_.span_id;,           \
					  __VA_ARGS__)                                                                         \
			}                                                                                                      \
		}                                                                                                              \
	} while (0)

/* Values are found before the record is begun, so that what finds them may write records. */
#define TP_WRITE_(site, span_words, put_span, ...)                                                                             \
	TP_EACH_(TP_FIND_, __VA_ARGS__)                                                                                        \
	tp_record tp_record_;                                                                                                  \
	if (tp_begin(&tp_record_, (site), (span_words)TP_EACH_(TP_ADD_WORDS_, __VA_ARGS__))) {                                  \
		put_span TP_EACH_(TP_PUT_, __VA_ARGS__) tp_publish_(&tp_record_);                                              \
	}

#define TP_PUT_CONTEXT_(context)                                                                                               \
	*tp_record_.at++ = (context).trace_id_high;                                                                            \
	*tp_record_.at++ = (context).trace_id_low;                                                                             \
	*tp_record_.at++ = (context).span_id;

/* The last one is none, so that the array is never empty. */
#define TP_FIELDS_(...) static const tp_field tp_fields_[] = {TP_EACH_(TP_FIELD_, __VA_ARGS__){TP_TAGGED, NULL}};
#define TP_FIELD_(nth, field) TP_FIELD_##field,
#define TP_FIND_(nth, field) const tp_value tp_value_##nth##_ = TP_VALUE_##field;
#define TP_ADD_WORDS_(nth, field) +tp_words(tp_value_##nth##_)
#define TP_PUT_(nth, field) tp_record_.at = tp_put_unchecked_(tp_record_.at, tp_value_##nth##_);

#define TP_FIELD_tp_u64(name, value) {TP_UNSIGNED, (name)}
#define TP_FIELD_tp_i64(name, value) {TP_SIGNED, (name)}
#define TP_FIELD_tp_f64(name, value) {TP_FLOAT, (name)}
#define TP_FIELD_tp_bool(name, value) {TP_BOOL, (name)}
#define TP_FIELD_tp_str(name, text) {TP_TEXT, (name)}
#define TP_FIELD_tp_text(name, text, len) {TP_TEXT, (name)}
#define TP_FIELD_tp_bytes(name, bytes, len) {TP_BYTES, (name)}
#define TP_VALUE_tp_u64(name, value) tp_unsigned((uint64_t)(value))
#define TP_VALUE_tp_i64(name, value) tp_signed((int64_t)(value))
#define TP_VALUE_tp_f64(name, value) tp_float((double)(value))
#define TP_VALUE_tp_bool(name, value) tp_truth((value) ? true : false)
#define TP_VALUE_tp_str(name, text) tp_string(text)
#define TP_VALUE_tp_text(name, text, len) tp_string_of((text), (len))
#define TP_VALUE_tp_bytes(name, bytes, len) tp_bytes_of((bytes), (len))

#define TP_FIRST_(first, ...) first
#define TP_JOIN_(a, b) TP_JOIN_EXPANDED_(a, b)
#define TP_JOIN_EXPANDED_(a, b) a##b
/* How many fields are behind a name. */
#define TP_COUNT_(...) TP_SEVENTEENTH_(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0)
#define TP_SEVENTEENTH_(n, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, count, ...) count
/* `act(N, FIELD)` for each field behind a name, N from how many there are down to 1. */
#define TP_EACH_(act, ...) TP_JOIN_(TP_EACH_, TP_COUNT_(__VA_ARGS__))(act, __VA_ARGS__)
#define TP_EACH_0(act, name)
#define TP_EACH_1(act, name, field) act(1, field)
#define TP_EACH_2(act, name, field, ...) act(2, field) TP_EACH_1(act, name, __VA_ARGS__)
#define TP_EACH_3(act, name, field, ...) act(3, field) TP_EACH_2(act, name, __VA_ARGS__)
#define TP_EACH_4(act, name, field, ...) act(4, field) TP_EACH_3(act, name, __VA_ARGS__)
#define TP_EACH_5(act, name, field, ...) act(5, field) TP_EACH_4(act, name, __VA_ARGS__)
#define TP_EACH_6(act, name, field, ...) act(6, field) TP_EACH_5(act, name, __VA_ARGS__)
#define TP_EACH_7(act, name, field, ...) act(7, field) TP_EACH_6(act, name, __VA_ARGS__)
#define TP_EACH_8(act, name, field, ...) act(8, field) TP_EACH_7(act, name, __VA_ARGS__)
#define TP_EACH_9(act, name, field, ...) act(9, field) TP_EACH_8(act, name, __VA_ARGS__)
#define TP_EACH_10(act, name, field, ...) act(10, field) TP_EACH_9(act, name, __VA_ARGS__)
#define TP_EACH_11(act, name, field, ...) act(11, field) TP_EACH_10(act, name, __VA_ARGS__)
#define TP_EACH_12(act, name, field, ...) act(12, field) TP_EACH_11(act, name, __VA_ARGS__)
#define TP_EACH_13(act, name, field, ...) act(13, field) TP_EACH_12(act, name, __VA_ARGS__)
#define TP_EACH_14(act, name, field, ...) act(14, field) TP_EACH_13(act, name, __VA_ARGS__)
#define TP_EACH_15(act, name, field, ...) act(15, field) TP_EACH_14(act, name, __VA_ARGS__)
#define TP_EACH_16(act, name, field, ...) act(16, field) TP_EACH_15(act, name, __VA_ARGS__)

#ifdef __cplusplus
}
#endif

/* ------------------------------------------------------------------------------------------------------ implementation ---- */

#ifdef TRACEPOINT_IMPLEMENTATION

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The beginning of a memory file. Written once before anybody else sees the file, but for the counters. */
struct tp_header_ {
	char magic[8];
	uint32_t version;
	uint32_t rings;
	uint64_t ring_len;
	uint64_t sites_len;
	uint32_t mode;
	uint32_t clock;
	uint32_t pid;
	uint32_t reserved;
	uint64_t made;
	uint64_t made_monotonic_ns;
	char service[TP_SERVICE_LEN];
	uint32_t touched;
	uint32_t reserved_2;
	uint64_t dropped[TP_DROP_PLACES];
};

TP_CHECK_(offsetof(struct tp_header_, service) == 64, "the format says so");
TP_CHECK_(offsetof(struct tp_header_, dropped) == 200, "the format says so");

/* A mapped memory file. Never given back: threads may write to the last. */
struct tp_arena_ {
	unsigned char *begin;
	uint32_t rings;
	uint64_t ring_len;
	uint64_t sites_len;
	tp_mode mode;
	int file;
	char socket[sizeof(((tp_options *)0)->socket)];
};

enum { TP_NOT_YET_ = 0, TP_DONE_ = 1, TP_FAILED_ = 2, TP_UNWANTED_ = 3 };
enum { TP_WITHOUT_ = 0, TP_WRITES_ = 1, TP_PREPARES_ = 2, TP_OVER_ = 3 };

/* Words of a record that tells what was dropped. */
#define TP_DROPPED_WORDS_ (2u + TP_DROP_PLACES)
/* How many records a thread that finds no ring drops before it looks again. */
#define TP_LOOK_EVERY_ 256u
#define TP_MAX_MESSAGE_LEN_ (128u << 10)
#define TP_RULES_MESSAGE_ "rules\n"
#define TP_MAX_RULES_ 256u
#define TP_MAX_RULE_LEN_ 256u
/* Of a trace id the low 63 bits are compared with a bound, as OpenTelemetry's TraceIdRatioBased does. */
#define TP_SAMPLE_ALL_ ((uint64_t)1 << 63)

__thread struct tp_local_ tp_local_;
__thread tp_context tp_current_ = {0, 0, 0, true};
/* The state of the generator, xoroshiro128++ of Blackman and Vigna; zeros: not seeded. */
static __thread uint64_t tp_ids_[2];

uint32_t tp_clock_;
static struct tp_arena_ *tp_arena_;
static uint32_t tp_making_;
/* Who holds a lock: the address of a thread's tp_local_, which is the same in a child; null: nobody. */
static void *tp_maker_;
/* Records that were dropped before there was an arena, for its header. */
static uint64_t tp_early_[TP_DROP_PLACES];
static pthread_key_t tp_end_key_;
static bool tp_has_end_key_;
static pthread_once_t tp_once_ = PTHREAD_ONCE_INIT;
/* The keeper's connection, for a child to close; -1 when there is none. */
static int tp_connection_ = -1;
/* Where the first look for an agent is. */
enum { TP_LOOK_NOT_YET_, TP_LOOKING_, TP_LOOKED_ };
static uint32_t tp_first_look_;

static void *tp_asked_holder_;
static bool tp_is_asked_;
static tp_options tp_asked_;

static uint64_t tp_sample_bound_ = TP_SAMPLE_ALL_;
/* Nanoseconds from one trace to the next; 0: as many as come. */
static uint64_t tp_sample_interval_ns_;
/* When the next trace would come if each came as late as it may (generic cell rate algorithm, ITU-T I.371). */
static uint64_t tp_sample_next_ns_;

struct tp_rules_ {
	uint32_t count;
	struct {
		bool is_on;
		uint16_t len;
		/* A name, or what names begin with and `*`. */
		char pattern[TP_MAX_RULE_LEN_];
	} rules[TP_MAX_RULES_];
};

/* Null: all are on. Changed by who holds the lock. */
static struct tp_rules_ *tp_rules_;
static void *tp_rules_holder_;
static uint32_t tp_is_unjudged_;
static uint32_t tp_numbered_;
static tp_site *tp_last_site_;

/* In one order with what tp_judge_ raises: of two threads, one sees what the other has left. */
static bool tp_try_lock_(void **holder)
{
	void *nobody = NULL;
	return __atomic_compare_exchange_n(holder, &nobody, (void *)&tp_local_, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static void tp_unlock_(void **holder)
{
	__atomic_store_n(holder, (void *)NULL, __ATOMIC_SEQ_CST);
}

/* Not on the way of a record. */
static void tp_lock_(void **holder)
{
	while (!tp_try_lock_(holder))
		sched_yield();
}

/* In a child: nobody holds it but the calling thread, which may have been interrupted while it did. Gives whether somebody else did. */
static bool tp_take_back_(void **holder)
{
	void *const found = __atomic_load_n(holder, __ATOMIC_SEQ_CST);
	if (!found || found == (void *)&tp_local_)
		return false;
	tp_unlock_(holder);
	return true;
}

static bool tp_is_utf8_(const char *text, size_t len)
{
	const unsigned char *at = (const unsigned char *)text, *const end = at + len;
	while (at < end) {
		const unsigned first = *at++;
		if (first < 0x80)
			continue;
		const size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
		if (first < 0xC2 || first > 0xF4 || (size_t)(end - at) < more)
			return false;
		/* Neither longer than need be, nor half of a surrogate pair, nor beyond U+10FFFF. */
		if ((first == 0xE0 && at[0] < 0xA0) || (first == 0xED && at[0] > 0x9F) ||
		    (first == 0xF0 && at[0] < 0x90) || (first == 0xF4 && at[0] > 0x8F))
			return false;
		for (size_t i = 0; i < more; i++)
			if ((at[i] & 0xC0) != 0x80)
				return false;
		at += more;
	}
	return true;
}

/* -- options -- */

/* A variable that is set and not empty; null for others. */
static const char *tp_variable_(const char *name)
{
	const char *const value = getenv(name);
	return value && *value ? value : NULL;
}

static bool tp_number_of_(const char *text, uint64_t *number)
{
	if (!text)
		return false;
	text += *text == '+';
	uint64_t found = 0;
	const char *at = text;
	for (; *at >= '0' && *at <= '9'; at++) {
		const uint64_t digit = (uint64_t)(*at - '0');
		if (found > (UINT64_MAX - digit) / 10u)
			return false;
		found = found * 10u + digit;
	}
	if (*at != 0 || at == text)
		return false;
	*number = found;
	return true;
}

/* Whatever the program's locale is. */
static bool tp_real_of_(const char *text, double *number)
{
	if (!text || strspn(text, "+-.0123456789eE") != strlen(text))
		return false;
	const locale_t locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
	if (!locale)
		return false;
	char *end = NULL;
	const double found = strtod_l(text, &end, locale);
	freelocale(locale);
	if (end == text || *end != 0)
		return false;
	*number = found;
	return true;
}

static void tp_copy_text_(char *to, size_t room, const char *from)
{
	const size_t len = strnlen(from, room - 1);
	memcpy(to, from, len);
	memset(to + len, 0, room - len);
}

static double tp_ratio_of_opentelemetry_(void)
{
	const char *sampler = tp_variable_("OTEL_TRACES_SAMPLER");
	double ratio = 1.0;
	if (!sampler)
		return ratio;
	while (strncmp(sampler, "parentbased_", 12) == 0)
		sampler += 12;
	if (strcmp(sampler, "always_off") == 0)
		ratio = 0.0;
	else if (strcmp(sampler, "traceidratio") == 0)
		(void)tp_real_of_(tp_variable_("OTEL_TRACES_SAMPLER_ARG"), &ratio);
	return ratio;
}

tp_options tp_options_default(void)
{
	tp_options options;
	memset(&options, 0, sizeof options);
	const char *text = tp_variable_("TRACEPOINTS");
	options.is_on = !(text && (strcmp(text, "0") == 0 || strcmp(text, "off") == 0));
	text = tp_variable_("TRACEPOINTS_SOCKET");
	if (!text)
		text = TP_DEFAULT_SOCKET;
	if (strlen(text) < sizeof options.socket)
		tp_copy_text_(options.socket, sizeof options.socket, text);
	options.ring_len = 256u << 10;
	(void)tp_number_of_(tp_variable_("TRACEPOINTS_RING_BYTES"), &options.ring_len);
	options.sites_len = 32u << 10;
	uint64_t rings = 256;
	options.rings = tp_number_of_(tp_variable_("TRACEPOINTS_RINGS"), &rings) && rings <= UINT32_MAX ? (uint32_t)rings : 256;
	text = tp_variable_("TRACEPOINTS_MODE");
	options.mode = text && strcmp(text, "overwrite") == 0 ? TP_MODE_OVERWRITE : TP_MODE_DROP;
	char program[4096];
	text = tp_variable_("TRACEPOINTS_SERVICE");
	if (!text)
		text = tp_variable_("OTEL_SERVICE_NAME");
	if (!text) {
		const ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
		program[len > 0 ? len : 0] = 0;
		const char *const slash = strrchr(program, '/');
		text = slash ? slash + 1 : program;
	}
	tp_copy_text_(options.service, sizeof options.service, text);
	if (!tp_real_of_(tp_variable_("TRACEPOINTS_SAMPLE"), &options.sample_ratio))
		options.sample_ratio = tp_ratio_of_opentelemetry_();
	options.sample_per_second = -1.0;
	if (tp_real_of_(tp_variable_("TRACEPOINTS_SAMPLE_PER_SECOND"), &options.sample_per_second) &&
	    options.sample_per_second < 0.0)
		options.sample_per_second = 0.0;
	return options;
}

/* What was asked for before the first record. Waits for nobody: a child that was forked while somebody asked goes by the environment. */
static tp_options tp_options_get_(void)
{
	bool is_asked = false;
	tp_options options;
	if (tp_try_lock_(&tp_asked_holder_)) {
		is_asked = tp_is_asked_;
		if (is_asked)
			options = tp_asked_;
		tp_unlock_(&tp_asked_holder_);
	}
	return is_asked ? options : tp_options_default();
}

/* -- clock -- */

/* CLOCK_MONOTONIC, nanoseconds: no system call where the kernel maps its own code for it. */
uint64_t tp_monotonic_(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Finds out which clock this process reads, and keeps to it. */
static tp_clock_kind tp_clock_choose_(void)
{
	const uint32_t chosen = __atomic_load_n(&tp_clock_, __ATOMIC_RELAXED);
	if (chosen)
		return (tp_clock_kind)chosen;
	tp_clock_kind kind = TP_CLOCK_MONOTONIC;
#if defined(__x86_64__)
	/* The kernel goes by the counter itself when it found it to be the same on all processors and steady. */
	const int file = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
	if (file >= 0) {
		char source[8];
		const ssize_t len = read(file, source, sizeof source);
		close(file);
		if ((len == 3 || (len == 4 && source[3] == '\n')) && memcmp(source, "tsc", 3) == 0)
			kind = TP_CLOCK_TSC;
	}
#elif defined(__aarch64__)
	/* The architecture promises one counter for all processors. */
	kind = TP_CLOCK_COUNTER;
#endif
	__atomic_store_n(&tp_clock_, (uint32_t)kind, __ATOMIC_RELAXED);
	return kind;
}

/* The same moment by the clock of records and by CLOCK_MONOTONIC, as near as a few readings come. */
static void tp_clock_both_(uint64_t *count, uint64_t *monotonic_ns)
{
	uint64_t nearest = UINT64_MAX;
	for (int i = 0; i < 8; i++) {
		const uint64_t before = tp_now_(), ns = tp_monotonic_(), after = tp_now_();
		if (after - before < nearest) {
			nearest = after - before;
			*count = before + nearest / 2;
			*monotonic_ns = ns;
		}
	}
}

/* -- sampling -- */

void tp_set_sampling(double ratio, double per_second)
{
	uint64_t bound = 0;
	if (ratio >= 1.0)
		bound = TP_SAMPLE_ALL_;
	else if (ratio > 0.0)
		bound = (uint64_t)(ratio * (double)TP_SAMPLE_ALL_);
	__atomic_store_n(&tp_sample_bound_, bound, __ATOMIC_RELAXED);
	uint64_t interval_ns = 0;
	if (!(per_second < 0.0)) {
		const double interval = 1e9 / (per_second > 1e-9 ? per_second : 1e-9);
		interval_ns = interval >= 1.0 ? (uint64_t)interval : 1;
	}
	__atomic_store_n(&tp_sample_interval_ns_, interval_ns, __ATOMIC_RELAXED);
}

static uint64_t tp_add_(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Whether a trace that begins is written. */
static bool tp_samples_(uint64_t trace_id_low)
{
	const uint64_t bound = __atomic_load_n(&tp_sample_bound_, __ATOMIC_RELAXED);
	if (bound < TP_SAMPLE_ALL_ && (trace_id_low & (TP_SAMPLE_ALL_ - 1)) >= bound)
		return false;
	const uint64_t interval_ns = __atomic_load_n(&tp_sample_interval_ns_, __ATOMIC_RELAXED);
	if (!interval_ns)
		return true;
	const uint64_t now_ns = tp_monotonic_();
	/* What was not used is kept for a second. */
	const uint64_t latest_ns = tp_add_(now_ns, interval_ns > 1000000000u ? interval_ns : 1000000000u);
	uint64_t before = __atomic_load_n(&tp_sample_next_ns_, __ATOMIC_RELAXED), next;
	do {
		next = tp_add_(before > now_ns ? before : now_ns, interval_ns);
		if (next > latest_ns)
			return false;
	} while (!__atomic_compare_exchange_n(&tp_sample_next_ns_, &before, next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return true;
}

/* -- arena -- */

static void *tp_keep_(void *arena);
static void tp_in_child_(void);
static void tp_hand_over_at_exit_(void);
static void tp_thread_ends_(void *unused);

static uint64_t tp_clamp_(uint64_t value, uint64_t least, uint64_t most)
{
	return value < least ? least : value > most ? most : value;
}

static struct tp_header_ *tp_header_of_(const struct tp_arena_ *arena)
{
	return (struct tp_header_ *)(void *)arena->begin;
}

/* Bytes from one place to the next. */
static uint64_t tp_stride_(const struct tp_arena_ *arena)
{
	return TP_RING_HEADER_LEN + arena->sites_len + arena->ring_len;
}

static unsigned char *tp_place_(const struct tp_arena_ *arena, uint32_t number)
{
	return arena->begin + TP_HEADER_LEN + number * tp_stride_(arena);
}

static struct tp_arena_ *tp_arena_new_(const tp_options *options)
{
	struct tp_arena_ *const arena = (struct tp_arena_ *)calloc(1, sizeof *arena);
	if (!arena)
		return NULL;
	arena->rings = (uint32_t)tp_clamp_(options->rings, 1, TP_MAX_RINGS);
	arena->ring_len = 16u << 10;
	while (arena->ring_len < tp_clamp_(options->ring_len, 16u << 10, 64u << 20))
		arena->ring_len *= 2;
	arena->sites_len = (tp_clamp_(options->sites_len, 4096, 1u << 20) + 4095u) / 4096u * 4096u;
	arena->mode = options->mode == TP_MODE_OVERWRITE ? TP_MODE_OVERWRITE : TP_MODE_DROP;
	memcpy(arena->socket, options->socket, sizeof arena->socket);
	const uint64_t len = TP_HEADER_LEN + arena->rings * tp_stride_(arena);
	arena->file = memfd_create("tracepoints", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (arena->file < 0) {
		free(arena);
		return NULL;
	}
	void *begin = MAP_FAILED;
	/* A reader that maps it can rely on its length. */
	if (ftruncate(arena->file, (off_t)len) == 0 &&
	    fcntl(arena->file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		begin = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, arena->file, 0);
	if (begin == MAP_FAILED) {
		close(arena->file);
		free(arena);
		return NULL;
	}
	arena->begin = (unsigned char *)begin;
	struct tp_header_ *const header = tp_header_of_(arena);
	memcpy(header->magic, TP_MAGIC, sizeof header->magic);
	header->version = TP_VERSION;
	header->rings = arena->rings;
	header->ring_len = arena->ring_len;
	header->sites_len = arena->sites_len;
	header->mode = (uint32_t)arena->mode;
	header->clock = (uint32_t)tp_clock_choose_();
	header->pid = (uint32_t)getpid();
	tp_clock_both_(&header->made, &header->made_monotonic_ns);
	memcpy(header->service, options->service, sizeof header->service);
	return arena;
}

static void tp_once_run_(void)
{
	tp_has_end_key_ = pthread_key_create(&tp_end_key_, tp_thread_ends_) == 0;
	/* The handler touches atomics, thread-locals and a descriptor only. */
	pthread_atfork(NULL, NULL, tp_in_child_);
	/* A child has what its parent registered. Without it only short processes lose something. */
	(void)atexit(tp_hand_over_at_exit_);
}

/* Starts the thread that hands the memory file to the agent. It gets no signals: those are the application's. */
static void tp_keeper_start_(struct tp_arena_ *arena)
{
	__atomic_store_n(&tp_first_look_, (uint32_t)TP_LOOK_NOT_YET_, __ATOMIC_RELEASE);
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, 128u << 10);
	pthread_t thread;
	if (pthread_create(&thread, &attributes, tp_keep_, arena) == EINVAL) {
		/* The thread-locals of the program are larger than that. */
		pthread_attr_destroy(&attributes);
		pthread_attr_init(&attributes);
		pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
		/* Without it records stay in the rings. */
		(void)pthread_create(&thread, &attributes, tp_keep_, arena);
	}
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void tp_make_(void)
{
	const tp_options options = tp_options_get_();
	if (!options.is_on) {
		__atomic_store_n(&tp_making_, (uint32_t)TP_UNWANTED_, __ATOMIC_RELEASE);
		return;
	}
	tp_set_sampling(options.sample_ratio, options.sample_per_second);
	struct tp_arena_ *const arena = tp_arena_new_(&options);
	if (!arena) {
		__atomic_store_n(&tp_making_, (uint32_t)TP_FAILED_, __ATOMIC_RELEASE);
		return;
	}
	__atomic_store_n(&tp_arena_, arena, __ATOMIC_RELEASE);
	__atomic_store_n(&tp_making_, (uint32_t)TP_DONE_, __ATOMIC_RELEASE);
	tp_keeper_start_(arena);
}

/* The arena, which is made when there is none; null when it cannot be had. */
static struct tp_arena_ *tp_arena_get_(void)
{
	for (;;) {
		struct tp_arena_ *const arena = __atomic_load_n(&tp_arena_, __ATOMIC_ACQUIRE);
		if (arena)
			return arena;
		const uint32_t making = __atomic_load_n(&tp_making_, __ATOMIC_ACQUIRE);
		if (making == TP_FAILED_ || making == TP_UNWANTED_)
			return NULL;
		/* First of all: what another thread has begun does not go on in a child. */
		pthread_once(&tp_once_, tp_once_run_);
		if (tp_try_lock_(&tp_maker_)) {
			if (__atomic_load_n(&tp_making_, __ATOMIC_ACQUIRE) == TP_NOT_YET_)
				tp_make_();
			tp_unlock_(&tp_maker_);
		} else if (__atomic_load_n(&tp_maker_, __ATOMIC_RELAXED) == (void *)&tp_local_) {
			/* A signal handler: what it came between would not go on. */
			return NULL;
		} else {
			/* Some ten microseconds, once in the life of a process. */
			sched_yield();
		}
	}
}

void tp_configure(const tp_options *options)
{
	const tp_options asked = options ? *options : tp_options_default();
	tp_lock_(&tp_asked_holder_);
	tp_asked_ = asked;
	tp_is_asked_ = true;
	tp_unlock_(&tp_asked_holder_);
}

bool tp_start(const tp_options *options)
{
	tp_configure(options);
	return tp_arena_get_() != NULL;
}

/* Counts a record that came to no ring. */
static void tp_count_drop_(tp_drop_reason reason)
{
	struct tp_arena_ *const arena = __atomic_load_n(&tp_arena_, __ATOMIC_ACQUIRE);
	uint64_t *const counts = arena ? tp_header_of_(arena)->dropped : tp_early_;
	__atomic_fetch_add(&counts[reason], 1, __ATOMIC_RELAXED);
}

/* What was dropped while there was no arena. */
static void tp_count_early_(const struct tp_arena_ *arena)
{
	for (size_t at = 0; at < TP_DROP_PLACES; at++)
		if (__atomic_load_n(&tp_early_[at], __ATOMIC_RELAXED) > 0)
			__atomic_fetch_add(&tp_header_of_(arena)->dropped[at],
					   __atomic_exchange_n(&tp_early_[at], 0, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

static bool tp_takes_(tp_ring_header *header, uint32_t from)
{
	return __atomic_load_n(&header->state, __ATOMIC_RELAXED) == from &&
		__atomic_compare_exchange_n(&header->state, &from, (uint32_t)TP_RING_CLAIMED, false, __ATOMIC_ACQ_REL,
					    __ATOMIC_RELAXED);
}

/* The number of a place that was in that state and is this thread's now; as many as there are places: none. */
static uint32_t tp_take_first_(const struct tp_arena_ *arena, uint32_t from)
{
	uint32_t number = 0;
	while (number < arena->rings && !tp_takes_((tp_ring_header *)(void *)tp_place_(arena, number), from))
		number++;
	return number;
}

/* A place for the calling thread's ring, which is prepared and opened; null when all are taken. */
static tp_ring_header *tp_claim_(struct tp_arena_ *arena)
{
	uint32_t number = tp_take_first_(arena, TP_RING_FREE);
	/* A flight recorder keeps what is newest. */
	if (number == arena->rings && arena->mode == TP_MODE_OVERWRITE)
		number = tp_take_first_(arena, TP_RING_ENDED);
	if (number == arena->rings)
		return NULL;
	uint32_t *const touched = &tp_header_of_(arena)->touched;
	uint32_t known = __atomic_load_n(touched, __ATOMIC_RELAXED);
	while (known <= number && !__atomic_compare_exchange_n(touched, &known, number + 1, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		;
	tp_count_early_(arena);
	tp_ring_header *const header = (tp_ring_header *)(void *)tp_place_(arena, number);
	const uint64_t block = arena->ring_len / TP_BLOCKS;
	const uint64_t begin = (__atomic_load_n(&header->thread.head, __ATOMIC_RELAXED) + block - 1) / block * block;
	char name[16] = {0};
	uint64_t words[2];
	prctl(PR_GET_NAME, name);
	memcpy(words, name, sizeof words);
	__atomic_fetch_add(&header->generation, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&header->tid, (uint32_t)syscall(SYS_gettid), __ATOMIC_RELAXED);
	__atomic_store_n(&header->name[0], words[0], __ATOMIC_RELAXED);
	__atomic_store_n(&header->name[1], words[1], __ATOMIC_RELAXED);
	__atomic_store_n(&header->sites_len, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&header->begin, begin, __ATOMIC_RELAXED);
	__atomic_store_n(&header->reader.tail, begin, __ATOMIC_RELAXED);
	__atomic_store_n(&header->reader.number, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&header->thread.reserved, begin, __ATOMIC_RELAXED);
	__atomic_store_n(&header->thread.head, begin, __ATOMIC_RELAXED);
	for (size_t at = 0; at < TP_DROP_PLACES; at++)
		__atomic_store_n(&header->thread.dropped[at], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&header->state, (uint32_t)TP_RING_OPEN, __ATOMIC_RELEASE);
	return header;
}

/* -- sites -- */

static bool tp_rules_say_(const struct tp_rules_ *rules, const char *name)
{
	const size_t name_len = strlen(name);
	for (uint32_t at = rules ? rules->count : 0; at-- > 0;) {
		const char *const pattern = rules->rules[at].pattern;
		const size_t len = rules->rules[at].len;
		const bool is_beginning = pattern[len - 1] == '*';
		const bool holds = is_beginning ? name_len >= len - 1 && memcmp(name, pattern, len - 1) == 0
						: name_len == len && memcmp(name, pattern, len) == 0;
		if (holds)
			return rules->rules[at].is_on;
	}
	return true;
}

static void tp_site_set_(tp_site *site, bool is_on)
{
	const uint32_t number = __atomic_load_n(&site->number, __ATOMIC_RELAXED);
	__atomic_store_n(&site->state, is_on ? number : TP_SITE_OFF_, __ATOMIC_RELAXED);
}

/* Asks the rules about sites that nobody has asked about. Waits for nobody: who holds the rules looks again. */
static void tp_judge_(void)
{
	__atomic_store_n(&tp_is_unjudged_, 1u, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&tp_is_unjudged_, __ATOMIC_SEQ_CST)) {
		if (!tp_try_lock_(&tp_rules_holder_))
			return;
		__atomic_store_n(&tp_is_unjudged_, 0u, __ATOMIC_SEQ_CST);
		for (tp_site *site = __atomic_load_n(&tp_last_site_, __ATOMIC_ACQUIRE); site;
		     site = __atomic_load_n(&site->next, __ATOMIC_ACQUIRE))
			if (!__atomic_exchange_n(&site->is_judged, 1u, __ATOMIC_RELAXED))
				tp_site_set_(site, tp_rules_say_(tp_rules_, site->name));
		tp_unlock_(&tp_rules_holder_);
	}
}

static void tp_judge_all_(void)
{
	for (tp_site *site = __atomic_load_n(&tp_last_site_, __ATOMIC_ACQUIRE); site;
	     site = __atomic_load_n(&site->next, __ATOMIC_ACQUIRE))
		tp_site_set_(site, tp_rules_say_(tp_rules_, site->name));
}

/* Goes by other rules from now on. */
static void tp_obey_(struct tp_rules_ *rules)
{
	tp_lock_(&tp_rules_holder_);
	struct tp_rules_ *const before = tp_rules_;
	tp_rules_ = rules;
	tp_judge_all_();
	tp_unlock_(&tp_rules_holder_);
	free(before);
	/* Those that were registered meanwhile. */
	tp_judge_();
}

/* From lines `+NAME` and `-NAME`; null when a line is none of these, or there are too many. */
static struct tp_rules_ *tp_rules_parse_(const char *text, size_t len)
{
	struct tp_rules_ *const rules = (struct tp_rules_ *)calloc(1, sizeof *rules);
	const char *const end = text + len;
	while (rules && text < end) {
		const char *const feed = (const char *)memchr(text, '\n', (size_t)(end - text));
		const char *line = text, *line_end = feed ? feed : end;
		text = feed ? feed + 1 : end;
		while (line < line_end && (*line == ' ' || (*line >= '\t' && *line <= '\r')))
			line++;
		while (line < line_end && (line_end[-1] == ' ' || (line_end[-1] >= '\t' && line_end[-1] <= '\r')))
			line_end--;
		if (line == line_end)
			continue;
		const size_t pattern_len = (size_t)(line_end - line) - 1;
		if ((*line != '+' && *line != '-') || pattern_len == 0 || pattern_len > TP_MAX_RULE_LEN_ ||
		    rules->count == TP_MAX_RULES_) {
			free(rules);
			return NULL;
		}
		rules->rules[rules->count].is_on = *line == '+';
		rules->rules[rules->count].len = (uint16_t)pattern_len;
		memcpy(rules->rules[rules->count].pattern, line + 1, pattern_len);
		rules->count++;
	}
	return rules;
}

/* Waits for nobody: of two threads at once, one loses a number. */
static void tp_take_number_(tp_site *site)
{
	const uint32_t taken = __atomic_fetch_add(&tp_numbered_, 1, __ATOMIC_RELAXED);
	uint32_t before = TP_SITE_NEW_;
	if (taken >= TP_MAX_SITES) {
		__atomic_fetch_sub(&tp_numbered_, 1, __ATOMIC_RELAXED);
		/* Asked for again: it costs little, and nothing else would count what it does not write. */
		(void)__atomic_compare_exchange_n(&site->number, &before, TP_SITE_NONE_LEFT_, false, __ATOMIC_ACQ_REL,
						  __ATOMIC_RELAXED);
		return;
	}
	if (!__atomic_compare_exchange_n(&site->number, &before, taken + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&site->state, taken + 1, __ATOMIC_RELAXED);
	tp_site *last = __atomic_load_n(&tp_last_site_, __ATOMIC_ACQUIRE);
	do
		__atomic_store_n(&site->next, last, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&tp_last_site_, &last, site, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	tp_judge_();
}

/* Gives the site a number, and asks the rules whether it is on; false when there is no number left. */
static bool tp_register_(tp_site *site, uint32_t *number)
{
	if (__atomic_load_n(&site->number, __ATOMIC_ACQUIRE) == TP_SITE_NEW_)
		tp_take_number_(site);
	*number = __atomic_load_n(&site->number, __ATOMIC_ACQUIRE) - 1;
	return *number < TP_MAX_SITES;
}

struct tp_filling_ {
	size_t len;
	bool is_whole;
	unsigned char bytes[TP_MAX_DESCRIPTION_LEN];
};

static void tp_fill_(struct tp_filling_ *out, const void *bytes, size_t len)
{
	out->is_whole = out->is_whole && len <= sizeof out->bytes - out->len;
	if (out->is_whole) {
		memcpy(out->bytes + out->len, bytes, len);
		out->len += len;
	}
}

static void tp_fill_text_(struct tp_filling_ *out, const char *text)
{
	const size_t len = strlen(text);
	const uint16_t announced = (uint16_t)len;
	out->is_whole = out->is_whole && len <= UINT16_MAX && tp_is_utf8_(text, len);
	tp_fill_(out, &announced, sizeof announced);
	tp_fill_(out, text, len);
}

/* Fills in a site's description; not whole when it is too long, or has names that are not UTF-8. */
static void tp_describe_(const tp_site *site, uint16_t number, struct tp_filling_ *out)
{
	const unsigned char head[] = {site->kind, (unsigned char)site->field_count, site->severity, 0};
	out->len = 2;
	out->is_whole = site->field_count <= TP_MAX_FIELDS;
	tp_fill_(out, &number, sizeof number);
	tp_fill_(out, head, sizeof head);
	tp_fill_(out, &site->line, sizeof site->line);
	tp_fill_text_(out, site->name);
	tp_fill_text_(out, site->target);
	tp_fill_text_(out, site->file);
	for (size_t at = 0; at < site->field_count; at++) {
		const unsigned char type = (unsigned char)site->fields[at].type;
		tp_fill_(out, &type, sizeof type);
		tp_fill_text_(out, site->fields[at].name);
	}
	const char zeros[8] = {0};
	tp_fill_(out, zeros, (8 - out->len % 8) % 8);
	const uint16_t announced = (uint16_t)out->len;
	memcpy(out->bytes, &announced, sizeof announced);
}

/* -- rings -- */

static bool tp_drop_(tp_drop_reason reason)
{
	tp_ring_header *const header = tp_local_.header;
	if (header)
		__atomic_fetch_add(&header->thread.dropped[reason], 1, __ATOMIC_RELAXED);
	else
		tp_count_drop_(reason);
	return false;
}

void tp_count_unfinished_(void)
{
	tp_drop_(TP_DROP_TOO_LONG);
}

/* The calling thread has no ring. */
static void tp_forget_(void)
{
	struct tp_local_ *const local = &tp_local_;
	const uint32_t life = local->life;
	memset(local, 0, sizeof *local);
	local->life = life;
}

static void tp_thread_ends_(void *unused)
{
	(void)unused;
	if (tp_local_.header)
		__atomic_store_n(&tp_local_.header->state, (uint32_t)TP_RING_ENDED, __ATOMIC_RELEASE);
	tp_forget_();
	tp_local_.life = TP_OVER_;
}

/* The process ends by this thread, of which no end would be heard otherwise. */
__attribute__((destructor)) static void tp_process_ends_(void)
{
	tp_thread_ends_(NULL);
}

static bool tp_take_ring_(struct tp_local_ *local, uint32_t before)
{
	if (local->header && before == TP_WRITES_)
		return true;
	if (local->patience > 0) {
		local->patience--;
		return tp_drop_(TP_DROP_NO_RING);
	}
	struct tp_arena_ *const arena = tp_arena_get_();
	tp_ring_header *const header = arena ? tp_claim_(arena) : NULL;
	if (!header) {
		local->patience = TP_LOOK_EVERY_;
		return tp_drop_(TP_DROP_NO_RING);
	}
	tp_forget_();
	/* From now on the thread's end is noticed. */
	if (!tp_has_end_key_ || pthread_setspecific(tp_end_key_, header) != 0) {
		__atomic_store_n(&header->state, (uint32_t)TP_RING_ENDED, __ATOMIC_RELEASE);
		local->life = TP_OVER_;
		return tp_drop_(TP_DROP_THREAD_ENDED);
	}
	local->sites = (unsigned char *)header + TP_RING_HEADER_LEN;
	local->records = local->sites + arena->sites_len;
	local->mask = arena->ring_len - 1;
	local->mode = arena->mode;
	local->position = __atomic_load_n(&header->begin, __ATOMIC_RELAXED);
	local->header = header;
	return true;
}

/* Puts words where there is room for them, before the head. */
static void tp_put_words_(const struct tp_local_ *local, const uint64_t *words, size_t count)
{
	memcpy(local->records + (local->position & local->mask), words, count * sizeof *words);
}

static bool tp_is_described_(const struct tp_local_ *local, uint32_t number)
{
	return local->described[number / 64] >> (number % 64) & 1;
}

static bool tp_describe_in_ring_(struct tp_local_ *local, const tp_site *site, uint32_t number)
{
	tp_ring_header *const header = local->header;
	const uint64_t room = (uint64_t)(local->records - local->sites);
	const uint64_t filled = __atomic_load_n(&header->sites_len, __ATOMIC_RELAXED);
	struct tp_filling_ description;
	tp_describe_(site, (uint16_t)number, &description);
	if (!description.is_whole || filled > room || description.len > room - filled)
		return tp_drop_(TP_DROP_NO_ROOM_FOR_SITE);
	memcpy(local->sites + filled, description.bytes, description.len);
	__atomic_store_n(&header->sites_len, filled + description.len, __ATOMIC_RELEASE);
	local->described[number / 64] |= (uint64_t)1 << (number % 64);
	return true;
}

/* Readers see what was stored before this ahead of anything that is written after it. */
static void tp_release_fence_(tp_ring_header *header)
{
#if defined(__SANITIZE_THREAD__)
#define TP_HAS_NO_FENCES_
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TP_HAS_NO_FENCES_
#endif
#endif
#ifdef TP_HAS_NO_FENCES_
	__atomic_fetch_add(&header->thread.reserved, 0, __ATOMIC_SEQ_CST);
#else
	(void)header;
	__atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

static void tp_enter_block_(struct tp_local_ *local, uint64_t begin, uint64_t block)
{
	tp_ring_header *const header = local->header;
	if (local->mode == TP_MODE_OVERWRITE) {
		__atomic_store_n(&header->thread.reserved, begin + block, __ATOMIC_RELAXED);
		tp_release_fence_(header);
	}
	__atomic_store_n(&header->first_numbers[begin / block % TP_BLOCKS], local->number, __ATOMIC_RELAXED);
}

/* What was dropped since it was told last; gives whether anything was. */
static bool tp_untold_(const struct tp_local_ *local, uint64_t counts[TP_DROP_PLACES])
{
	uint64_t any = 0;
	for (size_t at = 0; at < TP_DROP_PLACES; at++) {
		counts[at] = __atomic_load_n(&local->header->thread.dropped[at], __ATOMIC_RELAXED) - local->told[at];
		any |= counts[at];
	}
	return any != 0;
}

static void tp_tell_(struct tp_local_ *local, const uint64_t counts[TP_DROP_PLACES])
{
	uint64_t words[TP_DROPPED_WORDS_];
	words[0] = TP_DROPPED_WORDS_ | (uint64_t)TP_SITE_DROPPED << 16 | local->number << 32;
	words[1] = tp_now_();
	for (size_t at = 0; at < TP_DROP_PLACES; at++) {
		words[2 + at] = counts[at];
		local->told[at] += counts[at];
	}
	tp_put_words_(local, words, TP_DROPPED_WORDS_);
	local->position += TP_DROPPED_WORDS_ * 8;
	local->number += 1;
}

static bool tp_find_room_(struct tp_local_ *local, tp_site *site, uint64_t len, uint64_t *limit, uint32_t *number)
{
	const uint64_t ring_len = local->mask + 1, block = ring_len / TP_BLOCKS;
	if (len > block || len / 8 > TP_MAX_RECORD_WORDS)
		return tp_drop_(TP_DROP_TOO_LONG);
	if (!tp_register_(site, number))
		return tp_drop_(TP_DROP_TOO_MANY_SITES);
	if (!tp_on(site))
		/* The rules said so when it was registered. */
		return false;
	if (!tp_is_described_(local, *number) && !tp_describe_in_ring_(local, site, *number))
		return false;
	uint64_t counts[TP_DROP_PLACES];
	/* What was dropped is told as soon as it fits in before a record. */
	const bool tells = tp_untold_(local, counts) && TP_DROPPED_WORDS_ * 8 + len <= block;
	const uint64_t needed = len + (tells ? TP_DROPPED_WORDS_ * 8 : 0);
	const uint64_t position = local->position;
	const uint64_t left = block - position % block;
	/* At a border the next block begins, which may be still to be read. */
	const uint64_t begin = position + (needed > left ? left : 0);
	uint64_t readable_to = UINT64_MAX;
	if (local->mode == TP_MODE_DROP) {
		/* A tail that makes no sense leaves no room, or more than there is; neither reaches beyond the ring. */
		readable_to = __atomic_load_n(&local->header->reader.tail, __ATOMIC_ACQUIRE) + ring_len;
		if (begin + needed > readable_to || readable_to - position > ring_len)
			return tp_drop_(TP_DROP_FULL);
	}
	if (begin > position) {
		const uint64_t filler = 1u | (uint64_t)TP_SITE_FILLER << 16;
		tp_put_words_(local, &filler, 1);
	}
	if (begin % block == 0)
		tp_enter_block_(local, begin, block);
	local->position = begin;
	if (tells)
		tp_tell_(local, counts);
	const uint64_t end_of_block = begin - begin % block + block;
	*limit = end_of_block < readable_to ? end_of_block : readable_to;
	return true;
}

/* Makes room for a record of `len` bytes, where `limit` was the limit; gives the site's number and the limit that holds then. False: the record is
 * dropped, and counted, or its site was found to be off. */
__attribute__((cold, noinline)) bool tp_prepare_(tp_site *site, uint64_t len, uint64_t *limit, uint32_t *number)
{
	struct tp_local_ *const local = &tp_local_;
	const uint32_t before = local->life;
	if (before == TP_OVER_)
		return tp_drop_(TP_DROP_THREAD_ENDED);
	if (before == TP_PREPARES_ || (before == TP_WRITES_ && *limit == 0))
		return tp_drop_(TP_DROP_REENTRANT);
	const uint64_t limit_before = *limit;
	local->life = TP_PREPARES_;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	const bool is_prepared = tp_take_ring_(local, before) && tp_find_room_(local, site, len, limit, number);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	const bool has_ring = local->header != NULL;
	if (local->life == TP_PREPARES_)
		local->life = has_ring ? TP_WRITES_ : TP_WITHOUT_;
	if (!is_prepared && has_ring) {
		/* Not 0, which would say that a record is being written; and so near that the next one comes here too. */
		const uint64_t near = limit_before < local->position ? limit_before : local->position;
		local->limit = near > 1 ? near : 1;
	}
	return is_prepared;
}

/* A child has rings of its own: those of its parent go on being the parent's. */
static void tp_in_child_(void)
{
	tp_forget_();
	if (tp_local_.life != TP_OVER_)
		tp_local_.life = TP_WITHOUT_;
	tp_ids_[0] = tp_ids_[1] = 0;
	/* Nothing is handed over before it has an arena of its own. */
	__atomic_store_n(&tp_first_look_, (uint32_t)TP_LOOKED_, __ATOMIC_RELEASE);
	const int connection = __atomic_exchange_n(&tp_connection_, -1, __ATOMIC_ACQ_REL);
	if (connection >= 0)
		/* It is the keeper's, which the child does not have. */
		close(connection);
	/* Who held these is not in the child. Rules are whole at any time, and may have been told to some of the sites only; what was asked may
	 * not be whole. */
	if (tp_take_back_(&tp_rules_holder_) && tp_try_lock_(&tp_rules_holder_)) {
		tp_judge_all_();
		tp_unlock_(&tp_rules_holder_);
		tp_judge_();
	}
	if (tp_take_back_(&tp_asked_holder_))
		tp_is_asked_ = false;
	__atomic_store_n(&tp_arena_, (struct tp_arena_ *)NULL, __ATOMIC_RELEASE);
	(void)tp_take_back_(&tp_maker_);
	if (__atomic_load_n(&tp_making_, __ATOMIC_ACQUIRE) != TP_UNWANTED_)
		__atomic_store_n(&tp_making_, (uint32_t)TP_NOT_YET_, __ATOMIC_RELEASE);
}

/* -- the keeper: the thread that hands the memory file to the agent, and heeds what the agent says -- */

/* A connection on which the agent was given the memory file; -1 when there is no agent. */
static int tp_introduce_(const struct tp_arena_ *arena)
{
	struct sockaddr_un address;
	memset(&address, 0, sizeof address);
	address.sun_family = AF_UNIX;
	TP_CHECK_(sizeof address.sun_path >= sizeof arena->socket, "the kernel says so");
	memcpy(address.sun_path, arena->socket, sizeof arena->socket);
	if (!arena->socket[0])
		return -1;
	const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connection < 0)
		return -1;
	unsigned char greeting[12];
	const uint32_t version = TP_VERSION;
	memcpy(greeting, TP_MAGIC, 8);
	memcpy(greeting + 8, &version, sizeof version);
	struct iovec part = {greeting, sizeof greeting};
	union {
		struct cmsghdr aligned;
		unsigned char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	memset(&control, 0, sizeof control);
	struct msghdr message;
	memset(&message, 0, sizeof message);
	message.msg_iov = &part;
	message.msg_iovlen = 1;
	message.msg_control = &control;
	message.msg_controllen = sizeof control.bytes;
	struct cmsghdr *const files = CMSG_FIRSTHDR(&message);
	files->cmsg_level = SOL_SOCKET;
	files->cmsg_type = SCM_RIGHTS;
	files->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(files), &arena->file, sizeof arena->file);
	if (connect(connection, (const struct sockaddr *)&address, sizeof address) != 0 ||
	    sendmsg(connection, &message, MSG_NOSIGNAL) < 0) {
		close(connection);
		return -1;
	}
	return connection;
}

/* Until the agent is gone. */
static void tp_heed_(int connection, char *bytes)
{
	const size_t head = strlen(TP_RULES_MESSAGE_);
	for (;;) {
		const ssize_t len = recv(connection, bytes, TP_MAX_MESSAGE_LEN_, 0);
		if (len < 0 && errno == EINTR)
			continue;
		if (len <= 0)
			return;
		if ((size_t)len < head || memcmp(bytes, TP_RULES_MESSAGE_, head) != 0 ||
		    !tp_is_utf8_(bytes + head, (size_t)len - head))
			continue;
		struct tp_rules_ *const rules = tp_rules_parse_(bytes + head, (size_t)len - head);
		if (rules)
			tp_obey_(rules);
	}
}

/* A process may end before its thread has run at all: then its memory file is handed over here. The agent has it from the kernel when the process is
 * gone. */
static void tp_hand_over_at_exit_(void)
{
	const struct tp_arena_ *const arena = __atomic_load_n(&tp_arena_, __ATOMIC_ACQUIRE);
	uint32_t look = TP_LOOK_NOT_YET_;
	if (!arena)
		return;
	if (__atomic_compare_exchange_n(&tp_first_look_, &look, (uint32_t)TP_LOOKING_, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		/* The connection stays for as long as the process does. */
		(void)tp_introduce_(arena);
		return;
	}
	/* The thread has begun to look: some microseconds, 100 ms at most. */
	for (unsigned times = 0; times < 100 && __atomic_load_n(&tp_first_look_, __ATOMIC_ACQUIRE) == TP_LOOKING_; times++) {
		const struct timespec pause = {0, 1000000};
		nanosleep(&pause, NULL);
	}
}

static void *tp_keep_(void *of_arena)
{
	const struct tp_arena_ *const arena = (const struct tp_arena_ *)of_arena;
	prctl(PR_SET_NAME, "tracepoints");
	char *const bytes = (char *)malloc(TP_MAX_MESSAGE_LEN_);
	/* How long it waits before it looks for the agent again: 50 ms at first, 2 s at most. */
	uint64_t pause_ms = 50;
	if (__atomic_exchange_n(&tp_first_look_, (uint32_t)TP_LOOKING_, __ATOMIC_ACQ_REL) == TP_LOOKING_) {
		/* The process is ending, and hands over itself. */
		free(bytes);
		return NULL;
	}
	while (bytes) {
		const int connection = tp_introduce_(arena);
		__atomic_store_n(&tp_first_look_, (uint32_t)TP_LOOKED_, __ATOMIC_RELEASE);
		if (connection >= 0) {
			pause_ms = 50;
			__atomic_store_n(&tp_connection_, connection, __ATOMIC_RELEASE);
			tp_heed_(connection, bytes);
			__atomic_store_n(&tp_connection_, -1, __ATOMIC_RELEASE);
			close(connection);
		}
		const struct timespec pause = {(time_t)(pause_ms / 1000), (long)(pause_ms % 1000 * 1000000)};
		nanosleep(&pause, NULL);
		pause_ms = pause_ms * 2 < 2000 ? pause_ms * 2 : 2000;
	}
	__atomic_store_n(&tp_first_look_, (uint32_t)TP_LOOKED_, __ATOMIC_RELEASE);
	return NULL;
}

/* -- contexts -- */

/* Once in the life of a thread. */
static void tp_seed_(void)
{
	/* A fork is noticed from now on. */
	(void)tp_arena_get_();
	if (getrandom(tp_ids_, sizeof tp_ids_, GRND_NONBLOCK) == (ssize_t)sizeof tp_ids_ && (tp_ids_[0] | tp_ids_[1]))
		return;
	/* Early in the life of a machine there is nothing random yet. */
	uint64_t count = 0, monotonic_ns = 0;
	tp_clock_both_(&count, &monotonic_ns);
	tp_ids_[0] = count ^ (uint64_t)syscall(SYS_gettid) << 32;
	tp_ids_[1] = monotonic_ns | 1;
}

static uint64_t tp_rotated_(uint64_t word, unsigned by)
{
	return word << by | word >> (64 - by);
}

/* Not 0. */
static uint64_t tp_new_id_(void)
{
	for (;;) {
		if (!(tp_ids_[0] | tp_ids_[1]))
			tp_seed_();
		const uint64_t a = tp_ids_[0], b = tp_ids_[1], mixed = a ^ b;
		const uint64_t id = tp_rotated_(a + b, 17) + a;
		tp_ids_[0] = tp_rotated_(a, 49) ^ mixed ^ mixed << 21;
		tp_ids_[1] = tp_rotated_(mixed, 28);
		if (id)
			return id;
	}
}

tp_span tp_span_new_(tp_span_site *site, tp_context parent)
{
	tp_span span = {parent, NULL, TP_STATUS_UNSET};
	span.context.span_id = tp_new_id_();
	if (!(parent.trace_id_high | parent.trace_id_low)) {
		span.context.trace_id_high = tp_new_id_();
		span.context.trace_id_low = tp_new_id_();
		span.context.is_sampled = tp_samples_(span.context.trace_id_low);
	}
	if (span.context.is_sampled)
		span.site = site;
	return span;
}

/* So many digits of lower-case hexadecimal, and no more than these before `-` or the end. */
static bool tp_hex_(const char *text, size_t len, uint64_t *number)
{
	*number = 0;
	for (size_t at = 0; at < len; at++) {
		const char digit = text[at];
		if (digit >= '0' && digit <= '9')
			*number = *number << 4 | (uint64_t)(digit - '0');
		else if (digit >= 'a' && digit <= 'f')
			*number = *number << 4 | (uint64_t)(digit - 'a' + 10);
		else
			return false;
	}
	return true;
}

bool tp_from_traceparent(const char *text, tp_context *context)
{
	uint64_t version, flags;
	tp_context found = {0, 0, 0, false};
	if (!text || strnlen(text, TP_TRACEPARENT_LEN) < TP_TRACEPARENT_LEN || text[2] != '-' || text[35] != '-' || text[52] != '-')
		return false;
	const bool is_whole = tp_hex_(text, 2, &version) && tp_hex_(text + 3, 16, &found.trace_id_high) &&
		tp_hex_(text + 19, 16, &found.trace_id_low) && tp_hex_(text + 36, 16, &found.span_id) &&
		tp_hex_(text + 53, 2, &flags);
	const char behind = text[TP_TRACEPARENT_LEN];
	if (!is_whole || version == 0xff || (behind && (version == 0 || behind != '-')) || !tp_is_context(found))
		return false;
	found.is_sampled = flags & 1;
	*context = found;
	return true;
}

void tp_to_traceparent(tp_context context, char text[TP_TRACEPARENT_LEN + 1])
{
	static const char digits[] = "0123456789abcdef";
	const uint64_t words[] = {context.trace_id_high, context.trace_id_low, context.span_id};
	static const unsigned char at[] = {3, 19, 36};
	memcpy(text, "00-                                -                -00", TP_TRACEPARENT_LEN + 1);
	for (size_t word = 0; word < 3; word++)
		for (size_t digit = 0; digit < 16; digit++)
			text[at[word] + digit] = digits[words[word] >> (60 - 4 * digit) & 15];
	text[54] = context.is_sampled ? '1' : '0';
}

#ifdef __cplusplus
}
#endif

#endif /* TRACEPOINT_IMPLEMENTATION */

#endif /* THROUGHLINE_TRACEPOINT_H */
