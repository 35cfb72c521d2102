//! Trace folders on disk: finds CTF traces and rotation chunks, opens their streams, merges them in time.
