/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Frames of CPython, read at the moment of the sample with their names: a code object is gone, and another one in its place, as soon as
 * its last function is. `crates/cpython` tells where things lie; `src/profile/python/record.rs` reads what is written here.
 *
 * Included by the sampling program, behind its scratch buffers.
 */
#pragma once

#define PYTHON_OWNER_SHIM 3 /* `FRAME_OWNED_BY_CSTACK` of 3.12 and 3.13, `FRAME_OWNED_BY_INTERPRETER` of 3.14 */

/* Offsets, by version: `crates/cpython/src/layout.rs`. */
enum { PYTHON_OBJECTS, PYTHON_ENTRIES, PYTHON_SHIMS };
struct python_layout {
	__u16 kind;
	__u16 interpreter_next;
	__u16 interpreter_threads;
	__u16 thread_next;
	__u16 thread_id;
	__u16 thread_frame;
	__u16 between_frame;
	__u16 frame_code;
	__u16 frame_previous;
	__u16 frame_instruction;
	__u16 frame_owner;
	__u16 frame_bytes;
	__u16 code_name;
	__u16 code_file;
	__u16 code_first_line;
	__u16 code_lines;
	__u16 code_instructions;
	__u16 code_bytes;
	__u16 object_type;
	__u16 text_length;
	__u16 text_state;
	__u16 text_width_shift;
	__u16 text_ascii_bytes;
	__u16 text_compact_bytes;
	__u16 bytes_length;
	__u16 bytes_data;
	__u16 minor;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PYTHON_LAYOUTS);
	__type(key, __u32);
	__type(value, struct python_layout);
} python_layouts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PYTHON_PROCESSES);
	__type(key, __s32);
	__type(value, struct python);
} pythons SEC(".maps");

/* Reads a word of a structure of the process. */
static __always_inline bool member(__u64 *to, __u64 structure, __u16 offset)
{
	return !bpf_probe_read_user(to, sizeof(*to), (void *)(structure + offset));
}

/* The frame at which a thread stands. */
static __always_inline __u64 innermost_frame(__u64 thread, struct python_layout *layout)
{
	__u64 at;
	if (!member(&at, thread, layout->thread_frame))
		return 0;
	if (layout->between_frame && (!at || !member(&at, at, layout->between_frame - 1)))
		return 0;
	return at;
}

/* Looks at one thread of an interpreter, or goes to the next interpreter. */
static long find_thread(__u32 number, struct round *round)
{
	struct python_walk *walk = &round->s->python;
	struct python_layout *layout = bpf_map_lookup_elem(&python_layouts, &walk->layout);
	__u64 id, next;
	if (!layout)
		return 1;
	if (!walk->thread) {
		if (!walk->interpreter) {
			walk->end = PYTHON_NO_FRAMES;
			return 1;
		}
		if (!member(&walk->thread, walk->interpreter, layout->interpreter_threads) ||
		    !member(&next, walk->interpreter, layout->interpreter_next)) {
			walk->end = PYTHON_NO_MEMORY;
			return 1;
		}
		walk->interpreter = next;
		return 0;
	}
	if (!member(&id, walk->thread, layout->thread_id) || !member(&next, walk->thread, layout->thread_next)) {
		walk->end = PYTHON_NO_MEMORY;
		return 1;
	}
	if (is_thread(id, walk->thread_pointer)) {
		walk->frame = innermost_frame(walk->thread, layout);
		/* A thread may be one of several interpreters; the one that it runs has frames. */
		if (walk->frame) {
			walk->end = PYTHON_NONE;
			return 1;
		}
	}
	walk->thread = next;
	return 0;
}

/* What a thread keeps for a key, as glibc has it: 16 bytes a key, the value behind a number. What is found so is a thread's own only if
 * it says its id. */
static __always_inline __u64 thread_of_key(struct python *python, struct python_walk *walk, struct python_layout *layout)
{
	const __u64 KEYS = 32;
	struct { __u32 is_there, number; } key;
	__u64 thread, id;
	if (!PTHREAD_KEYS || !python->key || bpf_probe_read_user(&key, sizeof(key), (void *)python->key))
		return 0;
	if (!key.is_there || key.number >= KEYS)
		return 0;
	if (!member(&thread, walk->thread_pointer, PTHREAD_KEYS + key.number * 16 + 8) || !thread)
		return 0;
	if (!member(&id, thread, layout->thread_id) || !is_thread(id, walk->thread_pointer))
		return 0;
	return thread;
}

/* Copies a string behind what is copied already. How many bytes a character has, or 0 when it cannot be read. */
static __always_inline __u8 copy_text(struct scratch *s, struct python_layout *layout, __u64 text, __u64 max, __u16 *copied)
{
	struct python_walk *walk = &s->python;
	__u64 head_bytes = layout->text_ascii_bytes, to = walk->at, bytes, length, data;
	__u32 state;
	__u8 width, is_cut = 0;
	*copied = 0;
	barrier_var(head_bytes);
	if (head_bytes > sizeof(walk->text))
		return 0;
	if (bpf_probe_read_user(walk->text, head_bytes, (void *)text))
		return 0;
	length = *(__u64 *)(walk->text + (layout->text_length & 0x38));
	state = *(__u32 *)(walk->text + (layout->text_state & 0x3c));
	state >>= layout->text_width_shift & 31;
	width = state & 7;
	if (!(state & 8) || (width != 1 && width != 2 && width != 4))
		return 0;
	data = text + (state & 16 ? layout->text_ascii_bytes : layout->text_compact_bytes);
	bytes = max;
	if (length * width <= max)
		bytes = length * width;
	else
		is_cut = PYTHON_CUT;
	barrier_var(bytes);
	if (bytes > max)
		return 0;
	barrier_var(to);
	if (to > BODY_BYTES - max)
		return 0;
	if (bpf_probe_read_user(s->body + to, bytes, (void *)data))
		return 0;
	walk->at = to + bytes;
	*copied = bytes;
	return width | is_cut;
}

/* Copies a code object's names and line table behind the frame. */
static __always_inline void copy_code(struct scratch *s, struct python_layout *layout, __u64 code_type, __u64 code)
{
	struct python_walk *walk = &s->python;
	struct python_code head = {};
	__u64 begin = walk->at, bytes = layout->code_bytes, to, length = 0, lines;
	walk->at = begin + sizeof(head);
	barrier_var(bytes);
	if (bytes > sizeof(walk->code))
		return;
	if (!bpf_probe_read_user(walk->code, bytes, (void *)code) &&
	    *(__u64 *)(walk->code + (layout->object_type & 0xf8)) == code_type) {
		head.first_line = *(__u32 *)(walk->code + (layout->code_first_line & 0xfc));
		head.name_width = copy_text(s, layout, *(__u64 *)(walk->code + (layout->code_name & 0xf8)), MAX_PYTHON_NAME_BYTES, &head.name_bytes);
		head.file_width = copy_text(s, layout, *(__u64 *)(walk->code + (layout->code_file & 0xf8)), MAX_PYTHON_FILE_BYTES, &head.file_bytes);
		lines = *(__u64 *)(walk->code + (layout->code_lines & 0xf8));
		if (!member(&length, lines, layout->bytes_length))
			length = 0;
		bytes = MAX_PYTHON_LINES_BYTES;
		if (length < bytes)
			bytes = length;
		to = walk->at;
		barrier_var(bytes);
		barrier_var(to);
		if (bytes <= MAX_PYTHON_LINES_BYTES && to <= BODY_BYTES - MAX_PYTHON_LINES_BYTES &&
		    !bpf_probe_read_user(s->body + to, bytes, (void *)(lines + layout->bytes_data))) {
			head.lines_bytes = bytes;
			walk->at = to + bytes;
		}
	}
	to = begin;
	barrier_var(to);
	if (to > BODY_BYTES - sizeof(head))
		return;
	*(struct python_code *)(s->body + to) = head;
	walk->at = (walk->at + 7) & ~7;
}

/* Goes to the frame that called this one. */
static long walk_python_frame(__u32 number, struct round *round)
{
	struct scratch *s = round->s;
	struct python_walk *walk = &s->python;
	struct python_layout *layout = bpf_map_lookup_elem(&python_layouts, &walk->layout);
	struct python_frame head = {};
	struct python_seen *seen;
	__u64 code, instruction, bytes, to;
	__u8 owner;
	if (!layout)
		return 1;
	if (!walk->frame) {
		walk->end = PYTHON_ROOT;
		return 1;
	}
	if (number >= MAX_PYTHON_FRAMES || number >= max_frames) {
		walk->end = PYTHON_TOO_DEEP;
		return 1;
	}
	bytes = layout->frame_bytes;
	barrier_var(bytes);
	if (bytes > sizeof(walk->frame_bytes))
		return 1;
	if (bpf_probe_read_user(walk->frame_bytes, bytes, (void *)walk->frame)) {
		walk->end = PYTHON_NO_MEMORY;
		return 1;
	}
	to = walk->at;
	barrier_var(to);
	if (to > BODY_BYTES - MAX_PYTHON_RECORD_BYTES || to > walk->end_at) {
		walk->end = PYTHON_NO_ROOM;
		return 1;
	}
	owner = walk->frame_bytes[layout->frame_owner & 0x7f];
	code = *(__u64 *)(walk->frame_bytes + (layout->frame_code & 0x78)) & ~7ULL;
	instruction = *(__u64 *)(walk->frame_bytes + (layout->frame_instruction & 0x78));
	walk->frame = *(__u64 *)(walk->frame_bytes + (layout->frame_previous & 0x78));
	if (layout->kind == PYTHON_SHIMS && owner > PYTHON_OWNER_SHIM)
		return 0;
	if (layout->kind == PYTHON_SHIMS && owner == PYTHON_OWNER_SHIM) {
		head.what = PYTHON_SHIM;
	} else if (layout->kind == PYTHON_OBJECTS) {
		head.what = PYTHON_ENTRY;
		head.instruction = instruction;
	} else {
		if (layout->kind == PYTHON_ENTRIES && owner)
			head.what = PYTHON_ENTRY;
		instruction -= code + layout->code_instructions;
		head.instruction = instruction >> 31 ? ~0U : instruction;
	}
	s->head.python_records++;
	walk->at = to + sizeof(head);
	if (head.what & PYTHON_SHIM) {
		*(struct python_frame *)(s->body + to) = head;
		return 0;
	}
	seen = &walk->seen[(code >> 4 ^ code >> 12) & (PYTHON_SEEN - 1)];
	if (seen->code == code && seen->sample == walk->sample) {
		head.code = seen->number;
		*(struct python_frame *)(s->body + to) = head;
		return 0;
	}
	head.what |= PYTHON_CODE;
	head.code = walk->codes;
	seen->code = code;
	seen->sample = walk->sample;
	seen->number = walk->codes++;
	*(struct python_frame *)(s->body + to) = head;
	copy_code(s, layout, walk->code_type, code);
	return 0;
}

/* Appends the frames of the interpreter that the thread runs to the body. */
static __always_inline void walk_python(struct scratch *s)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct python_walk *walk = &s->python;
	struct round round = { .s = s };
	__s32 tgid = s->head.tgid;
	struct python_layout *layout;
	struct python *python;
	__u64 *changed_ns;
	__u64 thread;
	s->head.python_end = PYTHON_NONE;
	s->head.python_records = 0;
	s->head.python_bytes = 0;
	s->head.python_minor = 0;
	s->head.unused = 0;
	if (s->head.end == END_NONE || s->head.end == END_NOT_64_BIT || s->head.end == END_LATE)
		return;
	python = bpf_map_lookup_elem(&pythons, &tgid);
	if (!python)
		return;
	changed_ns = bpf_map_lookup_elem(&changed, &tgid);
	if (changed_ns && *changed_ns > python->known_ns)
		return;
	walk->layout = python->layout;
	layout = bpf_map_lookup_elem(&python_layouts, &walk->layout);
	if (!layout)
		return;
	s->head.python_minor = layout->minor;
	walk->thread_pointer = thread_pointer(task);
	walk->code_type = python->code_type;
	walk->sample++;
	walk->codes = 0;
	walk->frame = 0;
	walk->at = s->at;
	walk->end_at = walk->at + MAX_PYTHON_BYTES - MAX_PYTHON_RECORD_BYTES;
	walk->end = PYTHON_NONE;
	thread = thread_of_key(python, walk, layout);
	if (thread) {
		python->has_key = 1;
		walk->frame = innermost_frame(thread, layout);
		if (!walk->frame)
			walk->end = PYTHON_NO_FRAMES;
	} else if (python->has_key) {
		walk->end = PYTHON_NO_FRAMES; /* others of the process have one there */
	} else {
		walk->end = PYTHON_MANY_THREADS;
		walk->thread = 0;
		if (!member(&walk->interpreter, python->interpreters, 0))
			walk->end = PYTHON_NO_MEMORY;
		else
			bpf_loop(MAX_PYTHON_THREADS, find_thread, &round, 0);
	}
	if (!walk->end)
		bpf_loop(MAX_PYTHON_FRAMES + 1, walk_python_frame, &round, 0);
	s->head.python_end = walk->end;
	if (s->head.python_records) {
		s->head.python_bytes = walk->at - s->at;
		s->at = walk->at;
	}
}
