/*
 * A thumbnail server: GET /thumbnail?t=SECONDS[&width=PIXELS] answers with a JPEG picture of that moment of a video.
 *
 * The main thread accepts connections and puts them into a bounded queue; worker threads take them, one request each:
 * open the video, seek, decode, encode, send. LTTng-UST tracepoints (trace.h) mark the request and each phase.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <libavutil/error.h>
#include <libavutil/log.h>

#include "http.h"
#include "net.h"
#include "queue.h"
#include "thumbnail.h"
#include "trace.h"

enum {
	DEFAULT_WORKERS = 4,
	MAX_WORKERS = 64,
	BACKLOG = 128,
	READ_LIMIT_MS = 5000,
	SEND_LIMIT_MS = 10000,
	/* A refused client may still be sending: it gets this long, and so many bytes, to read the answer. */
	LINGER_LIMIT_MS = 500,
	LINGER_MAX_BYTES = 256 * 1024,
};

struct settings {
	struct sockaddr_in address;
	long workers;
	const char *video;
};

struct server {
	const char *video;
	int64_t duration_ms;
	struct queue queue;
	atomic_uint_fast64_t requests;
	atomic_uint_fast64_t errors;
	/* Connections which closed, or broke, without a request. */
	atomic_uint_fast64_t silent;
	/* Connections refused because the queue was full. */
	atomic_uint_fast64_t refused;
};

/* Reads and drops what a client still sends, so that closing does not reset the answer away from it. */
static void linger(int fd)
{
	int64_t deadline_ns = net_deadline_in_ms(LINGER_LIMIT_MS);
	char dropped[4096];
	size_t total = 0;
	ssize_t n;

	if (shutdown(fd, SHUT_WR) < 0)
		return;
	while (total < LINGER_MAX_BYTES && (n = net_recv(fd, dropped, sizeof dropped, deadline_ns)) > 0)
		total += (size_t)n;
}

/* The phase send. Returns the bytes of the body which were sent: all or none. */
static uint64_t send_answer(int fd, uint64_t request_id, enum http_status status, const struct thumbnail *thumbnail)
{
	int64_t deadline_ns = net_deadline_in_ms(SEND_LIMIT_MS);
	size_t len;
	int err;

	lttng_ust_tracepoint(thumbnailer, send_begin, request_id);
	if (status == HTTP_OK) {
		len = thumbnail->len;
		err = http_send(fd, status, "image/jpeg", thumbnail->data, len, deadline_ns);
	} else {
		char text[64];

		len = (size_t)snprintf(text, sizeof text, "%s\n", http_reason(status));
		err = http_send(fd, status, "text/plain", text, len, deadline_ns);
	}
	err = err < 0 ? -errno : 0;
	lttng_ust_tracepoint(thumbnailer, send_end, request_id, err, err < 0 ? 0 : len);
	return err < 0 ? 0 : len;
}

/* The phases open to encode. */
static enum http_status make(const struct server *server, const struct http_request *request, uint64_t request_id,
			     struct thumbnail *thumbnail)
{
	int err;

	if (request->t_ms > server->duration_ms)
		return HTTP_BAD_REQUEST;
	err = thumbnail_make(server->video, request->t_ms, request->width, request_id, thumbnail);
	if (err < 0) {
		fprintf(stderr, "thumbnailer: request %llu for %s: %s\n", (unsigned long long)request_id,
			request->target, av_err2str(err));
		return HTTP_INTERNAL_ERROR;
	}
	return HTTP_OK;
}

static void serve(struct server *server, int fd)
{
	struct http_head head;
	struct http_request request = { .t_ms = -1 };
	struct thumbnail thumbnail = { .data = NULL };
	int outcome = http_read_head(fd, &head, net_deadline_in_ms(READ_LIMIT_MS));
	enum http_status status;
	uint64_t request_id;
	uint64_t bytes;

	if (outcome == 0) {
		atomic_fetch_add(&server->silent, 1);
		return;
	}
	status = outcome == HTTP_OK ? http_parse(&head, &request) : (enum http_status)outcome;
	request_id = atomic_fetch_add(&server->requests, 1) + 1;

	lttng_ust_tracepoint(thumbnailer, request_begin, request_id, request.target, request.t_ms);
	if (status == HTTP_OK)
		status = make(server, &request, request_id, &thumbnail);
	bytes = send_answer(fd, request_id, status, &thumbnail);
	thumbnail_free(&thumbnail);
	lttng_ust_tracepoint(thumbnailer, request_end, request_id, (uint32_t)status, bytes);

	if (status != HTTP_OK) {
		atomic_fetch_add(&server->errors, 1);
		linger(fd);
	}
}

static void *work(void *argument)
{
	struct server *server = argument;
	int fd;

	while ((fd = queue_pop(&server->queue)) >= 0) {
		serve(server, fd);
		close(fd);
	}
	return NULL;
}

/* Accepts what is waiting. A connection which finds the queue full is told so at once. */
static void accept_one(struct server *server, int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0) {
		/* Out of descriptors: the waiting connection stays; do not spin on it. */
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
			poll(NULL, 0, 10);
		return;
	}
	if (queue_push(&server->queue, fd))
		return;
	atomic_fetch_add(&server->refused, 1);
	http_send(fd, HTTP_UNAVAILABLE, "text/plain", "busy\n", 5, net_now_ns());
	close(fd);
}

/* Accepts connections until SIGTERM or SIGINT. */
static void accept_until_signal(struct server *server, int listener, int signals)
{
	struct pollfd waits[] = { { .fd = listener, .events = POLLIN }, { .fd = signals, .events = POLLIN } };

	while (waits[1].revents == 0) {
		if (poll(waits, 2, -1) < 0) {
			waits[1].revents = 0;
			continue;
		}
		if (waits[1].revents == 0 && waits[0].revents != 0)
			accept_one(server, listener);
	}
}

static void usage(FILE *to)
{
	fprintf(to,
		"Usage: thumbnailer [--listen ADDRESS:PORT] [--workers N] VIDEO\n"
		"\n"
		"Serves GET /thumbnail?t=SECONDS[&width=PIXELS] as JPEG. Listens on 127.0.0.1:8080 unless told otherwise;\n"
		"with port 0 the system chooses one. The address is printed on standard output when the server is ready.\n");
}

/* ADDRESS:PORT, the address as four numbers. */
static bool parse_address(const char *text, struct sockaddr_in *address)
{
	const char *colon = strrchr(text, ':');
	char host[INET_ADDRSTRLEN];
	char *end;
	unsigned long port;

	if (!colon || colon - text >= (ptrdiff_t)sizeof host || strspn(colon + 1, "0123456789") != strlen(colon + 1))
		return false;
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = '\0';
	port = strtoul(colon + 1, &end, 10);
	if (end == colon + 1 || port > UINT16_MAX)
		return false;
	*address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	return inet_pton(AF_INET, host, &address->sin_addr) == 1;
}

/* False when the arguments cannot be used; has said why. */
static bool parse_arguments(int argc, char **argv, struct settings *settings)
{
	static const struct option options[] = {
		{ "listen", required_argument, NULL, 'l' },
		{ "workers", required_argument, NULL, 'w' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "l:w:h", options, NULL)) != -1) {
		if (option == 'h') {
			usage(stdout);
			exit(0);
		}
		if (option == 'w') {
			settings->workers = strtol(optarg, NULL, 10);
			if (settings->workers < 1 || settings->workers > MAX_WORKERS) {
				fprintf(stderr, "thumbnailer: --workers is 1 to %d, not %s\n", MAX_WORKERS, optarg);
				return false;
			}
		} else if (option != 'l') {
			return false;
		} else if (!parse_address(optarg, &settings->address)) {
			fprintf(stderr, "thumbnailer: --listen wants an address like 127.0.0.1:8080, not %s\n", optarg);
			return false;
		}
	}
	if (optind + 1 != argc) {
		usage(stderr);
		return false;
	}
	settings->video = argv[optind];
	return true;
}

/* The listening socket, or -1; has said why. */
static int listen_on(struct sockaddr_in *address)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t len = sizeof *address;
	int on = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
	    bind(fd, (struct sockaddr *)address, len) < 0 || listen(fd, BACKLOG) < 0 ||
	    getsockname(fd, (struct sockaddr *)address, &len) < 0) {
		fprintf(stderr, "thumbnailer: cannot listen on port %u: %s\n", ntohs(address->sin_port), strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

/* A descriptor which is readable once the process is asked to end; the signals no longer end it by themselves. */
static int catch_signals(void)
{
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	return signalfd(-1, &ends, SFD_CLOEXEC);
}

static int run(struct server *server, struct settings *settings, int signals)
{
	pthread_t workers[MAX_WORKERS];
	long started = 0;
	int listener = listen_on(&settings->address);
	char host[INET_ADDRSTRLEN];

	if (listener < 0)
		return 2;
	while (started < settings->workers && pthread_create(&workers[started], NULL, work, server) == 0)
		started++;
	if (started == settings->workers) {
		inet_ntop(AF_INET, &settings->address.sin_addr, host, sizeof host);
		printf("listening on %s:%u\n", host, ntohs(settings->address.sin_port));
		fflush(stdout);
		accept_until_signal(server, listener, signals);
	} else {
		fprintf(stderr, "thumbnailer: cannot start worker %ld of %ld\n", started + 1, settings->workers);
	}
	close(listener);
	queue_close(&server->queue);
	for (long i = 0; i < started; i++)
		pthread_join(workers[i], NULL);
	return started == settings->workers ? 0 : 2;
}

int main(int argc, char **argv)
{
	struct settings settings = { .workers = DEFAULT_WORKERS };
	struct server server = { .requests = 0 };
	int signals = catch_signals();
	int exit_code;

	parse_address("127.0.0.1:8080", &settings.address);
	if (!parse_arguments(argc, argv, &settings))
		return 2;
	av_log_set_level(AV_LOG_FATAL);
	queue_init(&server.queue);
	server.video = settings.video;
	server.duration_ms = thumbnail_video_duration_ms(settings.video);
	if (server.duration_ms < 0) {
		fprintf(stderr, "thumbnailer: cannot read %s as a video: %s\n", settings.video,
			av_err2str((int)server.duration_ms));
		return 2;
	}
	exit_code = run(&server, &settings, signals);
	fprintf(stderr, "thumbnailer: %llu requests, %llu of them answered with an error; %llu connections without a "
		"request, %llu refused\n", (unsigned long long)server.requests, (unsigned long long)server.errors,
		(unsigned long long)server.silent, (unsigned long long)server.refused);
	return exit_code;
}
