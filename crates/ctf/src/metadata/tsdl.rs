//! TSDL.
use crate::class::{ByteOrder, TraceClass};
use crate::error::TextProblem;

pub(crate) fn parse(
    text: &[u8],
    _order: Option<ByteOrder>,
) -> Result<TraceClass, (usize, TextProblem)> {
    Err((text.len(), TextProblem::Missing("trace block")))
}
