/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* What the sampling program shares with user space, in host byte order; `src/profile/sample.rs` reads the samples.
 *
 * A sample is a `sample_head`, its user frames, its kernel frames (8 bytes each, the innermost first), then `stack_bytes`
 * of the user stack from its stack pointer on, then `python_bytes` of the interpreter's frames. User frames are addresses
 * inside the call: one before where it returns to.
 */
#pragma once

#define COMM_BYTES 16
#define MAX_KERNEL_FRAMES 127
#define MAX_USER_FRAMES 1024
#define MAX_STACK_BYTES (64 << 10)

/* How the walk over the user stack ended. */
enum end {
	END_NONE = 0,       /* a thread of the kernel: no user stack */
	END_ROOT = 1,       /* the thread's first function */
	END_NO_PROCESS = 2, /* nothing is known of the process yet */
	END_NO_MAPPING = 3, /* code of no known file */
	END_NO_RULE = 4,    /* its file says nothing of it */
	END_NO_MEMORY = 5,  /* memory is not there */
	END_LOOP = 6,       /* the caller's frame is not above */
	END_TOO_DEEP = 7,   /* more than MAX_USER_FRAMES */
	END_NOT_64_BIT = 8, /* a 32-bit process */
	END_LATE = 9,       /* the thread went on before its stack was walked */
};

struct sample_head {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u64 process_start_ns; /* since boot */
	__u64 weight_ns; /* the time that the sample stands for, on the CPU or off it */
	__u64 known_ns; /* until when what was known of the process holds: CLOCK_MONOTONIC */
	__u64 cgroup;
	__u64 pc; /* the user registers where the walk began */
	__u64 sp;
	__u64 fp;
	__u64 lr; /* aarch64 */
	__s32 tid;
	__s32 tgid;
	__u32 cpu;
	__u16 kernel_frames;
	__u16 user_frames;
	__u32 stack_bytes;
	__u8 end;
	__u8 off_cpu;
	__u16 python_records;
	__u32 python_bytes;
	__u8 python_end;
	__u8 python_minor; /* of the version */
	__u16 unused;
	char comm[COMM_BYTES];
	__u8 trace_id[16]; /* of the span that the thread is in, as it tells; zeros: none */
	__u8 span_id[8];
};

/* Where the threads of a process have the pointer to the span that they are in. */
struct span_place {
	__u64 known_ns;    /* until when this holds */
	__s64 offset;      /* from the thread pointer, or from where the module's storage begins */
	__u32 module;      /* 0: it is the thread pointer */
	__u32 entry_bytes; /* of the thread's vector of modules */
};
#define MAX_SPAN_PLACES 16384

/* What the pointer leads to: OTEP 4947, without what follows. */
struct thread_context {
	__u8 trace_id[16];
	__u8 span_id[8];
	__u8 valid;
	__u8 flags;
	__u16 attribute_bytes;
};

/* How the walk over the frames of CPython ended. */
enum python_end {
	PYTHON_NONE = 0,         /* not done: no interpreter, or one of which nothing is known */
	PYTHON_ROOT = 1,         /* the thread's first function */
	PYTHON_NO_FRAMES = 2,    /* the thread runs nothing of Python */
	PYTHON_MANY_THREADS = 3, /* not found among the first MAX_PYTHON_THREADS */
	PYTHON_NO_MEMORY = 4,    /* memory is not there */
	PYTHON_TOO_DEEP = 5,     /* more than MAX_PYTHON_FRAMES */
	PYTHON_NO_ROOM = 6,      /* more than MAX_PYTHON_BYTES */
};
#define MAX_PYTHON_THREADS 512
#define MAX_PYTHON_FRAMES 1024
#define MAX_PYTHON_BYTES (32 << 10)
#define MAX_PYTHON_PROCESSES 8192
#define MAX_PYTHON_LAYOUTS 64

/* A frame of CPython, the innermost first. */
struct python_frame {
	__u32 instruction; /* bytes from the code's first one, or its number (up to 3.10); ~0: elsewhere */
	__u16 code;        /* which one of the sample's, counted from 0 as they come */
	__u8 what;
	__u8 unused;
};
#define PYTHON_CODE 1  /* the code follows: it is met for the first time */
#define PYTHON_ENTRY 2 /* the evaluation function was called for this frame */
#define PYTHON_SHIM 4  /* no frame: those before it are of one call of the evaluation function */

/* A code object: behind it the bytes of name, file and line table, padded to 8. */
struct python_code {
	__u32 first_line;
	__u16 name_bytes;
	__u16 file_bytes;
	__u16 lines_bytes;
	__u8 name_width; /* bytes of a character; 0: could not be read */
	__u8 file_width;
	__u32 unused;
};
#define PYTHON_CUT 0x80 /* of a width: the text is longer */
#define MAX_PYTHON_NAME_BYTES 256
#define MAX_PYTHON_FILE_BYTES 512
#define MAX_PYTHON_LINES_BYTES 1024
#define MAX_PYTHON_RECORD_BYTES \
	(sizeof(struct python_frame) + sizeof(struct python_code) + MAX_PYTHON_NAME_BYTES + \
	 MAX_PYTHON_FILE_BYTES + MAX_PYTHON_LINES_BYTES + 8)

/* The interpreter of a process; addresses are the process's. */
struct python {
	__u64 known_ns;     /* until when this holds */
	__u64 interpreters; /* of the pointer to the first one */
	__u64 key;          /* of the key that threads keep theirs by; 0: not known */
	__u64 code_type;
	__u32 layout;
	__u32 has_key; /* the program sets it when a thread was found by its key */
};

/* A stretch of a process's code. The first one of a process only says how many follow, in `begin`, and until when what is
 * known of the process holds, in `end`: CLOCK_MONOTONIC. */
struct mapping {
	__u64 begin;
	__u64 end;
	__u64 moved_by; /* from here to addresses of the file */
	__u64 base;     /* the file's address that its rows count from */
	__u32 table;    /* 0: code without rows that keeps frame pointers */
	__u32 blocks;   /* of the table */
};
#define MAX_MAPPINGS 4096 /* of a process */

/* Rows, sorted by where they start; those behind the last one have the last one's start and rule. */
#define BLOCK_ROWS 64
struct block {
	__u32 start[BLOCK_ROWS];
	__u32 rule[BLOCK_ROWS];
};

/* One for each CPU, read by user space through the mapped `.bss`. */
#define CPUS 1024
struct sampling {
	__u64 runs;         /* how often the clock ran the program: the next four */
	__u64 idle;         /* on the idle thread */
	__u64 unlisted;     /* in a process that is not to be sampled */
	__u64 sent;         /* with a sample in the ring */
	__u64 no_room;      /* with a sample that the ring could not take */
	__u64 stacks;       /* stacks copied */
	__u64 stacks_kept_back; /* stacks not copied because the quota was used up */
	__u64 spent_ns;      /* in making samples */
	__u64 bytes_unwoken; /* written since the reader was last woken */
	__u64 waits;         /* times off the CPU that ended: all below but the time */
	__u64 waits_ns;      /* how long they were together */
	__u64 waits_passed;  /* for which another one stands */
	__u64 waits_sent;    /* with a sample in the ring */
	__u64 waits_no_room; /* with a sample that the ring could not take */
	__u64 waits_kept_back; /* without a sample: the quota was used up */
	__u64 waits_missed; /* without a sample: the one before was being made, or the thread was gone when its stack could be read */
	__u64 waits_unsampled_ns; /* what both would have stood for */
};
