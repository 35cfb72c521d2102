/* Socket input and output against an absolute deadline: a slow or silent peer costs a bounded time. */
#ifndef NET_H
#define NET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
int64_t net_now_ns(void);

/* The moment `ms` milliseconds from now, as net_now_ns() counts. */
int64_t net_deadline_in_ms(int64_t ms);

/*
 * Receives what is there, at most `len` bytes, waiting until the deadline for the first of them.
 * Returns the number of bytes, 0 when the peer has closed, -1 with errno (ETIMEDOUT at the deadline).
 */
ssize_t net_recv(int fd, void *buf, size_t len, int64_t deadline_ns);

/*
 * Sends all parts in order; changes `parts` while it does. At most IOV_MAX parts.
 * Returns 0, or -1 with errno (ETIMEDOUT at the deadline).
 */
int net_send_all(int fd, struct iovec *parts, size_t count, int64_t deadline_ns);

#endif
