//! Tests of the analysis against itself under random cuts, against a naive interpreter, and on real recordings.

mod kernel_like;
mod laws;
mod witness;
