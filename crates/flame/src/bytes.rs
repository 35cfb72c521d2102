//! Call trees as bytes, which other servers and tools of Pyroscope exchange ("format 2").
//!
//! ```text
//! tree   nothing, or a node: the virtual root, whose name is empty and whose self is 0
//! node   name length (varint)  name  self (varint)  count of children (varint)  the last child … the first child, each with its own
//! ```
//!
//! Varints are protobuf's. Source: `pkg/model/tree.go` of `grafana/pyroscope`. Children are written by name, so equal trees have equal
//! bytes; they are read in any order, and a name that is there twice is one node.

use wire::proto::{DecodeError, Reader, Writer, Wrong};

use crate::arena::ROOT;
use crate::tree::{CallTree, NO_STACK};

/// The least that a node takes: a length, a value and a count.
const LEAST_NODE_BYTES: usize = 3;

impl CallTree {
    /// The tree as bytes, the same for equal trees.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let flat = self.flat();
        let mut out = Writer::default();
        if flat.len() < 2 {
            return out.bytes;
        }
        let mut stack = vec![0];
        while let Some(at) = stack.pop() {
            let Some(node) = flat.get(at) else { continue };
            let name = if node.depth == 0 { "" } else { self.name(node.key) };
            out.varint(name.len() as u64);
            out.bytes.extend_from_slice(name.as_bytes());
            out.varint(node.own[0].unsigned_abs());
            let before = stack.len();
            let mut child = at + 1;
            while let Some(next) = flat.get(child).filter(|_| child < node.end) {
                stack.push(child);
                child = next.end;
            }
            out.varint((stack.len() - before) as u64);
        }
        out.bytes
    }

    /// The tree that bytes are. It takes a fixed multiple of their length, whatever they say.
    ///
    /// # Errors
    ///
    /// For bytes that are no call tree, with the place.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut tree = Self::new();
        if bytes.is_empty() {
            return Ok(tree);
        }
        let mut reader = Reader::new(bytes, "call tree");
        // For each node that is still to come the one that it is below; none for the root.
        let mut parents: Vec<Option<u32>> = vec![None];
        while let Some(parent) = parents.pop() {
            let name = reader.varint()?;
            let name = reader.take(usize::try_from(name).unwrap_or(usize::MAX))?;
            let name = std::str::from_utf8(name).map_err(|_invalid| reader.wrong(Wrong::Text))?;
            let value = reader.varint()?;
            let value =
                i64::try_from(value).map_err(|_large| reader.wrong(Wrong::Range { value }))?;
            let node = match parent {
                Some(parent) => tree.child(parent, name),
                None => ROOT,
            };
            // The root has no value of its own: what other writers give it is of stacks without frames.
            let of_value =
                if node == ROOT && value > 0 { tree.child(ROOT, NO_STACK) } else { node };
            tree.add_to(of_value, value);
            let children = reader.varint()?;
            let children = usize::try_from(children).unwrap_or(usize::MAX);
            let limit = reader.bytes.len() / LEAST_NODE_BYTES;
            if children.saturating_add(parents.len()) > limit {
                return Err(reader.wrong(Wrong::TooMany { what: "nodes to come", limit }));
            }
            parents.resize(parents.len() + children, Some(node));
        }
        if reader.bytes.is_empty() {
            Ok(tree)
        } else {
            Err(reader.wrong(Wrong::TooMany { what: "bytes behind the last node", limit: 0 }))
        }
    }
}
