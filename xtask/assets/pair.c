/* Says how many nanoseconds an event with two integers takes: the shortest of nine rounds of argv[1] events each. */
#define LTTNG_UST_TRACEPOINT_DEFINE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(int argc, char **argv)
{
    unsigned long count = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
    if (!count) {
        fprintf(stderr, "usage: pair COUNT\n");
        return 2;
    }
    double best = 1e300;
    for (int round = 0; round < 9; round++) {
        double begin = now_ns();
        for (uint64_t number = 0; number < count; number++)
            lttng_ust_tracepoint(bench, pair, number, number ^ 7);
        double took = now_ns() - begin;
        best = took < best ? took : best;
    }
    printf("%.3f\n", best / (double)count);
    return 0;
}
