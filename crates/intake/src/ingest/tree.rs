//! Trees as Pyroscope's first agents wrote them.
//!
//! ```text
//! node = varint length, so many bytes, varint value, varint children; then the children, each with all that is below it
//! ```
//! In a tree the bytes are a function's name, and the value is its own. In a trie they are a piece of a stack as text (`main;wo`, `rk`): what is
//! above a node stands before it. The first node is the root, mostly without a name.
//! Source: `pkg/og/structs/transporttrie` and `pkg/og/storage/tree` of grafana/pyroscope.

use wire::proto::{DecodeError, Reader, Wrong};

use super::Target;
use crate::error::Error;

/// Bytes that a node has at least.
const MIN_NODE: usize = 3;

struct Node<'a> {
    name: Reader<'a>,
    value: u64,
    children: usize,
}

fn node<'a>(reader: &mut Reader<'a>) -> Result<Node<'a>, DecodeError> {
    let too_long = |reader: &Reader<'_>| {
        reader.wrong(Wrong::Cut { needed: usize::MAX, present: reader.bytes.len() })
    };
    let length = usize::try_from(reader.varint()?).map_err(|_too_long| too_long(reader))?;
    let mut name = *reader;
    name.bytes = reader.take(length)?;
    let value = reader.varint()?;
    let children = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
    if children > reader.bytes.len() / MIN_NODE {
        return Err(too_long(reader));
    }
    Ok(Node { name, value, children })
}

/// A value that a sample can have.
fn value(node: &Node<'_>) -> Result<i64, Error> {
    i64::try_from(node.value).map_err(|_too_large| Error::Overflow)
}

pub(super) fn trie(bytes: &[u8], target: &mut Target<'_, '_>) -> Result<(), Error> {
    let mut reader = Reader::new(bytes, "trie");
    let mut key: Vec<u8> = Vec::new();
    // Of each node above the next one: children that are still to come, and the length of the key without it.
    let mut above: Vec<(usize, usize)> = Vec::new();
    while !reader.bytes.is_empty() {
        let node = node(&mut reader)?;
        let before = key.len();
        key.extend_from_slice(node.name.bytes);
        if node.value != 0 {
            // Several nodes may share one character.
            let stack =
                std::str::from_utf8(&key).map_err(|_not_utf8| node.name.wrong(Wrong::Text))?;
            target.add_text(stack, value(&node)?)?;
        }
        above.push((node.children, before));
        if leave(&mut above, |before| key.truncate(before)) {
            return Ok(());
        }
    }
    cut(&reader, above.is_empty())
}

pub(super) fn tree(bytes: &[u8], target: &mut Target<'_, '_>) -> Result<(), Error> {
    let mut reader = Reader::new(bytes, "tree");
    let mut stack = Vec::new();
    let mut above: Vec<(usize, usize)> = Vec::new();
    while !reader.bytes.is_empty() {
        let node = node(&mut reader)?;
        let before = stack.len();
        match node.name.text()? {
            "" => {}
            name => stack.push(target.frame(name)),
        }
        if node.value != 0 {
            target.add_stack(&stack, value(&node)?)?;
        }
        above.push((node.children, before));
        if leave(&mut above, |before| stack.truncate(before)) {
            return Ok(());
        }
    }
    cut(&reader, above.is_empty())
}

/// Goes up from nodes that have no more children; says whether it left the root.
fn leave(above: &mut Vec<(usize, usize)>, mut truncate: impl FnMut(usize)) -> bool {
    while let Some((children, before)) = above.last_mut() {
        if *children > 0 {
            *children -= 1;
            return false;
        }
        truncate(*before);
        above.pop();
    }
    true
}

/// The bytes ended: below a node, or there were none at all.
fn cut(reader: &Reader<'_>, is_whole: bool) -> Result<(), Error> {
    let missing = Wrong::Cut { needed: MIN_NODE, present: 0 };
    if is_whole { Ok(()) } else { Err(reader.wrong(missing).into()) }
}
