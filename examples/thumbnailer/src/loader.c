/*
 * Sends requests to the thumbnail server and checks the answers.
 *
 * The moments asked for come from a fixed generator: request number i of a seed is the same in every run, whichever
 * thread sends it. Exit code 0: all answers were JPEG pictures; 1: some were not; 2: could not run.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net.h"

enum {
	MAX_REQUESTS = 1000000,
	MAX_CONCURRENCY = 256,
	ANSWER_LIMIT_MS = 30000,
	MAX_ANSWER_BYTES = 8 * 1024 * 1024,
	/* Failures which are described one by one. */
	MAX_DESCRIBED = 5,
};

struct load {
	struct sockaddr_in server;
	unsigned long requests;
	unsigned long concurrency;
	/* Length of the video in milliseconds. */
	unsigned long duration_ms;
	unsigned long seed;

	atomic_ulong next;
	atomic_ulong failed;
	/* By request number; -1 for a failed one. */
	int64_t *latency_ns;
};

/* SplitMix64 (Steele, Lea, Flood 2014): a well mixed number for each position of a sequence. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static int connect_to(const struct sockaddr_in *server)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)server, sizeof *server) < 0) {
		int reason = errno;

		close(fd);
		errno = reason;
		return -1;
	}
	return fd;
}

/* Reads to the end of the answer. Its length, or -1 with errno. */
static ssize_t read_answer(int fd, uint8_t *answer, int64_t deadline_ns)
{
	size_t len = 0;

	while (len < MAX_ANSWER_BYTES) {
		ssize_t n = net_recv(fd, answer + len, MAX_ANSWER_BYTES - len, deadline_ns);

		if (n < 0)
			return -1;
		if (n == 0)
			return (ssize_t)len;
		len += (size_t)n;
	}
	errno = EMSGSIZE;
	return -1;
}

/* NULL for an answer of status 200 whose body is a whole JPEG picture, else what is wrong with it. */
static const char *fault_of(const uint8_t *answer, size_t len)
{
	const uint8_t *end_of_head = memmem(answer, len, "\r\n\r\n", 4);
	const uint8_t *length_field;
	const uint8_t *body;
	size_t body_len;

	if (!end_of_head)
		return "no HTTP head in the answer";
	if (memcmp(answer, "HTTP/1.1 200 ", 13) != 0)
		return "status is not 200";
	length_field = memmem(answer, (size_t)(end_of_head - answer), "Content-Length: ", 16);
	if (!length_field)
		return "no Content-Length";
	body = end_of_head + 4;
	body_len = len - (size_t)(body - answer);
	if (strtoul((const char *)length_field + 16, NULL, 10) != body_len)
		return "body is not as long as announced";
	if (body_len < 4 || memcmp(body, "\xff\xd8", 2) != 0 || memcmp(body + body_len - 2, "\xff\xd9", 2) != 0)
		return "body is not a whole JPEG picture";
	return NULL;
}

/* One request. NULL when the answer was right, else what went wrong. */
static const char *request(const struct load *load, unsigned long number, uint8_t *answer)
{
	uint64_t t_ms = mix(mix(load->seed) ^ number) % load->duration_ms;
	int64_t deadline_ns = net_deadline_in_ms(ANSWER_LIMIT_MS);
	int fd = connect_to(&load->server);
	const char *fault = NULL;
	char head[128];
	struct iovec part = { .iov_base = head };
	ssize_t len;

	if (fd < 0)
		return strerror(errno);
	part.iov_len = (size_t)snprintf(head, sizeof head,
					"GET /thumbnail?t=%llu.%03llu HTTP/1.1\r\nHost: thumbnailer\r\n\r\n",
					(unsigned long long)(t_ms / 1000), (unsigned long long)(t_ms % 1000));
	if (net_send_all(fd, &part, 1, deadline_ns) < 0 || (len = read_answer(fd, answer, deadline_ns)) < 0)
		fault = strerror(errno);
	else
		fault = fault_of(answer, (size_t)len);
	close(fd);
	return fault;
}

static void *send_requests(void *argument)
{
	struct load *load = argument;
	uint8_t *answer = malloc(MAX_ANSWER_BYTES);
	unsigned long number;

	if (!answer) {
		fprintf(stderr, "loader: out of memory\n");
		exit(2);
	}
	while ((number = atomic_fetch_add(&load->next, 1)) < load->requests) {
		int64_t begin_ns = net_now_ns();
		const char *fault = request(load, number, answer);

		load->latency_ns[number] = fault ? -1 : net_now_ns() - begin_ns;
		if (fault && atomic_fetch_add(&load->failed, 1) < MAX_DESCRIBED)
			fprintf(stderr, "loader: request %lu: %s\n", number, fault);
	}
	free(answer);
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a;
	int64_t right = *(const int64_t *)b;

	return (left > right) - (left < right);
}

/* The value below which `percent` of the answered requests were (nearest rank), in milliseconds. */
static double percentile_ms(const int64_t *sorted, size_t count, size_t percent)
{
	size_t rank = (count * percent + 99) / 100;

	return count == 0 ? 0.0 : (double)sorted[rank == 0 ? 0 : rank - 1] / 1e6;
}

static void report(struct load *load, int64_t elapsed_ns)
{
	size_t answered = load->requests - load->failed;
	const int64_t *sorted = load->latency_ns + load->failed;

	/* The failed ones, -1, come first. */
	qsort(load->latency_ns, load->requests, sizeof *load->latency_ns, by_value);
	printf("%zu answered, %lu failed, in %.1f s; latency p50 %.1f ms, p95 %.1f ms, max %.1f ms\n", answered,
	       load->failed, (double)elapsed_ns / 1e9, percentile_ms(sorted, answered, 50),
	       percentile_ms(sorted, answered, 95), percentile_ms(sorted, answered, 100));
}

static void usage(FILE *to)
{
	fprintf(to, "Usage: loader --port PORT [--host ADDRESS] [--requests N] [--concurrency N] [--duration SECONDS] "
		    "[--seed N]\n"
		    "\n"
		    "Asks a thumbnail server for N (300) pictures, at most 6 at a time, of a video of 30 seconds.\n");
}

/* A whole number from 1 to `max`; ends the program otherwise. */
static unsigned long number_argument(const char *name, const char *text, unsigned long max)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (end == text || *end != '\0' || value < 1 || value > max) {
		fprintf(stderr, "loader: --%s is 1 to %lu, not %s\n", name, max, text);
		exit(2);
	}
	return value;
}

static void parse_arguments(int argc, char **argv, struct load *load)
{
	static const struct option options[] = {
		{ "port", required_argument, NULL, 'p' },	 { "host", required_argument, NULL, 'H' },
		{ "requests", required_argument, NULL, 'n' },	 { "concurrency", required_argument, NULL, 'c' },
		{ "duration", required_argument, NULL, 'd' },	 { "seed", required_argument, NULL, 's' },
		{ "help", no_argument, NULL, 'h' },		 { 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'p': load->server.sin_port = htons((uint16_t)number_argument("port", optarg, UINT16_MAX)); break;
		case 'n': load->requests = number_argument("requests", optarg, MAX_REQUESTS); break;
		case 'c': load->concurrency = number_argument("concurrency", optarg, MAX_CONCURRENCY); break;
		case 'd': load->duration_ms = 1000 * number_argument("duration", optarg, 86400); break;
		case 's': load->seed = number_argument("seed", optarg, UINT32_MAX); break;
		case 'h': usage(stdout); exit(0);
		case 'H':
			if (inet_pton(AF_INET, optarg, &load->server.sin_addr) == 1)
				break;
			fprintf(stderr, "loader: --host wants four numbers like 127.0.0.1, not %s\n", optarg);
			exit(2);
		default: exit(2);
		}
	}
	if (optind != argc || load->server.sin_port == 0) {
		usage(stderr);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct load load = {
		.server = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) },
		.requests = 300,
		.concurrency = 6,
		.duration_ms = 30000,
		.seed = 1,
	};
	pthread_t threads[MAX_CONCURRENCY];
	unsigned long started = 0;
	int64_t begin_ns;

	parse_arguments(argc, argv, &load);
	load.latency_ns = calloc(load.requests, sizeof *load.latency_ns);
	begin_ns = net_now_ns();
	while (load.latency_ns && started < load.concurrency &&
	       pthread_create(&threads[started], NULL, send_requests, &load) == 0)
		started++;
	if (started == 0) {
		fprintf(stderr, "loader: cannot start: %s\n", strerror(errno));
		return 2;
	}
	for (unsigned long i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	report(&load, net_now_ns() - begin_ns);
	free(load.latency_ns);
	return load.failed == 0 ? 0 : 1;
}
