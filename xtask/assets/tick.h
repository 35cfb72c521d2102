/* One event with an integer and a text, recorded as fast as a loop can. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER bench

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./tick.h"

#if !defined(TICK_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define TICK_H

#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(bench, tick,
    LTTNG_UST_TP_ARGS(uint64_t, seq, const char *, text),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint64_t, seq, seq)
        lttng_ust_field_string(text, text)))

#endif

#include <lttng/tracepoint-event.h>
