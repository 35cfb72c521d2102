/* An event with two integers. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER bench

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./pair.h"

#if !defined(PAIR_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define PAIR_H

#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(bench, pair,
    LTTNG_UST_TP_ARGS(uint64_t, first, uint64_t, second),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint64_t, first, first)
        lttng_ust_field_integer(uint64_t, second, second)))

#endif

#include <lttng/tracepoint-event.h>
