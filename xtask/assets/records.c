/* What a record costs by throughline/tracepoint.h: a line for each way, with the nanoseconds of the shortest of nine rounds of argv[1] records
   each. The same ways as crates/rings/examples/records.rs has; a ring of the same size, whose oldest block gives way. */
#define TRACEPOINT_IMPLEMENTATION
#include <throughline/tracepoint.h>

#include <stdio.h>

static const char text[] = "a text of sixty-four bytes, as a path or a short query may be...";

__attribute__((noinline)) static void record(uint64_t count)
{
    for (uint64_t number = 0; number < count; number++)
        TRACEPOINT("pair", tp_u64("first", number), tp_u64("second", number ^ 7));
}

__attribute__((noinline)) static void record_text(uint64_t count)
{
    for (uint64_t number = 0; number < count; number++) {
        const char *one = text;
        size_t len = sizeof text - 1;
        /* The compiler does not know how long it is. */
        __asm__ volatile("" : "+r"(one), "+r"(len));
        TRACEPOINT("text", tp_u64("number", number), tp_text("text", one, len));
    }
}

__attribute__((noinline)) static void span(uint64_t count)
{
    for (uint64_t number = 0; number < count; number++) {
        TP_SPAN_IN(one, tp_no_context(), "span", tp_u64("number", number));
        tp_span_end(&one);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(uint64_t count);
    } ways[] = {{"c_record", record}, {"c_text", record_text}, {"c_span", span}};
    enum { WAYS = sizeof ways / sizeof *ways };
    double best[WAYS];
    const uint64_t count = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
    tp_options options = tp_options_default();
    options.ring_len = 64u << 20;
    options.mode = TP_MODE_OVERWRITE;
    options.socket[0] = 0;
    if (!count || !tp_start(&options)) {
        fprintf(stderr, "usage: records COUNT\n");
        return 2;
    }
    /* All pages have been touched. */
    record(options.ring_len / 32);
    for (int way = 0; way < WAYS; way++)
        best[way] = 1e300;
    for (int round = 0; round < 9; round++)
        for (int way = 0; way < WAYS; way++) {
            const uint64_t begin_ns = tp_monotonic_();
            ways[way].run(count);
            const double took = (double)(tp_monotonic_() - begin_ns);
            best[way] = took < best[way] ? took : best[way];
        }
    for (int way = 0; way < WAYS; way++)
        printf("%s %.3f\n", ways[way].name, best[way] / (double)count);
    return 0;
}
