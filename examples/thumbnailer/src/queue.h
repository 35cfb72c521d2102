/* Accepted connections on their way to the workers: a ring of fixed size under one lock. */
#ifndef QUEUE_H
#define QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum { QUEUE_CAPACITY = 64 };

struct queue {
	pthread_mutex_t lock;
	pthread_cond_t filled;
	int fds[QUEUE_CAPACITY];
	size_t head;
	size_t length;
	bool closed;
};

void queue_init(struct queue *queue);

/* Hands over a connection. False, and the connection stays the caller's, when the queue is full or closed. */
bool queue_push(struct queue *queue, int fd);

/* Waits for a connection. -1 once the queue is closed and empty. */
int queue_pop(struct queue *queue);

/* No more connections; those inside are still handed out. */
void queue_close(struct queue *queue);

#endif
