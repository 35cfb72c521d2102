#include "http.h"

#include <ctype.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net.h"
#include "thumbnail.h"

enum {
	/* No video is longer; keeps the milliseconds far from overflow. */
	MAX_SECONDS = 24 * 3600,
};

int http_read_head(int fd, struct http_head *head, int64_t deadline_ns)
{
	head->len = 0;
	while (head->len < HTTP_MAX_HEAD_BYTES) {
		ssize_t n = net_recv(fd, head->bytes + head->len, HTTP_MAX_HEAD_BYTES - head->len, deadline_ns);

		if (n < 0)
			return head->len > 0 && net_now_ns() >= deadline_ns ? HTTP_TIMEOUT : 0;
		if (n == 0)
			return 0;
		head->len += (size_t)n;
		head->bytes[head->len] = '\0';
		if (memmem(head->bytes, head->len, "\r\n\r\n", 4))
			return HTTP_OK;
	}
	return HTTP_HEAD_TOO_LARGE;
}

/* A decimal number from 0 to `max` and nothing else: no sign, no exponent, no space. */
static bool parse_decimal(const char *text, double max, double *value)
{
	char *end;

	if (!isdigit((unsigned char)text[0]) || strspn(text, "0123456789.") != strlen(text))
		return false;
	*value = strtod(text, &end);
	return *end == '\0' && *value <= max;
}

static bool parse_time(const char *text, int64_t *t_ms)
{
	double seconds;

	if (!parse_decimal(text, MAX_SECONDS, &seconds))
		return false;
	*t_ms = (int64_t)(seconds * 1000.0 + 0.5);
	return true;
}

static bool parse_width(const char *text, int *width)
{
	double value;

	if (strchr(text, '.') || !parse_decimal(text, THUMBNAIL_MAX_WIDTH, &value) || value < THUMBNAIL_MIN_WIDTH)
		return false;
	*width = (int)value;
	return true;
}

/* `query` is cut into its parameters in place. True when t is there and all of it is understood. */
static bool parse_query(char *query, struct http_request *request)
{
	char *rest = query;
	char *parameter;

	while ((parameter = strsep(&rest, "&")) != NULL) {
		bool understood = false;

		if (strncmp(parameter, "t=", 2) == 0)
			understood = request->t_ms < 0 && parse_time(parameter + 2, &request->t_ms);
		else if (strncmp(parameter, "width=", 6) == 0)
			understood = parse_width(parameter + 6, &request->width);
		if (!understood)
			return false;
	}
	return request->t_ms >= 0;
}

static enum http_status parse_target(struct http_request *request)
{
	char copy[sizeof request->target];
	char *query;

	memcpy(copy, request->target, sizeof copy);
	query = strchr(copy, '?');
	if (query)
		*query++ = '\0';
	if (strcmp(copy, "/thumbnail") != 0)
		return HTTP_NOT_FOUND;
	return query && parse_query(query, request) ? HTTP_OK : HTTP_BAD_REQUEST;
}

enum http_status http_parse(const struct http_head *head, struct http_request *request)
{
	const char *line = head->bytes;
	size_t length = strcspn(line, "\r\n");
	const char *target = memchr(line, ' ', length);
	const char *version = target ? memchr(target + 1, ' ', length - (size_t)(target + 1 - line)) : NULL;
	size_t target_len;

	*request = (struct http_request){ .t_ms = -1, .width = THUMBNAIL_DEFAULT_WIDTH };
	if (memchr(head->bytes, '\0', head->len) || !version || line + length - version != sizeof " HTTP/1.1" - 1 ||
	    strncmp(version, " HTTP/", 6) != 0)
		return HTTP_BAD_REQUEST;
	target++;
	target_len = (size_t)(version - target);
	if (target_len > HTTP_MAX_TARGET_BYTES)
		return HTTP_URI_TOO_LONG;
	memcpy(request->target, target, target_len);
	if (strncmp(version, " HTTP/1.", 8) != 0)
		return HTTP_VERSION_NOT_SUPPORTED;
	if (strncmp(line, "GET ", 4) != 0)
		return HTTP_METHOD_NOT_ALLOWED;
	return parse_target(request);
}

const char *http_reason(enum http_status status)
{
	switch (status) {
	case HTTP_OK: return "OK";
	case HTTP_BAD_REQUEST: return "Bad Request";
	case HTTP_NOT_FOUND: return "Not Found";
	case HTTP_METHOD_NOT_ALLOWED: return "Method Not Allowed";
	case HTTP_TIMEOUT: return "Request Timeout";
	case HTTP_URI_TOO_LONG: return "URI Too Long";
	case HTTP_HEAD_TOO_LARGE: return "Request Header Fields Too Large";
	case HTTP_INTERNAL_ERROR: return "Internal Server Error";
	case HTTP_UNAVAILABLE: return "Service Unavailable";
	case HTTP_VERSION_NOT_SUPPORTED: return "HTTP Version Not Supported";
	}
	return "Unknown";
}

int http_send(int fd, enum http_status status, const char *content_type, const void *body, size_t len,
	      int64_t deadline_ns)
{
	char head[256];
	int head_len = snprintf(head, sizeof head,
				"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%sConnection: close\r\n\r\n",
				(int)status, http_reason(status), content_type, len,
				status == HTTP_METHOD_NOT_ALLOWED ? "Allow: GET\r\n" : "");
	struct iovec parts[] = {
		{ .iov_base = head, .iov_len = (size_t)head_len },
		{ .iov_base = (void *)body, .iov_len = len },
	};

	return net_send_all(fd, parts, 2, deadline_ns);
}
