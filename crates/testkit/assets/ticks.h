#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER testkit

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./ticks.h"

#if !defined(TICKS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define TICKS_H

#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(testkit, tick, LTTNG_UST_TP_ARGS(uint64_t, seq),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint64_t, seq, seq)))

#endif

#include <lttng/tracepoint-event.h>
