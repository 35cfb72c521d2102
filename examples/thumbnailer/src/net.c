#include "net.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

int64_t net_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t net_deadline_in_ms(int64_t ms)
{
	return net_now_ns() + ms * 1000000;
}

/* Waits for one of `events`. 0 when there is something to do, -1 with errno otherwise. */
static int wait_for(int fd, short events, int64_t deadline_ns)
{
	struct pollfd pfd = { .fd = fd, .events = events };

	for (;;) {
		int64_t left_ms = (deadline_ns - net_now_ns() + 999999) / 1000000;
		int ready;

		if (left_ms <= 0) {
			errno = ETIMEDOUT;
			return -1;
		}
		ready = poll(&pfd, 1, left_ms > 60000 ? 60000 : (int)left_ms);
		if (ready > 0)
			return 0;
		if (ready < 0 && errno != EINTR)
			return -1;
	}
}

static int would_block(void)
{
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

ssize_t net_recv(int fd, void *buf, size_t len, int64_t deadline_ns)
{
	for (;;) {
		ssize_t n = recv(fd, buf, len, MSG_DONTWAIT);

		if (n >= 0)
			return n;
		if (!would_block() || wait_for(fd, POLLIN, deadline_ns) < 0)
			return -1;
	}
}

/* Takes `sent` bytes off the front of the parts. */
static void advance(struct iovec **parts, size_t *count, size_t sent)
{
	while (*count > 0 && sent >= (*parts)->iov_len) {
		sent -= (*parts)->iov_len;
		(*parts)++;
		(*count)--;
	}
	if (*count > 0) {
		(*parts)->iov_base = (char *)(*parts)->iov_base + sent;
		(*parts)->iov_len -= sent;
	}
}

int net_send_all(int fd, struct iovec *parts, size_t count, int64_t deadline_ns)
{
	advance(&parts, &count, 0);
	while (count > 0) {
		struct msghdr message = { .msg_iov = parts, .msg_iovlen = count };
		ssize_t n = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n >= 0)
			advance(&parts, &count, (size_t)n);
		else if (!would_block() || wait_for(fd, POLLOUT, deadline_ns) < 0)
			return -1;
	}
	return 0;
}
