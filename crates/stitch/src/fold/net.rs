//! Packets by network interface.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Packets and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Packets {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// Packets of one interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InterfaceRow {
    pub(crate) received: Packets,
    pub(crate) sent: Packets,
}

/// Packets by interface. Bound: interfaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interfaces {
    pub(crate) rows: BTreeMap<Arc<str>, InterfaceRow>,
}

impl Packets {
    fn append(&mut self, more: Self) {
        self.packets = self.packets.saturating_add(more.packets);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

impl InterfaceRow {
    pub(crate) fn bytes(&self) -> u64 {
        self.received.bytes.saturating_add(self.sent.bytes)
    }

    fn append(&mut self, more: &Self) {
        self.received.append(more.received);
        self.sent.append(more.sent);
    }
}

impl Interfaces {
    pub(crate) fn take(&mut self, name: &str, bytes: u64, sent: bool) {
        let packet = Packets { packets: 1, bytes };
        let nothing = Packets::default();
        let row = match sent {
            true => InterfaceRow { received: nothing, sent: packet },
            false => InterfaceRow { received: packet, sent: nothing },
        };
        match self.rows.get_mut(name) {
            Some(known) => known.append(&row),
            None => self.rows.entry(name.into()).or_default().append(&row),
        }
    }

    pub(crate) fn append(&mut self, right: Self) {
        for (name, more) in &right.rows {
            self.rows.entry(Arc::clone(name)).or_default().append(more);
        }
    }
}
