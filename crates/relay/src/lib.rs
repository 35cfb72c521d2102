//! A relay for LTTng recording sessions: streams, indexes, rotation chunks.
