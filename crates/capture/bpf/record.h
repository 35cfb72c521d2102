/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* What the programs put into the ring buffers, in host byte order; `src/kernel/record.rs` reads it.
 *
 * Every record is a `head` and the body of its kind:
 *   CALL_ENTRY  __u64 args[call.args]; then, by the call's table entry, each string argument with its NUL
 *               (just the NUL when user memory could not be read), and for a socket address __u32 len and the bytes
 *   CALL_EXIT   __s64 ret; then, by the table entry, __s32 fds[2]; __u32 len and the bytes of a socket address;
 *               each string argument again (empty unless the copy at entry failed); and for calls that open a
 *               file a byte 1 and the names from the file up to the root, each with its NUL, ended by an empty
 *               name, or a byte 0 when they are not known
 *   others      the struct of that name below; EXEC and DUMP_FILE end with a string and its NUL
 */
#pragma once

enum record_kind {
	CALL_ENTRY = 1,
	CALL_EXIT = 2,
	SWITCH = 3,
	WAKING = 4,
	WAKEUP = 5,
	WAKEUP_NEW = 6,
	FORK = 7,
	EXEC = 8,
	EXIT = 9,
	FREE = 10,
	MIGRATE = 11,
	DUMP_START = 12,
	DUMP_TASK = 13,
	DUMP_FILE = 14,
	DUMP_END = 15,
	IRQ_ENTRY = 16,
	IRQ_EXIT = 17,
	SOFTIRQ_ENTRY = 18,
	SOFTIRQ_EXIT = 19,
	SOFTIRQ_RAISE = 20,
	BLOCK_ISSUE = 21,
	BLOCK_COMPLETE = 22,
	BLOCK_REMAP = 23,
	PACKET_SEND = 24,
	PACKET_RECEIVE = 25,
	PAGE_ALLOC = 26,
	PAGE_FREE = 27,
	DUMP_DISK = 28,
	HOTPLUG = 29,
};

#define COMM_BYTES 16

struct head {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u64 files;   /* address of the current task's file table */
	__s32 tid;
	__s32 tgid;
	char comm[COMM_BYTES];
	__u16 kind;
	__u16 compat; /* a 32-bit system call */
	__s32 call;   /* system call number */
};

struct switch_body {
	char next_comm[COMM_BYTES];
	__s64 prev_state;
	__s32 prev_prio;
	__s32 next_tid;
	__s32 next_tgid;
	__s32 next_prio;
};

struct wake_body {
	char comm[COMM_BYTES];
	__s32 tid;
	__s32 prio;
	__s32 target_cpu;
	__s32 in_interrupt;
};

struct fork_body {
	char child_comm[COMM_BYTES];
	__u64 child_files;
	__s32 child_tid;
	__s32 child_tgid;
};

struct exec_body {
	__s32 tid;
	__s32 old_tid;
};

struct task_body { /* EXIT, FREE */
	char comm[COMM_BYTES];
	__s32 tid;
	__s32 prio;
	__s32 group_dead;
	__s32 unused;
};

struct migrate_body {
	char comm[COMM_BYTES];
	__s32 tid;
	__s32 prio;
	__s32 orig_cpu;
	__s32 dest_cpu;
};

struct hotplug_body {
	__u32 cpu;
	__s32 target; /* the state that the CPU shall come to */
	__s32 step;
	__u32 unused;
};

#define IRQ_NAME_BYTES 32

struct irq_body { /* IRQ_ENTRY, IRQ_EXIT */
	char name[IRQ_NAME_BYTES]; /* of the handler; empty at the exit */
	__s32 irq;
	__s32 ret; /* at the exit */
};

struct softirq_body { /* SOFTIRQ_ENTRY, SOFTIRQ_EXIT, SOFTIRQ_RAISE */
	__u32 vec;
	__u32 unused;
};

struct block_body { /* BLOCK_ISSUE, BLOCK_COMPLETE */
	__u64 sector;
	__u32 dev;
	__u32 sectors;
	__u32 flags; /* cmd_flags of the request */
	__s32 error; /* at its completion */
};

struct remap_body {
	__u64 sector;
	__u64 old_sector;
	__u32 dev;
	__u32 old_dev;
	__u32 sectors;
	__u32 flags; /* bi_opf of the bio */
};

#define INTERFACE_BYTES 16

struct packet_body { /* PACKET_SEND, PACKET_RECEIVE */
	__u64 skb;
	__u32 bytes;
	__s32 rc; /* of the driver, when sent */
	char interface[INTERFACE_BYTES];
};

struct page_body { /* PAGE_ALLOC, PAGE_FREE */
	__u32 order;
	__u32 gfp_flags; /* when allocated */
};

#define DISK_NAME_BYTES 32

struct dump_disk_body {
	__u32 dev;
	__u32 unused;
	char name[DISK_NAME_BYTES];
};

struct dump_task_body {
	char name[COMM_BYTES];
	__u64 files;
	__s32 tid;
	__s32 tgid;
	__s32 ppid;
	__s32 type;
	__s32 status;
	__s32 cpu;
};

#define UNIX_NAME_BYTES 108

struct dump_file_body {
	__u64 files;
	__s32 tgid;
	__s32 fd;
	__u32 flags;
	__u32 fmode;
	__u16 family; /* 0 unless a socket */
	__u16 type;
	__u16 local_port; /* host byte order */
	__u16 peer_port;
	__u8 local[16];
	__u8 peer[16];
	__u32 unix_name_len; /* bytes of the name: abstract names begin with NUL */
	__u32 unused;
	char unix_name[UNIX_NAME_BYTES];
	__u32 unused2;
};

/* What is special about one system call; filled in from the call table before the programs are loaded. */
struct call {
	__u8 args;         /* how many; 0 to 6 */
	__u8 known;        /* in the table at all */
	__u8 strings;      /* bit per argument that is a string */
	__u8 sockaddr;     /* 1 + argument read at entry */
	__u8 sockaddr_out; /* 1 + argument read at exit */
	__u8 fds_out;      /* 1 + argument read at exit */
	__u8 opens;        /* success gives the descriptor of a file */
	__u8 unused;
};

#define CALLS 512

/* One for each CPU, read by user space through the mapped `.bss`. */
#define CPUS 1024
struct cpu {
	__u64 discarded;     /* records the ring could not take */
	__u64 bytes_unwoken; /* written since the reader was last woken */
	__u64 unused[6];     /* one cache line each */
};
