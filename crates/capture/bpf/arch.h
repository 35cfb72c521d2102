/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* What the sampling program has to know of a processor: registers, and how to go from a frame to its caller. */
#pragma once

#if defined(__TARGET_ARCH_x86)

/* The registers that an interrupt gives: arch/x86/include/uapi/asm/ptrace.h. */
struct interrupted {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

#define USER_CODE_SEGMENT 0x33 /* of 64-bit processes: __USER_CS */

/* The rule of code that keeps frame pointers: 16 bytes above the frame pointer, which is saved there. */
#define KEEPS_FRAME_POINTERS (3 | 2 << 3 | 2 << 20)

/* From the thread pointer to what a thread keeps for the first keys: `specific_1stblock` of glibc's `struct pthread`. */
#define PTHREAD_KEYS 0x310

/* And to its vector of modules, of which each has an entry of so many bytes. */
#define MODULES_AT(entry_bytes) 8

#elif defined(__TARGET_ARCH_arm64)

/* The registers that an interrupt gives: `struct user_pt_regs` of arch/arm64/include/uapi/asm/ptrace.h. The kernel's own `struct pt_regs`
 * begins with them. */
struct interrupted {
	unsigned long regs[31], sp, pc, pstate;
};

#define PSR_MODE_MASK 0xf /* 0: interrupted in user mode */
#define PSR_MODE32_BIT 0x10
#define FRAME_POINTER 29
#define LINK_REGISTER 30

#define ADDRESS_BITS ((1ULL << 48) - 1) /* of code; those above may sign it */

/* The rule of code that keeps frame pointers: 16 bytes above the frame pointer, which is saved there below where the function returns to. */
#define KEEPS_FRAME_POINTERS (3 | 2 << 3 | 1 << 20 | 1U << 31)

/* Not known: `struct pthread` lies in front of what the thread pointer leads to, and how long it is differs from glibc to glibc. */
#define PTHREAD_KEYS 0

/* From the thread pointer to the thread's vector of modules, of which each has an entry of so many bytes: 8 with musl, which has it before. */
#define MODULES_AT(entry_bytes) ((entry_bytes) == 8 ? -8 : 0)

#define MAX_PTHREAD_BYTES 4096 /* glibc's has less than 2,500, musl's less than 300 */

#else
#error "stacks can be walked on x86-64 and aarch64"
#endif

struct bpf_perf_event_data {
	struct interrupted regs;
	__u64 sample_period;
	__u64 addr;
};

static __always_inline bool word(__u64 *to, __u64 address)
{
	return !bpf_probe_read_user(to, sizeof(*to), (void *)address);
}

#if defined(__TARGET_ARCH_x86)

/* The user registers of a thread that is in the kernel. Whether it is a 64-bit process's. */
static __always_inline bool user_registers(struct sample_head *head, struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	head->pc = BPF_CORE_READ(regs, ip);
	head->sp = BPF_CORE_READ(regs, sp);
	head->fp = BPF_CORE_READ(regs, bp);
	return BPF_CORE_READ(regs, cs) == USER_CODE_SEGMENT;
}

/* The user registers of the thread that was interrupted, in user mode or in the kernel. Whether it is a 64-bit process's. */
static __always_inline bool interrupted_registers(struct sample_head *head, struct bpf_perf_event_data *ctx, struct task_struct *task)
{
	if (ctx->regs.cs & 3) {
		head->pc = ctx->regs.ip;
		head->sp = ctx->regs.sp;
		head->fp = ctx->regs.bp;
		return ctx->regs.cs == USER_CODE_SEGMENT;
	}
	return user_registers(head, task);
}

/* Where the thread has its own data. */
static __always_inline __u64 thread_pointer(struct task_struct *task)
{
	return BPF_CORE_READ(task, thread.fsbase);
}

/* Whether that is of the thread with this `pthread_self`. */
static __always_inline bool is_thread(__u64 id, __u64 thread_pointer)
{
	return id == thread_pointer;
}

/* Begins a walk at these registers. */
static __always_inline void begin_at(struct walk *walk, struct sample_head *head)
{
	walk->pc = head->pc;
	walk->sp = head->sp;
	walk->fp = head->fp;
}

/* Goes to the caller: `crates/unwind/src/walk.rs`. */
static __always_inline __u8 step(struct walk *walk, __u32 rule)
{
	const __u64 SIGNAL_FP = 80, SIGNAL_SP = 120, SIGNAL_PC = 128;
	__u64 offset = (rule >> 3 & 0x1ffff) * 8, saved = (rule >> 20 & 0x7ff) * 8;
	__u64 sp = walk->sp, fp = walk->fp, cfa, pc;
	bool may_be_level = walk->is_exact, is_elsewhere = rule >> 31; /* on another stack */
	switch (rule & 7) {
	case 0:
		return END_NO_RULE;
	case 1:
		return END_ROOT;
	case 2:
		cfa = sp + offset;
		break;
	case 3:
		cfa = fp + offset;
		break;
	case 4:
		if (!word(&cfa, sp + offset))
			return END_NO_MEMORY;
		cfa += 8;
		break;
	case 5:
		if (!word(&cfa, fp - offset))
			return END_NO_MEMORY;
		break;
	case 6:
		cfa = sp + ((walk->pc & 15) >= 11 ? 16 : 8);
		break;
	default:
		sp += offset;
		if (!word(&walk->pc, sp + SIGNAL_PC) || !word(&walk->fp, sp + SIGNAL_FP) || !word(&walk->sp, sp + SIGNAL_SP))
			return END_NO_MEMORY;
		walk->is_exact = 1;
		return END_NONE;
	}
	if (!is_elsewhere && (cfa < sp || (cfa == sp && !may_be_level)))
		return END_LOOP;
	if ((rule & 7) == 5) {
		if (!word(&fp, fp))
			return END_NO_MEMORY;
	} else if (saved) {
		if (!word(&fp, cfa - saved))
			return END_NO_MEMORY;
	}
	if (!word(&pc, cfa - 8))
		return END_NO_MEMORY;
	if (!pc)
		return END_ROOT;
	walk->pc = pc;
	walk->sp = cfa;
	walk->fp = fp;
	walk->is_exact = 0;
	return END_NONE;
}

#elif defined(__TARGET_ARCH_arm64)

static __always_inline bool is_64_bit(__u64 pstate)
{
	return !(pstate & PSR_MODE32_BIT);
}

/* The user registers of a thread that is in the kernel. Whether it is a 64-bit process's. */
static __always_inline bool user_registers(struct sample_head *head, struct task_struct *task)
{
	struct interrupted regs;
	if (bpf_probe_read_kernel(&regs, sizeof(regs), (void *)bpf_task_pt_regs(task)))
		return false;
	head->pc = regs.pc;
	head->sp = regs.sp;
	head->fp = regs.regs[FRAME_POINTER];
	head->lr = regs.regs[LINK_REGISTER];
	return is_64_bit(regs.pstate);
}

/* The user registers of the thread that was interrupted, in user mode or in the kernel. Whether it is a 64-bit process's. */
static __always_inline bool interrupted_registers(struct sample_head *head, struct bpf_perf_event_data *ctx, struct task_struct *task)
{
	__u64 pstate = ctx->regs.pstate;
	barrier_var(pstate); /* it is read as a whole */
	if (pstate & PSR_MODE_MASK)
		return user_registers(head, task);
	head->pc = ctx->regs.pc;
	head->sp = ctx->regs.sp;
	head->fp = ctx->regs.regs[FRAME_POINTER];
	head->lr = ctx->regs.regs[LINK_REGISTER];
	return is_64_bit(pstate);
}

/* Where the thread has its own data, as of when it last began to run: until a process's first thread has waited once it is not known. */
static __always_inline __u64 thread_pointer(struct task_struct *task)
{
	return BPF_CORE_READ(task, thread.uw.tp_value);
}

/* Whether that is of the thread with this `pthread_self`. */
static __always_inline bool is_thread(__u64 id, __u64 thread_pointer)
{
	return thread_pointer - id <= MAX_PTHREAD_BYTES;
}

/* Begins a walk at these registers. */
static __always_inline void begin_at(struct walk *walk, struct sample_head *head)
{
	walk->pc = head->pc;
	walk->sp = head->sp;
	walk->fp = head->fp;
	walk->lr = head->lr;
}

/* Goes to the caller: `crates/unwind/src/walk.rs`. */
static __always_inline __u8 step(struct walk *walk, __u32 rule)
{
	const __u64 SIGNAL_FP = 240, SIGNAL_LR = 248, SIGNAL_SP = 256, SIGNAL_PC = 264;
	__u64 offset = (rule >> 3 & 0x1ffff) * 8, saved = (rule >> 20 & 0x7ff) * 8;
	__u64 sp = walk->sp, cfa;
	struct {
		__u64 fp, pc;
	} caller = { walk->fp, walk->lr };
	bool is_pair = rule >> 31;
	switch (rule & 7) {
	case 1:
		return END_ROOT;
	case 2:
		cfa = sp + offset;
		break;
	case 3:
		cfa = walk->fp + offset;
		break;
	case 7:
		sp += offset;
		if (!word(&walk->pc, sp + SIGNAL_PC) || !word(&walk->sp, sp + SIGNAL_SP) || !word(&walk->fp, sp + SIGNAL_FP) ||
		    !word(&walk->lr, sp + SIGNAL_LR))
			return END_NO_MEMORY;
		walk->is_exact = 1;
		return END_NONE;
	default:
		return END_NO_RULE;
	}
	/* A function that saves nothing has no frame, and calls nobody. */
	if (cfa < sp || (cfa == sp && !walk->is_exact) || (!saved && !walk->is_exact))
		return END_LOOP;
	if (saved && is_pair) {
		if (bpf_probe_read_user(&caller, sizeof(caller), (void *)(cfa - saved - 8)))
			return END_NO_MEMORY;
	} else if (saved) {
		if (!word(&caller.pc, cfa - saved))
			return END_NO_MEMORY;
	}
	caller.pc &= ADDRESS_BITS;
	if (!caller.pc)
		return END_ROOT;
	walk->pc = caller.pc;
	walk->sp = cfa;
	walk->fp = caller.fp;
	walk->is_exact = 0;
	return END_NONE;
}

#endif
