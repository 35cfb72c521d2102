//! Tokens of TSDL.
