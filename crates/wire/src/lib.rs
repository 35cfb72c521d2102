//! Wire codecs, one module for each protocol.
//!
//! Bytes go in and typed messages come out, or the other way; who sends or receives them, and over
//! what, is the caller's business. Every length is checked against a maximum before memory is taken.
//!
//! Vocabulary: a **request** goes from a producer to a relay, a **reply** back; a **payload** is what
//! follows a fixed **header**; a **handle** is a number the relay chose for a stream.

pub mod door;
pub mod live;
pub mod nats;
pub mod openmetrics;
pub mod otlp;
pub mod proto;
pub mod pyroscope;
pub mod remote_write;
