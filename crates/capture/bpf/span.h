/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* The span that a thread is in, as OpenTelemetry's thread context tells it. */
#pragma once

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SPAN_PLACES);
	__type(key, __s32);
	__type(value, struct span_place);
} span_places SEC(".maps");

/* Reads the span of the thread that runs into the head. */
static __always_inline void read_span(struct sample_head *head)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__s32 tgid = head->tgid;
	struct span_place *place = bpf_map_lookup_elem(&span_places, &tgid);
	struct thread_context context;
	__u64 at, record, *changed_ns;
	if (!place)
		return;
	changed_ns = bpf_map_lookup_elem(&changed, &tgid);
	if (changed_ns && *changed_ns > place->known_ns)
		return;
	at = thread_pointer(task);
	if (place->module) {
		/* A module that the thread did not use has 0 there, or ~0. */
		if (!word(&at, at + MODULES_AT(place->entry_bytes)) || !word(&at, at + (__u64)place->module * place->entry_bytes) || at + 1 <= 1)
			return;
	}
	if (!word(&record, at + place->offset) || !record)
		return;
	if (bpf_probe_read_user(&context, sizeof(context), (void *)record) || context.valid != 1)
		return;
	__builtin_memcpy(head->trace_id, context.trace_id, sizeof(head->trace_id));
	__builtin_memcpy(head->span_id, context.span_id, sizeof(head->span_id));
}
