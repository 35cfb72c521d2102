/* Emits argv[1] events with the numbers from 0 on, and waits argv[2] microseconds before each. */
#define _DEFAULT_SOURCE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "ticks.h"

#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    useconds_t pause_us = argc > 2 ? (useconds_t)strtoul(argv[2], NULL, 10) : 0;
    for (uint64_t seq = 0; seq < count; seq++) {
        if (pause_us)
            usleep(pause_us);
        lttng_ust_tracepoint(testkit, tick, seq);
    }
    return 0;
}
