#include "queue.h"

void queue_init(struct queue *queue)
{
	*queue = (struct queue){ .closed = false };
	pthread_mutex_init(&queue->lock, NULL);
	pthread_cond_init(&queue->filled, NULL);
}

bool queue_push(struct queue *queue, int fd)
{
	bool taken = false;

	pthread_mutex_lock(&queue->lock);
	if (!queue->closed && queue->length < QUEUE_CAPACITY) {
		queue->fds[(queue->head + queue->length) % QUEUE_CAPACITY] = fd;
		queue->length++;
		taken = true;
		pthread_cond_signal(&queue->filled);
	}
	pthread_mutex_unlock(&queue->lock);
	return taken;
}

int queue_pop(struct queue *queue)
{
	int fd = -1;

	pthread_mutex_lock(&queue->lock);
	while (queue->length == 0 && !queue->closed)
		pthread_cond_wait(&queue->filled, &queue->lock);
	if (queue->length > 0) {
		fd = queue->fds[queue->head];
		queue->head = (queue->head + 1) % QUEUE_CAPACITY;
		queue->length--;
	}
	pthread_mutex_unlock(&queue->lock);
	return fd;
}

void queue_close(struct queue *queue)
{
	pthread_mutex_lock(&queue->lock);
	queue->closed = true;
	pthread_cond_broadcast(&queue->filled);
	pthread_mutex_unlock(&queue->lock);
}
