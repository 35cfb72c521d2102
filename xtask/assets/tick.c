/* Records argv[1] events, then ends. */
#define LTTNG_UST_TRACEPOINT_DEFINE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#include "tick.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: tick COUNT\n");
        return 2;
    }
    uint64_t count = strtoull(argv[1], NULL, 10);
    for (uint64_t seq = 0; seq < count; seq++)
        lttng_ust_tracepoint(bench, tick, seq, "the quick brown fox");
    return 0;
}
