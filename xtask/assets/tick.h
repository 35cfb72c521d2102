/* One event of the kinds of fields that applications record most. */
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
        lttng_ust_field_integer_hex(uint64_t, address, 0x7f0000000000 + seq * 16)
        lttng_ust_field_integer(int32_t, code, -(int32_t)(seq % 100))
        lttng_ust_field_integer(uint16_t, flags, seq % 1024)
        lttng_ust_field_float(double, share, (double)(seq % 1000) / 1000)
        lttng_ust_field_string(text, text)))

#endif

#include <lttng/tracepoint-event.h>
