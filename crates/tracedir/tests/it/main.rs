//! Recordings on disk, read whole: real traces against the reference reader's figures, and damaged ones.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a helper that fails is a failure of the test that calls it"
)]

mod chunks;
mod clocks;
mod compressed;
mod counting;
mod damage;
mod discovery;
mod expected;
mod following;
mod joining;
mod losses;
mod made;
mod manifests;
mod reading;
mod seeking;
mod text;

#[global_allocator]
static ALLOCATOR: testkit::alloc::Counting = testkit::alloc::Counting;
