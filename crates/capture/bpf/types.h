/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* The few kernel types the programs read. Field offsets are relocated to the running kernel when the programs
 * are loaded (CO-RE), so each type names only the members that are used. */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false = 0, true = 1 };

/* include/uapi/linux/bpf.h */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_HASH_OF_MAPS = 13,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_ANY = 0 };
enum { BPF_F_NO_PREALLOC = 1 << 0, BPF_F_MMAPABLE = 1 << 10, BPF_F_INNER_MAP = 1 << 12 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };
enum { CLOCK_MONOTONIC = 1 };
struct bpf_timer {
	__u64 : 64;
	__u64 : 64;
} __attribute__((aligned(8)));
enum { BPF_F_USER_STACK = 1 << 8 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#if defined(__TARGET_ARCH_arm64)
struct pt_regs {
	unsigned long regs[31];
	__u64 orig_x0;
	__s32 syscallno;
};

struct thread_info {
	unsigned long flags;
	__u32 cpu;
};

struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
};
#else
struct pt_regs {
	unsigned long bp, r10, r9, r8, dx, si, di, orig_ax, ip, cs, sp;
};

struct thread_info {
	__u32 status;
	__u32 cpu;
};

struct thread_struct {
	unsigned long fsbase;
};
#endif

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
};

struct qstr {
	__u32 len;
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct inode {
	__u16 i_mode;
};

struct file {
	__u32 f_mode;
	void *private_data;
	struct inode *f_inode;
	__u32 f_flags;
	struct path f_path;
};

struct fdtable {
	__u32 max_fds;
	struct file **fd;
	unsigned long *close_on_exec;
};

struct files_struct {
	struct fdtable *fdt;
};

struct rq;

struct cfs_rq {
	struct rq *rq;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct task_struct {
	struct thread_info thread_info;
	__u32 __state;
	int on_cpu;
	int prio;
	struct sched_entity se;
	int exit_state;
	int pid;
	int tgid;
	struct thread_struct thread;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	__u64 start_boottime;
	char comm[16];
	void *mm;
	struct files_struct *files;
	struct signal_struct *signal;
};

struct linux_binprm {
	struct file *file;
	const char *filename;
};

struct in6_addr {
	__u8 bytes[16];
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	__u16 skc_family;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_type;
	__u16 sk_protocol;
};

struct socket {
	struct sock *sk;
};

struct sockaddr_un {
	__u16 sun_family;
	char sun_path[108];
};

struct unix_address {
	int len;
	struct sockaddr_un name[0];
};

struct unix_sock {
	struct sock sk;
	struct unix_address *addr;
	struct sock *peer;
};

struct irqaction {
	const char *name;
};

struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk;
};

struct request {
	struct request_queue *q;
	__u32 cmd_flags;
	__u32 __data_len;
	__u64 __sector;
};

struct block_device {
	__u32 bd_dev;
};

struct bvec_iter {
	__u64 bi_sector;
	__u32 bi_size;
};

struct bio {
	struct block_device *bi_bdev;
	__u32 bi_opf;
	struct bvec_iter bi_iter;
};

struct net_device {
	char name[16];
};

struct sk_buff {
	struct net_device *dev;
	__u32 len;
};

struct page;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

#pragma clang attribute pop
