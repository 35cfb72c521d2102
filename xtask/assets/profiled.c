/* Computes below some calls, and calls the kernel, so many times (first argument, in thousands; or for so many milliseconds of CPU time,
 * second argument), and prints the CPU time that this took, in nanoseconds. To be compiled without frame pointers. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned sink;
static int zero;

static long long cpu_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

__attribute__((noinline)) static unsigned leaf(unsigned n)
{
	char bytes[64];
	unsigned sum = n;
	for (unsigned i = 0; i < 200; i++)
		sum = sum * 31 + i;
	if (read(zero, bytes, sizeof bytes) != sizeof bytes)
		abort();
	return sum + bytes[n % 64];
}

__attribute__((noinline)) static unsigned below(unsigned depth)
{
	volatile char pad[72];
	pad[depth % 72] = 1;
	unsigned found = depth ? below(depth - 1) : leaf(depth);
	return found + pad[depth % 72];
}

int main(int argc, char **argv)
{
	long thousands = argc > 1 ? atol(argv[1]) : 0;
	long long end = argc > 2 ? atoll(argv[2]) * 1000000 : 0;
	zero = open("/dev/zero", O_RDONLY);
	if (zero < 0)
		return 1;
	for (long i = 0; i < thousands * 1000 || cpu_ns() < end; i++)
		sink += below(30);
	printf("%lld\n", cpu_ns());
	return 0;
}
