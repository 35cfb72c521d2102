// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
/* What the kernel itself calls the code at an address, as in its own back traces: `name+0x1f/0x40 [module]`. It is asked for one
 * address at a time; `src/profile/kernel_code.rs` runs the program and reads the answer. */
#include "types.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* KSYM_SYMBOL_LEN of include/linux/kallsyms.h is 591 with names of 512 bytes; what is longer is cut. */
#define NAME_BYTES 640

struct name {
	char text[NAME_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct name);
} names SEC(".maps");

struct question {
	__u64 address;
};

SEC("syscall")
int name_of(struct question *question)
{
	static const char format[] = "%pS";
	__u64 address = question->address;
	__u32 index = 0;
	struct name *name = bpf_map_lookup_elem(&names, &index);
	if (!name)
		return -1;
	return bpf_snprintf(name->text, sizeof(name->text), format, &address, sizeof(address));
}
