// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
/* Samples of who runs, with the whole stack: the user half is walked here, by rows that user space has worked out of each file's
 * call frame information. `crates/unwind` takes the same steps; its `rule.rs` tells the bits of a rule. */
#include "types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "sample.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile __s32 own_tgid;
/* Only samples of this process and those it starts (which user space lists), or of all. */
const volatile bool only_listed;

struct sampling sampling[CPUS];

/* What a sample of the clock stands for, and how many user frames it has at most; user space changes them. */
__u64 period_ns;
__u32 max_frames;

/* From when on nothing is sampled any more; user space may be busy at that moment. 0: never. */
__u64 end_ns;

/* How many more bytes of stacks may be copied, and how many more samples of times off the CPU made, for all CPUs; user space refills them.
 * Each CPU may go beyond by one stack. */
__s64 stack_quota;

/* When the reader was last woken because of a process of which nothing is known. */
__u64 woken_ns;
__s64 wait_quota;

/* A time off the CPU of this length has a sample of its own; of shorter ones, one in proportion to its length has a sample that stands
 * for so much. User space makes it longer where there would be too many. */
__u64 wait_period_ns;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20); /* and more where there are many CPUs */
} samples SEC(".maps");

struct blocks {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP | BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct block));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__array(values, struct blocks);
} tables SEC(".maps");

struct mappings {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct mapping));
};

/* When a process last began another program, or ended, by its id: what is known of its code is of before. The lowest bit is set when
 * it ended. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __s32);
	__type(value, __u64);
} changed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 32768);
	__type(key, __s32);
	__array(values, struct mappings);
} processes SEC(".maps");

/* The processes to sample when not all are. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __s32);
	__type(value, __u8);
} listed SEC(".maps");

#define FRAME_BYTES (MAX_USER_FRAMES * sizeof(__u64))
#define KERNEL_BYTES (MAX_KERNEL_FRAMES * sizeof(__u64))

/* Where a walk stands. It lies in a map, so that the verifier knows nothing of the numbers: every round then is like the
 * one before for it, also those of a search. */
struct walk {
	__u64 pc;
	__u64 sp;
	__u64 fp;
	__u64 lr; /* aarch64: where the innermost function returns to, unless it has saved that */
	struct mapping mapping; /* of the last frame */
	__u32 low;
	__u32 high;
	__u64 known_ns; /* until when what is known of the process holds */
	__u8 is_exact; /* `pc` is the next instruction to run, and not the one behind a call */
};

#define BODY_BYTES (FRAME_BYTES + KERNEL_BYTES + MAX_STACK_BYTES + MAX_PYTHON_BYTES)

/* Where a walk over frames of CPython stands. */
#define PYTHON_SEEN 256
struct python_walk {
	__u64 thread_pointer;
	__u64 interpreter;
	__u64 thread;
	__u64 frame;
	__u64 code_type;
	__u64 sample; /* counts them */
	__u32 layout;
	__u32 at;     /* where in the body to write */
	__u32 end_at; /* and up to where */
	__u16 codes;
	__u8 end;
	char frame_bytes[128] __attribute__((aligned(8)));
	char code[256];
	char text[80];
	struct python_seen {
		__u64 code;
		__u64 sample;
		__u16 number;
	} seen[PYTHON_SEEN]; /* by code: what was copied already, if its sample is this one */
};

struct scratch {
	struct walk walk;
	struct python_walk python;
	__u32 at; /* bytes of the body that are written */
	struct sample_head head;
	char body[BODY_BYTES];
};

/* A buffer for each CPU and kind of program, because one may interrupt another. Values of a map per CPU are not allowed to be as large. */
enum { CLOCK_SCRATCH, WAIT_SCRATCH, SCRATCHES };
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SCRATCHES); /* as many for each CPU: user space sets it */
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline struct scratch *scratch_of(__u32 kind)
{
	__u32 index = bpf_get_smp_processor_id() * SCRATCHES + kind;
	return bpf_map_lookup_elem(&scratches, &index);
}

#include "arch.h"

/* Finds the mapping of an address; whether there is one. */
static __always_inline __u8 find_mapping(struct walk *walk, __s32 tgid, __u64 at)
{
	struct mapping *first, *found;
	__u32 index = 0;
	__u64 *changed_ns;
	void *mappings;
	if (at - walk->mapping.begin < walk->mapping.end - walk->mapping.begin)
		return END_NONE;
	mappings = bpf_map_lookup_elem(&processes, &tgid);
	first = mappings ? bpf_map_lookup_elem(mappings, &index) : 0;
	if (!first)
		return END_NO_PROCESS;
	changed_ns = bpf_map_lookup_elem(&changed, &tgid);
	if (changed_ns && *changed_ns > first->end)
		return END_NO_PROCESS;
	walk->known_ns = first->end;
	walk->low = 1;
	walk->high = first->begin + 1;
	for (int i = 0; i < 13; i++) { /* log2 MAX_MAPPINGS, and one */
		__u32 low = walk->low, high = walk->high;
		if (low >= high)
			break;
		index = low + (high - low) / 2;
		found = bpf_map_lookup_elem(mappings, &index);
		if (!found)
			return END_NO_MAPPING;
		if (found->begin <= at)
			walk->low = index + 1;
		else
			walk->high = index;
	}
	index = walk->low - 1;
	found = index ? bpf_map_lookup_elem(mappings, &index) : 0;
	if (!found || at >= found->end)
		return END_NO_MAPPING;
	walk->mapping = *found;
	return END_NONE;
}

/* The rule of an address in the last mapping; 0 when there is none. */
static __always_inline __u32 find_rule(struct walk *walk, __u64 at)
{
	__u64 start = at - walk->mapping.moved_by - walk->mapping.base;
	__u32 table = walk->mapping.table, index;
	struct block *block;
	void *blocks;
	if (!table)
		return KEEPS_FRAME_POINTERS;
	blocks = bpf_map_lookup_elem(&tables, &table);
	if (!blocks || start >> 32)
		return 0;
	walk->low = 0;
	walk->high = walk->mapping.blocks;
	for (int i = 0; i < 18; i++) { /* log2 of the most blocks, and one */
		__u32 low = walk->low, high = walk->high;
		if (low >= high)
			break;
		index = low + (high - low) / 2;
		block = bpf_map_lookup_elem(blocks, &index);
		if (!block)
			return 0;
		if (block->start[0] <= start)
			walk->low = index + 1;
		else
			walk->high = index;
	}
	index = walk->low - 1;
	block = bpf_map_lookup_elem(blocks, &index);
	if (!block)
		return 0;
	walk->low = 0;
	for (__u32 half = BLOCK_ROWS / 2; half; half /= 2) {
		index = (walk->low + half) & (BLOCK_ROWS - 1);
		if (block->start[index] <= start)
			walk->low = index;
	}
	return block->rule[walk->low & (BLOCK_ROWS - 1)];
}

struct round {
	struct scratch *s;
};

#include "python.h"
#include "span.h"

static long walk_frame(__u32 number, struct round *round)
{
	struct scratch *s = round->s;
	struct walk *walk = &s->walk;
	__u64 at = walk->pc - !walk->is_exact;
	__u8 end;
	if (number >= MAX_USER_FRAMES)
		return 1;
	((__u64 *)s->body)[number & (MAX_USER_FRAMES - 1)] = at;
	s->head.user_frames = number + 1;
	end = find_mapping(walk, s->head.tgid, at);
	if (!end)
		end = step(walk, find_rule(walk, at));
	s->head.end = end;
	return end != END_NONE;
}

/* Copies what there is of the user stack to the body. How much that is lies in a map, as where a walk stands does. */
static __always_inline void copy_stack(struct scratch *s, struct sampling *cpu)
{
	__u64 sp = s->head.sp;
	__u32 at = s->at;
	barrier_var(at);
	if (at > FRAME_BYTES + KERNEL_BYTES)
		return;
	if (*(volatile __s64 *)&stack_quota <= 0) {
		cpu->stacks_kept_back++;
		return;
	}
	cpu->stacks++;
	/* A read fails as a whole where the stack ends inside of it. */
#pragma unroll
	for (__u32 bytes = MAX_STACK_BYTES; bytes >= 256; bytes /= 2) {
		__u32 to = *(volatile __u32 *)&s->head.stack_bytes;
		barrier_var(to);
		if (to > MAX_STACK_BYTES - bytes)
			continue;
		if (!bpf_probe_read_user(s->body + at + to, bytes, (void *)(sp + to)))
			*(volatile __u32 *)&s->head.stack_bytes = to + bytes;
	}
	s->at = at + s->head.stack_bytes;
	__sync_fetch_and_add(&stack_quota, -(__s64)s->head.stack_bytes);
}

/* Puts a sample into the ring; whether there was room. */
static __always_inline bool emit(struct scratch *s, struct sampling *cpu)
{
	const __u64 WAKE_BYTES = 1 << 20, WAKE_NS = 20000000;
	__u64 bytes = s->at, flags = BPF_RB_NO_WAKEUP;
	barrier_var(bytes);
	if (bytes > sizeof(s->body))
		return false;
	bytes += sizeof(s->head);
	cpu->bytes_unwoken += bytes;
	if (cpu->bytes_unwoken >= WAKE_BYTES) {
		cpu->bytes_unwoken = 0;
		flags = BPF_RB_FORCE_WAKEUP;
	}
	/* The sooner it is known, the more of its samples are whole. */
	if (s->head.end == END_NO_PROCESS && s->head.time_ns - woken_ns > WAKE_NS) {
		woken_ns = s->head.time_ns;
		flags = BPF_RB_FORCE_WAKEUP;
	}
	return !bpf_ringbuf_output(&samples, &s->head, bytes, flags);
}

/* Says of whom a sample is. */
static __always_inline void begin(struct scratch *s, struct task_struct *task)
{
	s->at = 0;
	s->head.time_ns = bpf_ktime_get_ns();
	s->head.process_start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
	s->head.cgroup = bpf_get_current_cgroup_id();
	s->head.tid = task->pid;
	s->head.tgid = task->tgid;
	s->head.cpu = bpf_get_smp_processor_id();
	s->head.user_frames = 0;
	s->head.stack_bytes = 0;
	s->head.known_ns = 0;
	s->head.end = END_NONE;
	s->head.pc = s->head.sp = s->head.fp = s->head.lr = 0;
	bpf_get_current_comm(s->head.comm, sizeof(s->head.comm));
	__builtin_memset(s->head.trace_id, 0, sizeof(s->head.trace_id));
	__builtin_memset(s->head.span_id, 0, sizeof(s->head.span_id));
}

/* Walks the user stack of the thread that runs, from the registers in the head. As it is not static, the verifier looks at it once, and
 * not for each way that leads here. */
__noinline int walk_user(__u32 kind)
{
	struct scratch *s = scratch_of(kind);
	struct round round = { .s = s };
	if (!s)
		return 0;
	read_span(&s->head);
	begin_at(&s->walk, &s->head);
	s->walk.mapping.begin = s->walk.mapping.end = 0;
	s->walk.known_ns = 0;
	s->walk.is_exact = 1;
	bpf_loop(max_frames, walk_frame, &round, 0);
	s->head.known_ns = s->walk.known_ns;
	if (s->head.end == END_NONE)
		s->head.end = END_TOO_DEEP;
	s->at = s->head.user_frames * sizeof(__u64);
	return 0;
}

/* Whether nothing is known of the process, so that its stack is to be walked outside. */
static __always_inline bool is_to_be_copied(struct scratch *s)
{
	return s->head.end == END_NO_PROCESS || s->head.end == END_NO_MAPPING;
}

/* Adds what belongs behind the frames of the body, and hands the sample over. Whether there was room. Not static, as above. */
__noinline int finish(__u32 kind)
{
	struct sampling *cpu = &sampling[bpf_get_smp_processor_id() & (CPUS - 1)];
	struct scratch *s = scratch_of(kind);
	if (!s)
		return 0;
	if (is_to_be_copied(s))
		copy_stack(s, cpu);
	walk_python(s);
	return emit(s, cpu);
}

SEC("perf_event")
int on_clock(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 begin_ns = bpf_ktime_get_ns();
	struct sampling *cpu = &sampling[bpf_get_smp_processor_id() & (CPUS - 1)];
	__u32 at;
	__s32 tgid = task->tgid;
	struct scratch *s;
	long kernel_bytes;
	if (end_ns && begin_ns >= end_ns)
		return 0;
	cpu->runs++;
	if (task->pid == 0) {
		cpu->idle++;
		return 0;
	}
	if (only_listed && (tgid == own_tgid || !bpf_map_lookup_elem(&listed, &tgid))) {
		cpu->unlisted++;
		return 0;
	}
	s = scratch_of(CLOCK_SCRATCH);
	if (!s)
		return 0;
	begin(s, task);
	s->head.weight_ns = period_ns;
	s->head.off_cpu = 0;
	if (task->mm) {
		bool is_64_bit = interrupted_registers(&s->head, ctx, task);
		s->head.end = END_NOT_64_BIT;
		if (is_64_bit)
			walk_user(CLOCK_SCRATCH);
	}
	at = s->at;
	barrier_var(at);
	if (at > FRAME_BYTES)
		return 0;
	kernel_bytes = bpf_get_stack(ctx, s->body + at, KERNEL_BYTES, 0);
	if (kernel_bytes < 0 || kernel_bytes > KERNEL_BYTES)
		kernel_bytes = 0;
	s->head.kernel_frames = kernel_bytes / sizeof(__u64);
	s->at = at + kernel_bytes;
	if (finish(CLOCK_SCRATCH))
		cpu->sent++;
	else
		cpu->no_room++;
	cpu->spent_ns += bpf_ktime_get_ns() - begin_ns;
	return 0;
}

static __always_inline void change(__s32 tgid, bool has_ended)
{
	__u64 now = (bpf_ktime_get_ns() & ~1ULL) | has_ended;
	bpf_map_update_elem(&changed, &tgid, &now, BPF_ANY);
}

static __always_inline bool is_sampled(struct task_struct *task)
{
	__s32 tgid = task->tgid;
	return task->pid && (!only_listed || (tgid != own_tgid && bpf_map_lookup_elem(&listed, &tgid)));
}

/* Whether a program's file is called as CPython's is. */
static __always_inline bool is_python(struct linux_binprm *bprm)
{
	const char NAME[] = "python3";
	char name[sizeof(NAME)] = {};
	const unsigned char *at = BPF_CORE_READ(bprm, file, f_path.dentry, d_name.name);
	if (bpf_probe_read_kernel(name, sizeof(name) - 1, at))
		return false;
#pragma unroll
	for (__u32 i = 0; i < sizeof(NAME); i++)
		if (name[i] != NAME[i])
			return false;
	return true;
}

/* What CPython runs cannot be learnt later: the reader is woken, so that the program is told of it before the first sample. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_tid, struct linux_binprm *bprm)
{
	void *nothing;
	change(task->tgid, false);
	if (is_sampled(task) && is_python(bprm)) {
		nothing = bpf_ringbuf_reserve(&samples, sizeof(__u64), 0);
		if (nothing)
			bpf_ringbuf_discard(nothing, BPF_RB_FORCE_WAKEUP);
	}
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	if (BPF_CORE_READ(task, signal, live.counter) == 0)
		change(task->tgid, true);
	return 0;
}

/* A process that is sampled because it is listed has its children sampled, too. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__s32 from = parent->tgid, to = child->tgid;
	__u8 yes = 1;
	if (only_listed && from != to && bpf_map_lookup_elem(&listed, &from))
		bpf_map_update_elem(&listed, &to, &yes, BPF_ANY);
	return 0;
}

#include "off_cpu.h"
