/* As much of HTTP/1.1 as the server speaks: one GET per connection, answered and closed. */
#ifndef HTTP_H
#define HTTP_H

#include <stddef.h>
#include <stdint.h>

enum {
	/* Request line and header fields together; more is answered with 431. */
	HTTP_MAX_HEAD_BYTES = 8192,
	/* The longest target which is understood; more is answered with 414. */
	HTTP_MAX_TARGET_BYTES = 255,
};

enum http_status {
	HTTP_OK = 200,
	HTTP_BAD_REQUEST = 400,
	HTTP_NOT_FOUND = 404,
	HTTP_METHOD_NOT_ALLOWED = 405,
	HTTP_TIMEOUT = 408,
	HTTP_URI_TOO_LONG = 414,
	HTTP_HEAD_TOO_LARGE = 431,
	HTTP_INTERNAL_ERROR = 500,
	HTTP_UNAVAILABLE = 503,
	HTTP_VERSION_NOT_SUPPORTED = 505,
};

/* What a client asks for; only meaningful where http_parse() says HTTP_OK. */
struct http_request {
	char target[HTTP_MAX_TARGET_BYTES + 1];
	/* The asked time, -1 when there is none. */
	int64_t t_ms;
	int width;
};

/* The bytes of a request up to its empty line, with a NUL after them. */
struct http_head {
	char bytes[HTTP_MAX_HEAD_BYTES + 1];
	size_t len;
};

/*
 * Reads up to the empty line. Returns HTTP_OK, HTTP_TIMEOUT or HTTP_HEAD_TOO_LARGE; 0 when there is nothing to answer:
 * the client went away before it had sent a whole head, or never said a word.
 */
int http_read_head(int fd, struct http_head *head, int64_t deadline_ns);

/*
 * Understands a head. Returns HTTP_OK or the status to answer with. `request` is filled in as far as the head was
 * understood.
 */
enum http_status http_parse(const struct http_head *head, struct http_request *request);

/* The words which go with a status. */
const char *http_reason(enum http_status status);

/* Sends a whole answer. 0, or -1 with errno. */
int http_send(int fd, enum http_status status, const char *content_type, const void *body, size_t len,
	      int64_t deadline_ns);

#endif
