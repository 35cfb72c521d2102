/* Emits as many events as its argument says. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "tp.h"
#include <stdlib.h>

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    for (uint64_t seq = 0; seq < count; seq++)
        lttng_ust_tracepoint(relaytest, tick, seq);
    return 0;
}
