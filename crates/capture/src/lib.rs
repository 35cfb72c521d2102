//! Kernel tracing by eBPF, written as CTF with LTTng's names.
