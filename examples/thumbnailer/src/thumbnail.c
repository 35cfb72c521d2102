#include "thumbnail.h"

#include <stdbool.h>

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>

#include "trace.h"

enum {
	/* Frames looked at for one thumbnail: ten minutes at 30 frames per second. */
	MAX_FRAMES = 18000,
	/* Larger pictures are refused, as their memory would be the uploader's choice. */
	MAX_PIXELS = 4096 * 4096,
	/* 2 (best) to 31. */
	JPEG_QUALITY = 4,
};

struct video {
	AVFormatContext *format;
	AVCodecContext *decoder;
	int stream;
};

static void video_close(struct video *video)
{
	avcodec_free_context(&video->decoder);
	avformat_close_input(&video->format);
}

/* One thread only, so that the work of a request is the work of its worker. */
static int open_decoder(struct video *video, const AVCodec *codec)
{
	int err;

	video->decoder = avcodec_alloc_context3(codec);
	if (!video->decoder)
		return AVERROR(ENOMEM);
	err = avcodec_parameters_to_context(video->decoder, video->format->streams[video->stream]->codecpar);
	if (err < 0)
		return err;
	video->decoder->thread_count = 1;
	video->decoder->max_pixels = MAX_PIXELS;
	return avcodec_open2(video->decoder, codec, NULL);
}

static int video_open(struct video *video, const char *path)
{
	const AVCodec *codec = NULL;
	int err;

	*video = (struct video){ .stream = -1 };
	err = avformat_open_input(&video->format, path, NULL, NULL);
	if (err < 0)
		return err;
	err = avformat_find_stream_info(video->format, NULL);
	if (err >= 0)
		err = av_find_best_stream(video->format, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0);
	if (err >= 0) {
		video->stream = err;
		err = open_decoder(video, codec);
	}
	if (err < 0)
		video_close(video);
	return err < 0 ? err : 0;
}

/* The asked time in the units of the video stream. */
static int64_t stream_time(const struct video *video, int64_t t_ms)
{
	const AVStream *stream = video->format->streams[video->stream];
	int64_t start = stream->start_time == AV_NOPTS_VALUE ? 0 : stream->start_time;

	return start + av_rescale_q(t_ms, (AVRational){ 1, 1000 }, stream->time_base);
}

/* Gives the decoder the next packet of the video stream, or the end of the file. */
static int feed_decoder(const struct video *video, AVPacket *packet)
{
	for (;;) {
		int err = av_read_frame(video->format, packet);

		if (err == AVERROR_EOF)
			return avcodec_send_packet(video->decoder, NULL);
		if (err < 0)
			return err;
		if (packet->stream_index == video->stream) {
			err = avcodec_send_packet(video->decoder, packet);
			av_packet_unref(packet);
			return err;
		}
		av_packet_unref(packet);
	}
}

/*
 * Decodes from where the seek has left the file (a key frame at or before the target) until the frame which reaches
 * the target; `frame` is then that one, or the video's last. `frames` counts what was decoded.
 */
static int decode_until(const struct video *video, int64_t target, AVFrame *frame, AVFrame *next, AVPacket *packet,
			uint64_t *frames)
{
	while (*frames < MAX_FRAMES) {
		int err = avcodec_receive_frame(video->decoder, next);

		if (err == AVERROR(EAGAIN)) {
			err = feed_decoder(video, packet);
			if (err < 0)
				return err;
			continue;
		}
		if (err == AVERROR_EOF)
			return *frames > 0 ? 0 : AVERROR_INVALIDDATA;
		if (err < 0)
			return err;
		(*frames)++;
		av_frame_unref(frame);
		av_frame_move_ref(frame, next);
		if (frame->best_effort_timestamp != AV_NOPTS_VALUE && frame->best_effort_timestamp >= target)
			return 0;
	}
	return AVERROR(E2BIG);
}

static int decode_at(const struct video *video, int64_t target, AVFrame *frame, uint64_t *frames)
{
	AVFrame *next = av_frame_alloc();
	AVPacket *packet = av_packet_alloc();
	int err = AVERROR(ENOMEM);

	if (next && packet)
		err = decode_until(video, target, frame, next, packet, frames);
	av_packet_free(&packet);
	av_frame_free(&next);
	return err;
}

/* Scales `in` to `width` pixels, the height by its shape, both even, in the pixel format JPEG has. */
static int scale(const AVFrame *in, int width, AVFrame *out)
{
	int64_t height = av_rescale(width, in->height, in->width) & ~(int64_t)1;
	struct SwsContext *scaler;
	int err;

	if (height < 2 || height * width > MAX_PIXELS)
		return AVERROR(ERANGE);
	out->format = AV_PIX_FMT_YUVJ420P;
	out->width = width & ~1;
	out->height = (int)height;
	out->color_range = AVCOL_RANGE_JPEG;
	err = av_frame_get_buffer(out, 0);
	if (err < 0)
		return err;
	scaler = sws_getContext(in->width, in->height, in->format, out->width, out->height, out->format,
				SWS_BILINEAR, NULL, NULL, NULL);
	if (!scaler)
		return AVERROR(ENOSYS);
	err = sws_scale(scaler, (const uint8_t *const *)in->data, in->linesize, 0, in->height, out->data,
			out->linesize);
	sws_freeContext(scaler);
	return err < 0 ? err : 0;
}

static int encode_picture(AVFrame *picture, AVPacket *packet)
{
	const AVCodec *codec = avcodec_find_encoder(AV_CODEC_ID_MJPEG);
	AVCodecContext *encoder = codec ? avcodec_alloc_context3(codec) : NULL;
	int err;

	if (!encoder)
		return AVERROR_ENCODER_NOT_FOUND;
	encoder->width = picture->width;
	encoder->height = picture->height;
	encoder->pix_fmt = picture->format;
	encoder->color_range = picture->color_range;
	encoder->time_base = (AVRational){ 1, 25 };
	encoder->thread_count = 1;
	encoder->flags |= AV_CODEC_FLAG_QSCALE;
	encoder->global_quality = FF_QP2LAMBDA * JPEG_QUALITY;
	picture->quality = encoder->global_quality;
	picture->pts = 0;
	err = avcodec_open2(encoder, codec, NULL);
	if (err >= 0)
		err = avcodec_send_frame(encoder, picture);
	if (err >= 0)
		err = avcodec_receive_packet(encoder, packet);
	avcodec_free_context(&encoder);
	return err < 0 ? err : 0;
}

static int scale_and_encode(const AVFrame *frame, int width, struct thumbnail *out)
{
	AVFrame *picture = av_frame_alloc();
	AVPacket *packet = av_packet_alloc();
	int err = AVERROR(ENOMEM);

	if (picture && packet)
		err = scale(frame, width, picture);
	if (err == 0)
		err = encode_picture(picture, packet);
	av_frame_free(&picture);
	if (err < 0) {
		av_packet_free(&packet);
		return err;
	}
	*out = (struct thumbnail){ .packet = packet, .data = packet->data, .len = (size_t)packet->size };
	return 0;
}

/* The phases seek, decode and encode on an open video. */
static int make_from(const struct video *video, int64_t t_ms, int width, AVFrame *frame, uint64_t request_id,
		     struct thumbnail *out)
{
	int64_t target = stream_time(video, t_ms);
	uint64_t frames = 0;
	int err;

	lttng_ust_tracepoint(thumbnailer, seek_begin, request_id);
	err = av_seek_frame(video->format, video->stream, target, AVSEEK_FLAG_BACKWARD);
	lttng_ust_tracepoint(thumbnailer, seek_end, request_id, err, (uint64_t)t_ms);
	if (err < 0)
		return err;

	lttng_ust_tracepoint(thumbnailer, decode_begin, request_id);
	err = decode_at(video, target, frame, &frames);
	lttng_ust_tracepoint(thumbnailer, decode_end, request_id, err, frames);
	if (err < 0)
		return err;

	lttng_ust_tracepoint(thumbnailer, encode_begin, request_id);
	err = scale_and_encode(frame, width, out);
	lttng_ust_tracepoint(thumbnailer, encode_end, request_id, err, (uint64_t)out->len);
	return err;
}

int thumbnail_make(const char *path, int64_t t_ms, int width, uint64_t request_id, struct thumbnail *out)
{
	struct video video;
	AVFrame *frame;
	int err;

	*out = (struct thumbnail){ .data = NULL };
	lttng_ust_tracepoint(thumbnailer, open_begin, request_id);
	err = video_open(&video, path);
	lttng_ust_tracepoint(thumbnailer, open_end, request_id, err, err < 0 ? 0 : 1);
	if (err < 0)
		return err;

	frame = av_frame_alloc();
	err = frame ? make_from(&video, t_ms, width, frame, request_id, out) : AVERROR(ENOMEM);
	av_frame_free(&frame);
	video_close(&video);
	return err;
}

void thumbnail_free(struct thumbnail *thumbnail)
{
	AVPacket *packet = thumbnail->packet;

	av_packet_free(&packet);
	*thumbnail = (struct thumbnail){ .data = NULL };
}

int64_t thumbnail_video_duration_ms(const char *path)
{
	struct video video;
	int64_t duration_us;
	int err = video_open(&video, path);

	if (err < 0)
		return err;
	duration_us = video.format->duration;
	video_close(&video);
	return duration_us == AV_NOPTS_VALUE || duration_us <= 0 ? AVERROR_INVALIDDATA : duration_us / 1000;
}
