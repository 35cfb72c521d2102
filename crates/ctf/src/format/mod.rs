//! Event records as text: the lines that Babeltrace 2 prints, and JSON.
//!
//! Both writers append to a buffer that the caller keeps, and take no memory for each event record.

pub mod json;
mod number;
pub mod text;
