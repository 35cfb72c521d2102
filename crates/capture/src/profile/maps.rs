//! Maps in maps of the kernel, changed many at a time.
//!
//! After a change of a map of maps the kernel waits until all programs that may use what was there have ended (`maybe_wait_bpf_programs` of
//! kernel/bpf/syscall.c), which takes some 10 ms on a busy machine, for one entry as for many.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Result, libbpf_sys};

/// The key of an entry: a process id or a number of 32 bits.
pub(super) type Key = [u8; 4];

/// An array that a map of maps takes, however long it is.
pub(super) fn inner_array(
    name: &str,
    value_bytes: u32,
    entries: u32,
    flags: u32,
) -> Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        map_flags: libbpf_sys::BPF_F_INNER_MAP | flags,
        ..Default::default()
    };
    MapHandle::create(MapType::Array, Some(name), 4, value_bytes, entries.max(1), &options)
}

/// Fills the entries of an array from the first one on.
pub(super) fn fill<const BYTES: usize>(array: &MapHandle, values: &[[u8; BYTES]]) -> Result<()> {
    let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
    let keys: Vec<Key> = (0..count).map(u32::to_ne_bytes).collect();
    if count == 0 {
        return Ok(());
    }
    let (keys, values) = (keys.as_flattened(), values.as_flattened());
    array.update_batch(keys, values, count, MapFlags::ANY, MapFlags::ANY)
}

/// Puts maps into a map of maps, in place of those that are there.
pub(super) fn put(outer: &impl MapCore, entries: &[(Key, &MapHandle)]) -> Result<()> {
    let value = |map: &MapHandle| map.as_fd().as_raw_fd().to_ne_bytes();
    let keys: Vec<Key> = entries.iter().map(|(key, _)| *key).collect();
    let values: Vec<[u8; 4]> = entries.iter().map(|(_, map)| value(map)).collect();
    at_once(&keys, |keys, count| {
        outer.update_batch(keys, values.as_flattened(), count, MapFlags::ANY, MapFlags::ANY)
    })
    .or_else(|_unsupported| {
        let mut each = keys.iter().zip(&values);
        each.try_for_each(|(key, value)| outer.update(key, value, MapFlags::ANY))
    })
}

/// Takes entries out of a map of maps that is a hash.
pub(super) fn remove(outer: &impl MapCore, keys: &[Key]) {
    let removed =
        at_once(keys, |keys, count| outer.delete_batch(keys, count, MapFlags::ANY, MapFlags::ANY));
    if removed.is_err() {
        // One that is not there may have been the reason.
        keys.iter().for_each(|key| drop(outer.delete(key)));
    }
}

/// Before Linux 5.19 only one entry at a time can be changed.
fn at_once(keys: &[Key], change: impl FnOnce(&[u8], u32) -> Result<()>) -> Result<()> {
    match u32::try_from(keys.len()).unwrap_or(u32::MAX) {
        0 => Ok(()),
        count => change(keys.as_flattened(), count),
    }
}
