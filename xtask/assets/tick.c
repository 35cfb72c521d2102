/* Records argv[1] events from argv[2] threads, each on a CPU of its own, then ends. Each thread begins an event every
   argv[3] nanoseconds; with 0 as soon as it can. */
#define _GNU_SOURCE
#define LTTNG_UST_TRACEPOINT_DEFINE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#include "tick.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct share {
    uint64_t first, count, pause_ns;
    int cpu;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void *record(void *argument)
{
    const struct share *share = argument;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(share->cpu, &cpus);
    /* Without it the events of two threads may share a stream, which is no fault. */
    pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus);
    uint64_t due = now_ns();
    for (uint64_t seq = share->first; seq < share->first + share->count; seq++) {
        if (share->pause_ns) {
            due += share->pause_ns;
            while (now_ns() < due)
                ;
        }
        lttng_ust_tracepoint(bench, tick, seq, "the quick brown fox");
    }
    return NULL;
}

int main(int argc, char **argv)
{
    enum { MAX_THREADS = 64 };
    if (argc != 4) {
        fprintf(stderr, "usage: tick COUNT THREADS PAUSE_NS\n");
        return 2;
    }
    uint64_t count = strtoull(argv[1], NULL, 10), first = 0, pause_ns = strtoull(argv[3], NULL, 10);
    int threads = atoi(argv[2]);
    if (threads < 1 || threads > MAX_THREADS) {
        fprintf(stderr, "tick: 1 to %d threads\n", MAX_THREADS);
        return 2;
    }
    pthread_t handles[MAX_THREADS];
    struct share shares[MAX_THREADS];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    for (int i = 0; i < threads; i++) {
        uint64_t end = count * (uint64_t)(i + 1) / (uint64_t)threads;
        shares[i] = (struct share){first, end - first, pause_ns, (int)(i % cpus)};
        first = end;
        if (pthread_create(&handles[i], NULL, record, &shares[i])) {
            perror("tick");
            return 1;
        }
    }
    for (int i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);
    return 0;
}
