//! The relay as a whole: recorded producers, real ones, hostile ones, and crashes.
#![expect(clippy::unwrap_used, reason = "a test that fails here fails")]

mod acknowledge;
mod announce;
mod client;
mod compress;
mod copy;
mod crash;
mod cut;
mod described;
mod disk;
mod doors;
mod full;
mod hostile;
mod live_real;
mod lttng_view;
mod nats;
mod producer;
mod real;
mod replay;
mod requests;
mod resume;
mod retention;
mod rotation;
mod stuck;
mod tls;
mod viewer;
mod viewer_disk;
mod viewer_files;
mod viewer_holds;
mod viewer_manners;
mod viewer_past;
mod viewer_places;
mod viewer_replay;
mod viewer_streams;
