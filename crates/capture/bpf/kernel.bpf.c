// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
/* Kernel tracing: system calls, scheduling, process life, interrupts, disks, network, memory and the state dump, one
 * ring buffer per CPU.
 *
 * A record's time is read right before it is written to the ring, so that only an interrupt between these two
 * steps can put a later time in front of an earlier one; the reader sorts that out. */
#include "types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "record.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile __s32 own_tgid;
const volatile bool filter_processes; /* look into `processes` at all */
const volatile bool only_listed;      /* else: all but those listed with 0 */
const volatile __u64 wake_bytes = 1 << 20;
const volatile struct call calls[CALLS];

/* From a CPU's run queue to its preemption count, in bytes; 0 when unknown. Both are per-CPU variables, so the
 * distance is the same on every CPU; kernels without CONFIG_KALLSYMS_ALL do not give their addresses. */
const volatile __s64 preempt_count_from_rq;

struct cpu cpus[CPUS];

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, CPUS);
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps");

/* Process id to 1 (trace its calls) or 0 (leave them out). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __s32);
	__type(value, __u8);
} processes SEC(".maps");

/* Threads whose call began with a string in memory that was not there yet, to read again at the exit. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __s32);
	__type(value, __s32);
} faulted SEC(".maps");

#define PATH_BYTES 4096
#define STRINGS_AT 0x3fff
#define SOCKADDR_BYTES 128
#define WALK_STEPS 48
#define NAME_BYTES 256

struct scratch {
	struct head head;
	char body[STRINGS_AT + 1 + PATH_BYTES];
};

/* A buffer for each kind of program, because one may interrupt another. */
enum { ENTRY_SCRATCH, EXIT_SCRATCH, EXEC_SCRATCH, DUMP_SCRATCH, SCRATCHES };
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline struct scratch *scratch(__u32 which)
{
	return bpf_map_lookup_elem(&scratches, &which);
}

/* Serving an interrupt, soft or hard, as in include/linux/preempt.h; having bottom halves off is not serving one. */
static __always_inline bool in_interrupt(void)
{
	const __u32 serving = 0x00ff0000 | 0x00000100;
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 count = 0;
	if (preempt_count_from_rq && bpf_core_field_exists(task->se.cfs_rq)) {
		void *rq = BPF_CORE_READ(task, se.cfs_rq, rq);
		bpf_probe_read_kernel(&count, sizeof(count), rq + preempt_count_from_rq);
	}
	return count & serving;
}

static __always_inline void fill_head(struct head *head, __u16 kind, __s32 call)
{
	struct task_struct *task = bpf_get_current_task_btf();
	head->files = (__u64)task->files;
	head->tid = task->pid;
	head->tgid = task->tgid;
	bpf_get_current_comm(head->comm, sizeof(head->comm));
	head->kind = kind;
	head->compat = 0;
	head->call = call;
}

/* Writes one record, or counts it as discarded. */
static __always_inline void emit(struct head *head, __u64 bytes)
{
	__u32 number = bpf_get_smp_processor_id();
	struct cpu *cpu = &cpus[number & (CPUS - 1)];
	void *ring = bpf_map_lookup_elem(&rings, &number);
	__u64 flags = BPF_RB_NO_WAKEUP;
	if (!ring) {
		__sync_fetch_and_add(&cpu->discarded, 1);
		return;
	}
	cpu->bytes_unwoken += bytes;
	if (cpu->bytes_unwoken >= wake_bytes) {
		cpu->bytes_unwoken = 0;
		flags = BPF_RB_FORCE_WAKEUP;
	}
	head->time_ns = bpf_ktime_get_ns();
	if (bpf_ringbuf_output(ring, head, bytes, flags))
		__sync_fetch_and_add(&cpu->discarded, 1);
}

static __always_inline bool wanted(__s32 tgid)
{
	__u8 *listed;
	if (tgid == own_tgid)
		return false;
	if (!filter_processes)
		return true;
	listed = bpf_map_lookup_elem(&processes, &tgid);
	return listed ? *listed : !only_listed;
}

#if defined(__TARGET_ARCH_arm64)

/* The descriptors of system calls are only meaningful with the kernel's own table. */
static __always_inline bool is_compat(struct task_struct *task)
{
	const unsigned long TIF_32BIT = 1 << 22; /* arch/arm64/include/asm/thread_info.h */
	return task->thread_info.flags & TIF_32BIT;
}

static __always_inline long call_number(struct pt_regs *regs)
{
	return regs->syscallno;
}

static __always_inline void load_arguments(struct pt_regs *regs, unsigned long *args)
{
	args[0] = regs->orig_x0;
	args[1] = regs->regs[1];
	args[2] = regs->regs[2];
	args[3] = regs->regs[3];
	args[4] = regs->regs[4];
	args[5] = regs->regs[5];
	args[6] = args[7] = 0;
}

#else

/* The descriptors of system calls are only meaningful with the kernel's own table. */
static __always_inline bool is_compat(struct task_struct *task)
{
	const __u32 TS_COMPAT = 2; /* arch/x86/include/asm/thread_info.h */
	return task->thread_info.status & TS_COMPAT;
}

static __always_inline long call_number(struct pt_regs *regs)
{
	return (long)regs->orig_ax;
}

static __always_inline void load_arguments(struct pt_regs *regs, unsigned long *args)
{
	args[0] = regs->di;
	args[1] = regs->si;
	args[2] = regs->dx;
	args[3] = regs->r10;
	args[4] = regs->r8;
	args[5] = regs->r9;
	args[6] = args[7] = 0;
}

#endif

static __always_inline unsigned long argument(const unsigned long *args, __u32 number)
{
	return args[number & 7];
}

/* Appends a user string at `at` and returns the place behind its NUL; an unreadable one becomes empty. */
static __always_inline __u32 append_string(struct scratch *s, __u32 at, unsigned long user, bool *fault)
{
	char *to;
	long len;
	at &= STRINGS_AT;
	to = s->body + at;
	len = bpf_probe_read_user_str(to, PATH_BYTES, (void *)user);
	if (len <= 0 || len > PATH_BYTES) {
		if (user)
			*fault = true;
		*to = 0;
		return at + 1;
	}
	return at + (__u32)len;
}

static __always_inline __u32 append_strings(struct scratch *s, __u32 at, __u8 which, const unsigned long *args, bool *fault)
{
#pragma unroll
	for (__u32 i = 0; i < 6; i++)
		if (which & (1 << i))
			at = append_string(s, at, args[i], fault);
	return at;
}

static __always_inline __u32 append_sockaddr(struct scratch *s, __u32 at, unsigned long user, __u32 announced)
{
	__u64 len = announced > SOCKADDR_BYTES ? SOCKADDR_BYTES : announced;
	barrier_var(len);
	len &= 2 * SOCKADDR_BYTES - 1; /* for the verifier, which lost the bound above */
	at &= STRINGS_AT;
	if (!user || bpf_probe_read_user(s->body + at + 4, len, (void *)user))
		len = 0;
	*(__u32 *)(s->body + at) = len;
	return at + 4 + len;
}

static __always_inline void emit_scratch(struct scratch *s, __u32 body_bytes)
{
	if (body_bytes <= STRINGS_AT + PATH_BYTES)
		emit(&s->head, sizeof(struct head) + body_bytes);
}

struct call_record {
	struct head head;
	__u64 args[6];
};

SEC("tp_btf/sys_enter")
int BPF_PROG(on_sys_enter, struct pt_regs *regs, long id)
{
	struct task_struct *task = bpf_get_current_task_btf();
	unsigned long args[8];
	const volatile struct call *call;
	__u32 args_bytes;
	struct scratch *s;
	bool fault = false;
	__u32 at;

	if (!wanted(task->tgid))
		return 0;
	load_arguments(regs, args);
	call = &calls[id & (CALLS - 1)];
	if (id < 0 || id >= CALLS || !call->known || is_compat(task)) {
		struct call_record record = {};
		fill_head(&record.head, CALL_ENTRY, id);
		record.head.compat = is_compat(task);
		__builtin_memcpy(record.args, args, sizeof(record.args));
		emit(&record.head, sizeof(record));
		return 0;
	}
	args_bytes = (call->args & 7) * sizeof(__u64);
	if (args_bytes > 6 * sizeof(__u64))
		return 0;
	if (!call->strings && !call->sockaddr) {
		struct call_record record = {};
		fill_head(&record.head, CALL_ENTRY, id);
		__builtin_memcpy(record.args, args, sizeof(record.args));
		emit(&record.head, sizeof(struct head) + args_bytes);
		return 0;
	}
	s = scratch(ENTRY_SCRATCH);
	if (!s)
		return 0;
	fill_head(&s->head, CALL_ENTRY, id);
	__builtin_memcpy(s->body, args, 6 * sizeof(__u64));
	at = args_bytes;
	if (call->strings)
		at = append_strings(s, at, call->strings, args, &fault);
	if (call->sockaddr)
		at = append_sockaddr(s, at, argument(args, call->sockaddr - 1), argument(args, call->sockaddr));
	if (fault) {
		__s32 tid = task->pid, number = id;
		bpf_map_update_elem(&faulted, &tid, &number, BPF_ANY);
	}
	emit_scratch(s, at);
	return 0;
}

struct walk {
	struct scratch *s;
	__u32 at;
	struct dentry *dentry;
	struct mount *mount;
};

/* One step from a file towards the root: a name, or from the root of a mount to the place it is mounted on. */
static long walk_step(__u32 step, struct walk *walk)
{
	struct mount *mount = walk->mount;
	struct dentry *dentry = walk->dentry;
	struct dentry *root = BPF_CORE_READ(mount, mnt.mnt_root);
	struct dentry *parent = BPF_CORE_READ(dentry, d_parent);
	long len;
	if (dentry == root || dentry == parent) {
		struct mount *above = BPF_CORE_READ(mount, mnt_parent);
		if (above == mount || dentry != root)
			return 1;
		walk->dentry = BPF_CORE_READ(mount, mnt_mountpoint);
		walk->mount = above;
		return 0;
	}
	walk->at &= STRINGS_AT;
	len = bpf_probe_read_kernel_str(walk->s->body + walk->at, NAME_BYTES, BPF_CORE_READ(dentry, d_name.name));
	if (len <= 1)
		return 1;
	walk->at += len;
	walk->dentry = parent;
	return 0;
}

/* Appends 1 and the names from the file behind `fd` up to the root, then the empty name that ends them; or just 0
 * when there is no such file or it is too deep. */
static __always_inline __u32 append_names(struct scratch *s, __u32 at, struct task_struct *task, long fd)
{
	struct walk walk = { .s = s, .at = at + 1 };
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **slots = BPF_CORE_READ(table, fd);
	struct file *file = 0;
	struct vfsmount *mnt;
	at &= STRINGS_AT;
	s->body[at] = 0;
	if (fd >= 0 && fd < BPF_CORE_READ(table, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), &slots[fd]);
	if (!file)
		return at + 1;
	walk.dentry = BPF_CORE_READ(file, f_path.dentry);
	mnt = BPF_CORE_READ(file, f_path.mnt);
	walk.mount = (void *)mnt - bpf_core_field_offset(struct mount, mnt);
	if (bpf_loop(WALK_STEPS, walk_step, &walk, 0) >= WALK_STEPS)
		return at + 1;
	s->body[at] = 1;
	walk.at &= STRINGS_AT;
	s->body[walk.at] = 0;
	return walk.at + 1;
}

/* The body of an exit that carries more than the return value. */
static __always_inline void emit_full_exit(struct task_struct *task, struct pt_regs *regs, const volatile struct call *call, __s32 id, long ret)
{
	struct scratch *s = scratch(EXIT_SCRATCH);
	unsigned long args[8];
	__u32 at = sizeof(__s64);
	if (!s)
		return;
	fill_head(&s->head, CALL_EXIT, id);
	load_arguments(regs, args);
	*(__s64 *)s->body = ret;
	if (call->fds_out) {
		__u64 *fds = (__u64 *)(s->body + at);
		*fds = ~0ull;
		if (ret >= 0)
			bpf_probe_read_user(fds, sizeof(*fds), (void *)argument(args, call->fds_out - 1));
		at += sizeof(*fds);
	}
	if (call->sockaddr_out) {
		__u32 len = 0;
		if (ret >= 0)
			bpf_probe_read_user(&len, sizeof(len), (void *)argument(args, call->sockaddr_out));
		at = append_sockaddr(s, at, argument(args, call->sockaddr_out - 1), len);
	}
	if (call->strings) {
		__s32 tid = task->pid;
		__s32 *number = bpf_map_lookup_elem(&faulted, &tid);
		bool fault = false;
		if (number) {
			__u8 which = *number == id ? call->strings : 0;
			bpf_map_delete_elem(&faulted, &tid);
			if (which) {
				at = append_strings(s, at, call->strings, args, &fault);
				goto strings_done;
			}
		}
#pragma unroll
		for (__u32 i = 0; i < 6; i++)
			if (call->strings & (1 << i))
				s->body[at++ & STRINGS_AT] = 0;
	}
strings_done:
	if (call->opens)
		at = append_names(s, at, task, ret);
	emit_scratch(s, at);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_sys_exit, struct pt_regs *regs, long ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	long id = call_number(regs);
	const volatile struct call *call = &calls[id & (CALLS - 1)];
	struct call_record record = {};
	if (!wanted(task->tgid))
		return 0;
	if (id >= 0 && id < CALLS && call->known && !is_compat(task) &&
	    (call->strings || call->sockaddr_out || call->fds_out || call->opens)) {
		emit_full_exit(task, regs, call, id, ret);
		return 0;
	}
	fill_head(&record.head, CALL_EXIT, id);
	record.head.compat = is_compat(task);
	record.args[0] = ret;
	emit(&record.head, sizeof(struct head) + sizeof(__u64));
	return 0;
}

static __always_inline void read_comm(char *to, struct task_struct *task)
{
	bpf_probe_read_kernel(to, COMM_BYTES, task->comm);
}

/* LTTng counts priorities from the first that is not real-time. */
static __always_inline __s32 prio(struct task_struct *task)
{
	return task->prio - 100;
}

/* The state as user space knows it: one bit, the highest, of include/linux/sched.h TASK_REPORT. */
static __always_inline __s64 reported_state(__u32 state, __u32 exit_state)
{
	const __u32 TASK_IDLE = 0x402;
	__u32 bits = (state | exit_state) & 0x7f;
	if ((state & TASK_IDLE) == TASK_IDLE)
		return 0x80;
#pragma unroll
	for (__u32 bit = 0x40; bit; bit >>= 1)
		if (bits & bit)
			return bit;
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct {
		struct head head;
		struct switch_body body;
	} record = {};
	fill_head(&record.head, SWITCH, 0);
	record.body.prev_state = preempt ? 0 : reported_state(prev_state, prev->exit_state);
	record.body.prev_prio = prio(prev);
	read_comm(record.body.next_comm, next);
	record.body.next_tid = next->pid;
	record.body.next_tgid = next->tgid;
	record.body.next_prio = prio(next);
	emit(&record.head, sizeof(record));
	return 0;
}

static __always_inline int emit_wake(__u16 kind, struct task_struct *task)
{
	struct {
		struct head head;
		struct wake_body body;
	} record = {};
	fill_head(&record.head, kind, 0);
	read_comm(record.body.comm, task);
	record.body.tid = task->pid;
	record.body.prio = prio(task);
	record.body.target_cpu = task->thread_info.cpu;
	record.body.in_interrupt = in_interrupt();
	emit(&record.head, sizeof(record));
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_sched_waking, struct task_struct *task)
{
	return emit_wake(WAKING, task);
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_sched_wakeup, struct task_struct *task)
{
	return emit_wake(WAKEUP, task);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_sched_wakeup_new, struct task_struct *task)
{
	return emit_wake(WAKEUP_NEW, task);
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_sched_migrate_task, struct task_struct *task, int dest_cpu)
{
	struct {
		struct head head;
		struct migrate_body body;
	} record = {};
	fill_head(&record.head, MIGRATE, 0);
	read_comm(record.body.comm, task);
	record.body.tid = task->pid;
	record.body.prio = prio(task);
	record.body.orig_cpu = task->thread_info.cpu;
	record.body.dest_cpu = dest_cpu;
	emit(&record.head, sizeof(record));
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	struct {
		struct head head;
		struct fork_body body;
	} record = {};
	__s32 parent_tgid = parent->tgid, child_tgid = child->tgid;
	if (filter_processes && parent_tgid != child_tgid) {
		__u8 *listed = bpf_map_lookup_elem(&processes, &parent_tgid);
		if (listed && *listed) {
			__u8 yes = 1;
			bpf_map_update_elem(&processes, &child_tgid, &yes, BPF_ANY);
		}
	}
	fill_head(&record.head, FORK, 0);
	read_comm(record.body.child_comm, child);
	record.body.child_files = (__u64)child->files;
	record.body.child_tid = child->pid;
	record.body.child_tgid = child_tgid;
	emit(&record.head, sizeof(record));
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_sched_process_exec, struct task_struct *task, int old_tid, struct linux_binprm *bprm)
{
	struct scratch *s = scratch(EXEC_SCRATCH);
	struct exec_body *body;
	long len;
	if (!s)
		return 0;
	fill_head(&s->head, EXEC, 0);
	body = (struct exec_body *)s->body;
	body->tid = task->pid;
	body->old_tid = old_tid;
	len = bpf_probe_read_kernel_str(s->body + sizeof(*body), PATH_BYTES, bprm->filename);
	if (len <= 0) {
		s->body[sizeof(*body)] = 0;
		len = 1;
	}
	emit_scratch(s, sizeof(*body) + (__u32)len);
	return 0;
}

static __always_inline int emit_task(__u16 kind, struct task_struct *task, bool group_dead)
{
	struct {
		struct head head;
		struct task_body body;
	} record = {};
	fill_head(&record.head, kind, 0);
	read_comm(record.body.comm, task);
	record.body.tid = task->pid;
	record.body.prio = prio(task);
	record.body.group_dead = group_dead;
	emit(&record.head, sizeof(record));
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_sched_process_exit, struct task_struct *task)
{
	bool group_dead = BPF_CORE_READ(task, signal, live.counter) == 0;
	if (filter_processes && group_dead) {
		__s32 tgid = task->tgid;
		__u8 *listed = bpf_map_lookup_elem(&processes, &tgid);
		if (listed && *listed)
			bpf_map_delete_elem(&processes, &tgid);
	}
	return emit_task(EXIT, task, group_dead);
}

SEC("tp_btf/sched_process_free")
int BPF_PROG(on_sched_process_free, struct task_struct *task)
{
	return emit_task(FREE, task, false);
}

SEC("tp_btf/cpuhp_enter")
int BPF_PROG(on_cpuhp_enter, unsigned int cpu, int target, int step)
{
	struct {
		struct head head;
		struct hotplug_body body;
	} record = {};
	fill_head(&record.head, HOTPLUG, 0);
	record.body.cpu = cpu;
	record.body.target = target;
	record.body.step = step;
	emit(&record.head, sizeof(record));
	return 0;
}

static __always_inline int emit_irq(__u16 kind, int irq, struct irqaction *action, int ret)
{
	struct {
		struct head head;
		struct irq_body body;
	} record = {};
	fill_head(&record.head, kind, 0);
	if (action)
		bpf_probe_read_kernel_str(record.body.name, sizeof(record.body.name), action->name);
	record.body.irq = irq;
	record.body.ret = ret;
	emit(&record.head, sizeof(record));
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_irq_handler_entry, int irq, struct irqaction *action)
{
	return emit_irq(IRQ_ENTRY, irq, action, 0);
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_irq_handler_exit, int irq, struct irqaction *action, int ret)
{
	return emit_irq(IRQ_EXIT, irq, 0, ret);
}

static __always_inline int emit_softirq(__u16 kind, __u32 vec)
{
	struct {
		struct head head;
		struct softirq_body body;
	} record = {};
	fill_head(&record.head, kind, 0);
	record.body.vec = vec;
	emit(&record.head, sizeof(record));
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq_entry, unsigned int vec)
{
	return emit_softirq(SOFTIRQ_ENTRY, vec);
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_exit, unsigned int vec)
{
	return emit_softirq(SOFTIRQ_EXIT, vec);
}

SEC("tp_btf/softirq_raise")
int BPF_PROG(on_softirq_raise, unsigned int vec)
{
	return emit_softirq(SOFTIRQ_RAISE, vec);
}

/* What the kernel's own tracepoints say of a request: requests that are no reads or writes of sectors have sector ~0. */
static __always_inline int emit_request(__u16 kind, struct request *rq, __u32 bytes, int error)
{
	struct {
		struct head head;
		struct block_body body;
	} record = {};
	struct gendisk *disk = BPF_CORE_READ(rq, q, disk);
	__u64 sector = rq->__sector;
	fill_head(&record.head, kind, 0);
	record.body.sector = sector == ~0ull ? 0 : sector;
	if (disk)
		record.body.dev = (__u32)BPF_CORE_READ(disk, major) << 20 | (__u32)BPF_CORE_READ(disk, first_minor);
	record.body.sectors = bytes >> 9;
	record.body.flags = rq->cmd_flags;
	record.body.error = error;
	emit(&record.head, sizeof(record));
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(on_block_rq_issue, struct request *rq)
{
	return emit_request(BLOCK_ISSUE, rq, rq->__data_len, 0);
}

/* `error` is a blk_status_t, a byte. */
SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_block_rq_complete, struct request *rq, __u8 error, unsigned int bytes)
{
	return emit_request(BLOCK_COMPLETE, rq, bytes, error);
}

SEC("tp_btf/block_bio_remap")
int BPF_PROG(on_block_bio_remap, struct bio *bio, __u32 dev, __u64 from)
{
	struct {
		struct head head;
		struct remap_body body;
	} record = {};
	fill_head(&record.head, BLOCK_REMAP, 0);
	record.body.sector = bio->bi_iter.bi_sector;
	record.body.old_sector = from;
	record.body.dev = BPF_CORE_READ(bio, bi_bdev, bd_dev);
	record.body.old_dev = dev;
	record.body.sectors = bio->bi_iter.bi_size >> 9;
	record.body.flags = bio->bi_opf;
	emit(&record.head, sizeof(record));
	return 0;
}

static __always_inline int emit_packet(__u16 kind, struct sk_buff *skb, struct net_device *dev, __u32 bytes, int rc)
{
	struct {
		struct head head;
		struct packet_body body;
	} record = {};
	fill_head(&record.head, kind, 0);
	record.body.skb = (__u64)skb;
	record.body.bytes = bytes;
	record.body.rc = rc;
	if (dev)
		bpf_probe_read_kernel_str(record.body.interface, sizeof(record.body.interface), dev->name);
	emit(&record.head, sizeof(record));
	return 0;
}

/* The packet may be freed already; its length is given. */
SEC("tp_btf/net_dev_xmit")
int BPF_PROG(on_net_dev_xmit, struct sk_buff *skb, int rc, struct net_device *dev, unsigned int bytes)
{
	return emit_packet(PACKET_SEND, skb, dev, bytes, rc);
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(on_netif_receive_skb, struct sk_buff *skb)
{
	return emit_packet(PACKET_RECEIVE, skb, skb->dev, skb->len, 0);
}

static __always_inline int emit_pages(__u16 kind, __u32 order, __u32 gfp_flags)
{
	struct {
		struct head head;
		struct page_body body;
	} record = {};
	fill_head(&record.head, kind, 0);
	record.body.order = order;
	record.body.gfp_flags = gfp_flags;
	emit(&record.head, sizeof(record));
	return 0;
}

/* A page of 0 is an allocation that failed. */
SEC("tp_btf/mm_page_alloc")
int BPF_PROG(on_mm_page_alloc, struct page *page, unsigned int order, __u32 gfp_flags)
{
	return page ? emit_pages(PAGE_ALLOC, order, gfp_flags) : 0;
}

SEC("tp_btf/mm_page_free")
int BPF_PROG(on_mm_page_free, struct page *page, unsigned int order)
{
	return emit_pages(PAGE_FREE, order, 0);
}

/* User space knows what disks are called, and says it through here. */
SEC("syscall")
int dump_disk(struct dump_disk_body *disk)
{
	struct {
		struct head head;
		struct dump_disk_body body;
	} record = {};
	fill_head(&record.head, DUMP_DISK, 0);
	record.body = *disk;
	emit(&record.head, sizeof(record));
	return 0;
}

static __always_inline void emit_mark(__u16 kind)
{
	struct {
		struct head head;
	} record = {};
	fill_head(&record.head, kind, 0);
	emit(&record.head, sizeof(record));
}

/* LTTng's numbers: enum lttng_process_status. */
enum { STATUS_UNNAMED = 0, STATUS_WAIT_CPU = 2, STATUS_ZOMBIE = 4, STATUS_WAIT = 5, STATUS_RUN = 6, STATUS_DEAD = 7 };

static __always_inline __s32 status(struct task_struct *task)
{
	const __u32 EXIT_DEAD = 0x10, EXIT_ZOMBIE = 0x20;
	if (task->exit_state & EXIT_ZOMBIE)
		return STATUS_ZOMBIE;
	if (task->exit_state & EXIT_DEAD)
		return STATUS_DEAD;
	if (task->__state == 0)
		return task->on_cpu ? STATUS_RUN : STATUS_WAIT_CPU;
	return task->__state & 3 ? STATUS_WAIT : STATUS_UNNAMED;
}

SEC("iter/task")
int dump_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct {
		struct head head;
		struct dump_task_body body;
	} record = {};
	if (ctx->meta->seq_num == 0)
		emit_mark(DUMP_START);
	if (!task)
		return 0;
	fill_head(&record.head, DUMP_TASK, 0);
	read_comm(record.body.name, task);
	record.body.files = (__u64)task->files;
	record.body.tid = task->pid;
	record.body.tgid = task->tgid;
	record.body.ppid = BPF_CORE_READ(task, real_parent, tgid);
	record.body.type = task->mm ? 0 : 1;
	record.body.status = status(task);
	record.body.cpu = task->thread_info.cpu;
	emit(&record.head, sizeof(record));
	return 0;
}

static __always_inline void name_socket(struct dump_file_body *body, struct file *file)
{
	const __u16 AF_UNIX = 1, AF_INET = 2, AF_INET6 = 10;
	struct socket *socket = BPF_CORE_READ(file, private_data);
	struct sock *sk = BPF_CORE_READ(socket, sk);
	if (!sk)
		return;
	body->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	body->type = BPF_CORE_READ(sk, sk_type);
	if (body->family == AF_INET || body->family == AF_INET6) {
		body->local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
		body->peer_port = __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
	}
	if (body->family == AF_INET) {
		*(__u32 *)body->local = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
		*(__u32 *)body->peer = BPF_CORE_READ(sk, __sk_common.skc_daddr);
	}
	if (body->family == AF_INET6) {
		bpf_core_read(body->local, sizeof(body->local), &sk->__sk_common.skc_v6_rcv_saddr);
		bpf_core_read(body->peer, sizeof(body->peer), &sk->__sk_common.skc_v6_daddr);
	}
	if (body->family == AF_UNIX) {
		struct unix_address *address = BPF_CORE_READ((struct unix_sock *)sk, addr);
		struct sock *peer = BPF_CORE_READ((struct unix_sock *)sk, peer);
		__s32 len;
		if (!address && peer)
			address = BPF_CORE_READ((struct unix_sock *)peer, addr);
		len = address ? BPF_CORE_READ(address, len) - (__s32)sizeof(__u16) : 0;
		if (len > 0 && len <= UNIX_NAME_BYTES &&
		    !bpf_core_read(body->unix_name, UNIX_NAME_BYTES, &address->name[0].sun_path))
			body->unix_name_len = len;
	}
}

SEC("iter/task_file")
int dump_files(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct scratch *s = scratch(DUMP_SCRATCH);
	struct dump_file_body *body;
	unsigned long *close_on_exec;
	unsigned long word = 0;
	long len;
	if (!s)
		return 0;
	if (!task || !file) {
		emit_mark(DUMP_END);
		return 0;
	}
	if (task->tgid == own_tgid)
		return 0;
	fill_head(&s->head, DUMP_FILE, 0);
	body = (struct dump_file_body *)s->body;
	__builtin_memset(body, 0, sizeof(*body));
	body->files = (__u64)task->files;
	body->tgid = task->tgid;
	body->fd = ctx->fd;
	body->flags = file->f_flags;
	body->fmode = file->f_mode;
	close_on_exec = BPF_CORE_READ(task, files, fdt, close_on_exec);
	bpf_probe_read_kernel(&word, sizeof(word), &close_on_exec[ctx->fd / 64]);
	if (word >> (ctx->fd % 64) & 1)
		body->flags |= 02000000; /* O_CLOEXEC */
	else
		body->flags &= ~02000000;
	if ((file->f_inode->i_mode & 0170000) == 0140000)
		name_socket(body, file);
	len = bpf_d_path(&file->f_path, s->body + sizeof(*body), PATH_BYTES);
	if (len <= 0 || len > PATH_BYTES) {
		s->body[sizeof(*body)] = 0;
		len = 1;
	}
	emit_scratch(s, sizeof(*body) + (__u32)len);
	return 0;
}
