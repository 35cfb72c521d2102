//! Chunk-wise trace analysis: summarise, merge, finish.
