//! What tests share: traces, real peers, temporary folders.
