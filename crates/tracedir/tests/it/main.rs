//! Recordings on disk, read whole: real traces against the reference reader's figures, and damaged ones.

mod chunks;
mod damage;
mod discovery;
mod expected;
mod reading;
