//! The store of profiles as its clients see it.

mod bad_input;
mod calls;
mod clients;
mod documents;
mod page;
mod questions;
mod rules;
mod store;
