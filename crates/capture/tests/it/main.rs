//! The capture on the running kernel: against other observers, and with real relays. Needs root and BTF.
#![expect(clippy::unwrap_used, reason = "a test that fails here fails")]

mod begin;
mod budget;
mod caches;
mod content;
mod contexts;
mod control_groups;
mod copies;
mod counts;
mod devices;
mod go;
mod jit;
mod kernel_names;
mod lines;
mod many_files;
mod musl;
mod off_cpu;
mod profile;
mod programs;
mod python;
mod relays;
mod spans;
mod stateless;
mod support;
