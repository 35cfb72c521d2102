/* Reads one byte from /dev/zero so many times and prints how long that took, in nanoseconds. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char **argv)
{
	long count = argc > 1 ? atol(argv[1]) : 0;
	int zero = open("/dev/zero", O_RDONLY);
	char byte;
	if (zero < 0)
		return 1;
	long long begin = now_ns();
	for (long i = 0; i < count; i++)
		if (read(zero, &byte, 1) != 1)
			return 1;
	printf("%lld\n", now_ns() - begin);
	return 0;
}
