//! Bytes of blocks that were asked for lately.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::name::BlockName;

/// Those asked for longest ago go first.
#[derive(Debug)]
pub(super) struct Cache {
    blocks: BTreeMap<BlockName, Bytes>,
    /// The order in which they came.
    order: VecDeque<BlockName>,
    bytes: usize,
    most: usize,
}

impl Cache {
    /// With room for so many bytes.
    pub(super) const fn new(most: usize) -> Self {
        Self { blocks: BTreeMap::new(), order: VecDeque::new(), bytes: 0, most }
    }

    pub(super) fn get(&self, name: &BlockName) -> Option<Bytes> {
        self.blocks.get(name).cloned()
    }

    pub(super) fn put(&mut self, name: BlockName, bytes: Bytes) {
        if bytes.len() > self.most || self.blocks.contains_key(&name) {
            return;
        }
        while self.bytes + bytes.len() > self.most {
            let Some(oldest) = self.order.pop_front() else { break };
            self.remove(&oldest);
        }
        self.bytes += bytes.len();
        self.order.push_back(name.clone());
        self.blocks.insert(name, bytes);
    }

    pub(super) fn remove(&mut self, name: &BlockName) {
        if let Some(bytes) = self.blocks.remove(name) {
            self.bytes -= bytes.len();
            self.order.retain(|other| other != name);
        }
    }
}
