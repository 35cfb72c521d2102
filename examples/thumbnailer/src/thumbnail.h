/* One frame of a video as a JPEG picture. Everything happens in the calling thread. */
#ifndef THUMBNAIL_H
#define THUMBNAIL_H

#include <stddef.h>
#include <stdint.h>

enum {
	THUMBNAIL_MIN_WIDTH = 16,
	THUMBNAIL_MAX_WIDTH = 1920,
	THUMBNAIL_DEFAULT_WIDTH = 320,
};

/* A JPEG file in memory, or nothing (data NULL) before thumbnail_make() and after thumbnail_free(). */
struct thumbnail {
	void *packet;
	const uint8_t *data;
	size_t len;
};

/* Length of the video in milliseconds, or a negative AVERROR code when it cannot be opened as one. */
int64_t thumbnail_video_duration_ms(const char *video);

/*
 * Opens the video, seeks to `t_ms`, decodes up to the frame shown then (the last one, if the video ends before),
 * scales it to `width` pixels keeping its shape, and encodes it. Writes the begin and end events of the phases open,
 * seek, decode and encode with `request_id`.
 *
 * Returns 0, or a negative AVERROR code; `out` needs thumbnail_free() only after 0.
 */
int thumbnail_make(const char *video, int64_t t_ms, int width, uint64_t request_id, struct thumbnail *out);

void thumbnail_free(struct thumbnail *thumbnail);

#endif
