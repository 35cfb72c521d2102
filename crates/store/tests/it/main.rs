//! What blocks promise.

mod blocks;
