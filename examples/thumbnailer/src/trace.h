/*
 * The LTTng-UST tracepoints of the server.
 *
 * Each request and each of its phases has a begin and an end event with the request's number, both written by the
 * worker thread which handles it:
 *
 *   request_begin  open_begin .. open_end  seek_*  decode_*  encode_*  send_begin .. send_end  request_end
 */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER thumbnailer

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./trace.h"

#if !defined(TRACE_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define TRACE_H

#include <stdint.h>

#include <lttng/tracepoint.h>

/* `path`: the request's target as it came, or "" when there was none; `t_ms`: the asked time, or -1 */
LTTNG_UST_TRACEPOINT_EVENT(thumbnailer, request_begin,
	LTTNG_UST_TP_ARGS(uint64_t, request_id, const char *, path, int64_t, t_ms),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint64_t, request_id, request_id)
		lttng_ust_field_string(path, path)
		lttng_ust_field_integer(int64_t, t_ms, t_ms)
	)
)

/* `status`: the HTTP status; `bytes`: of the answer's body */
LTTNG_UST_TRACEPOINT_EVENT(thumbnailer, request_end,
	LTTNG_UST_TP_ARGS(uint64_t, request_id, uint32_t, status, uint64_t, bytes),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint64_t, request_id, request_id)
		lttng_ust_field_integer(uint32_t, status, status)
		lttng_ust_field_integer(uint64_t, bytes, bytes)
	)
)

LTTNG_UST_TRACEPOINT_EVENT_CLASS(thumbnailer, phase_begin,
	LTTNG_UST_TP_ARGS(uint64_t, request_id),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint64_t, request_id, request_id)
	)
)

/*
 * `error`: 0, or the negative error code; `amount`: what the phase produced: streams opened, milliseconds sought to,
 * frames decoded, bytes encoded, bytes sent
 */
LTTNG_UST_TRACEPOINT_EVENT_CLASS(thumbnailer, phase_end,
	LTTNG_UST_TP_ARGS(uint64_t, request_id, int32_t, error, uint64_t, amount),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint64_t, request_id, request_id)
		lttng_ust_field_integer(int32_t, error, error)
		lttng_ust_field_integer(uint64_t, amount, amount)
	)
)

#define THUMBNAILER_PHASE(name) \
	LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(thumbnailer, phase_begin, thumbnailer, name##_begin, \
		LTTNG_UST_TP_ARGS(uint64_t, request_id)) \
	LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(thumbnailer, phase_end, thumbnailer, name##_end, \
		LTTNG_UST_TP_ARGS(uint64_t, request_id, int32_t, error, uint64_t, amount))

THUMBNAILER_PHASE(open)
THUMBNAILER_PHASE(seek)
THUMBNAILER_PHASE(decode)
THUMBNAILER_PHASE(encode)
THUMBNAILER_PHASE(send)

#undef THUMBNAILER_PHASE

#endif

#include <lttng/tracepoint-event.h>
