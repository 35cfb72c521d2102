//! What the targets share: a bound on the memory that metadata may take, and what holds of samples that were taken.

use intake::Taken;
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
    assert!(
        most <= bound,
        "{} bytes of metadata take {most} bytes, more than {bound}",
        bytes.len()
    );
}

/// Looks at all that was taken.
///
/// # Panics
/// When a sample counts nothing, refers to what is not there or belongs to a profile that was refused.
pub fn check(taken: &Taken) {
    let batch = &taken.batch;
    let accepted = taken.profiles.iter().filter_map(|profile| profile.as_ref().ok());
    assert_eq!(accepted.map(|profile| profile.samples).sum::<usize>(), batch.samples().len());
    for refused in taken.profiles.iter().filter_map(|profile| profile.as_ref().err()) {
        assert!(!refused.to_string().is_empty());
    }
    for sample in batch.samples() {
        assert!(sample.value > 0);
        assert!(!batch.series_of(sample.series).profile_type.name.is_empty());
        for frame in batch.frames_of(sample.stack) {
            let _name = batch.text_of(batch.frame_of(frame).function);
        }
    }
}
