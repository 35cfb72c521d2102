//! What the targets share: a bound on the memory that metadata may take.

use testkit::alloc::{Counting, most_held};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads metadata.
///
/// # Panics
/// When that holds more memory than the bytes account for.
pub fn bounded_metadata(bytes: &[u8]) {
    let ((), most) = most_held(|| ctf::fuzz_metadata(bytes));
    let bound = ctf::METADATA_BASE_BYTES + ctf::METADATA_FACTOR * bytes.len();
    assert!(most <= bound, "{} bytes of metadata take {most} bytes, more than {bound}", bytes.len());
}
