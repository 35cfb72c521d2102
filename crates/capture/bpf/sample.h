/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* What the sampling program shares with user space, in host byte order; `src/profile/record.rs` reads the samples.
 *
 * A sample is a `sample_head`, its user frames, its kernel frames (8 bytes each, the innermost first), then `stack_bytes`
 * of the user stack from its stack pointer on. User frames are addresses inside the call: one before where it returns to.
 */
#pragma once

#define COMM_BYTES 16
#define MAX_KERNEL_FRAMES 127
#define MAX_USER_FRAMES 1024
#define MAX_STACK_BYTES (16 << 10)

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
	__s32 tid;
	__s32 tgid;
	__u32 cpu;
	__u16 kernel_frames;
	__u16 user_frames;
	__u32 stack_bytes;
	__u8 end;
	__u8 off_cpu;
	__u16 unused;
	char comm[COMM_BYTES];
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
