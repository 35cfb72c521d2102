//! The store of profiles as its clients see it.

mod calls;
mod questions;
mod store;
