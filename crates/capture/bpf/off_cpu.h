/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Samples of who waits, and where: what a thread's stack was while it was off the CPU. */
#pragma once

/* Since when a thread is off the CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} waiting SEC(".maps");

/* The sample of a CPU that is being made. Whether a time off the CPU has one is known when it ends, which is said
 * by the thread before, when the next one's memory cannot be read yet. A timer that is over at once interrupts the next one while it is
 * still in the kernel, with the user stack that it had all the time. */
struct wait {
	struct bpf_timer timer;
	__u64 time_ns;
	__u64 weight_ns;
	__u64 pc; /* where the thread went into the kernel */
	__u64 sp;
	__s32 tid;
	__u32 kernel_bytes;
	__u8 is_pending;
	__u8 has_timer;
	__u64 kernel[MAX_KERNEL_FRAMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the CPUs that there are */
	__type(key, __u32);
	__type(value, struct wait);
} waits SEC(".maps");

static int on_wait(void *map, __u32 *key, struct wait *wait)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct sampling *cpu = &sampling[bpf_get_smp_processor_id() & (CPUS - 1)];
	__u32 at, kernel_bytes = wait->kernel_bytes;
	__u64 begin_ns = bpf_ktime_get_ns();
	struct scratch *s = scratch_of(WAIT_SCRATCH);
	wait->is_pending = 0;
	if (!s)
		return 0;
	if (task->pid != wait->tid) {
		cpu->waits_missed++;
		cpu->waits_unsampled_ns += wait->weight_ns;
		return 0;
	}
	begin(s, task);
	s->head.time_ns = wait->time_ns;
	s->head.weight_ns = wait->weight_ns;
	s->head.off_cpu = 1;
	if (task->mm) {
		s->head.end = END_NOT_64_BIT;
		if (user_registers(&s->head, task)) {
			if (s->head.pc == wait->pc && s->head.sp == wait->sp)
				walk_user(WAIT_SCRATCH);
			else
				s->head.end = END_LATE;
		}
	}
	at = s->at;
	barrier_var(at);
	if (at > FRAME_BYTES)
		return 0;
	if (kernel_bytes > KERNEL_BYTES || bpf_probe_read_kernel(s->body + at, kernel_bytes, wait->kernel))
		kernel_bytes = 0;
	s->head.kernel_frames = kernel_bytes / sizeof(__u64);
	s->at = at + kernel_bytes;
	if (finish(WAIT_SCRATCH))
		cpu->waits_sent++;
	else
		cpu->waits_no_room++;
	cpu->spent_ns += bpf_ktime_get_ns() - begin_ns;
	return 0;
}

/* Has the sample of a thread made that is about to run again. */
static __always_inline void catch(struct task_struct *next, __u64 now, __u64 weight_ns, struct sampling *counts)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct wait *wait = bpf_map_lookup_elem(&waits, &cpu);
	struct sample_head head;
	long bytes;
	if (__sync_fetch_and_add(&wait_quota, -1) <= 0) {
		counts->waits_kept_back++;
		counts->waits_unsampled_ns += weight_ns;
		return;
	}
	if (!wait || wait->is_pending)
		goto missed;
	if (!wait->has_timer) {
		if (bpf_timer_init(&wait->timer, &waits, CLOCK_MONOTONIC) || bpf_timer_set_callback(&wait->timer, on_wait))
			goto missed;
		wait->has_timer = 1;
	}
	user_registers(&head, next);
	wait->pc = head.pc;
	wait->sp = head.sp;
	wait->time_ns = now;
	wait->weight_ns = weight_ns;
	wait->tid = next->pid;
	bytes = bpf_get_task_stack(next, wait->kernel, sizeof(wait->kernel), 0);
	wait->kernel_bytes = bytes > 0 ? bytes : 0;
	wait->is_pending = 1;
	if (!bpf_timer_start(&wait->timer, 0, 0))
		return;
	wait->is_pending = 0;
missed:
	counts->waits_missed++;
	counts->waits_unsampled_ns += weight_ns;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u64 now = bpf_ktime_get_ns(), *since, length, period = wait_period_ns;
	struct sampling *cpu = &sampling[bpf_get_smp_processor_id() & (CPUS - 1)];
	if (end_ns && now >= end_ns)
		return 0;
	if (is_sampled(prev)) {
		since = bpf_task_storage_get(&waiting, prev, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (since)
			*since = now;
	}
	if (!is_sampled(next))
		return 0;
	since = bpf_task_storage_get(&waiting, next, 0, 0);
	if (!since || !*since || now <= *since)
		return 0;
	length = now - *since;
	cpu->waits++;
	cpu->waits_ns += length;
	if (length < period) {
		/* A random number below the period: the sample stands for those that are passed by. */
		if (((__u64)bpf_get_prandom_u32() * (period >> 8) >> 24) >= length) {
			cpu->waits_passed++;
			return 0;
		}
		length = period;
	}
	catch(next, now, length, cpu);
	return 0;
}
