//! Following a reference downwards from a field: to the integers that can be meant.
//!
//! - Structures are entered by the member's name.
//! - Arrays have no place in a reference. One that the reference stands in is entered at the current element, any
//!   other refused: which element would count?
//! - A variant that the reference stands in is entered at the current option. In any other every option must lead on;
//!   the option that was decoded counts. A reference may also name one option, which must then have been chosen.
//!
//! Both readings of a variant occur: options left out (yactfr) and named (Babeltrace 2). A reference has the first
//! one when every option has the member that it goes on with.

use std::collections::HashMap;

use super::scope::Opened;
use crate::layout::{Kind, Node};
use crate::work;

/// What a reference leads to, and where a reader of it must have been.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The integers that can be meant, in the order of the packet. The one decoded last counts.
    pub(crate) targets: Vec<u32>,
    /// Variants of which the reference names one option.
    pub(crate) chosen: Vec<u32>,
}

/// What a reference is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Length,
    Selector,
}

pub(crate) const NO_FIELD: &str = "leads to no earlier field";

/// Children of compounds with many of them, by name.
#[derive(Debug, Default)]
pub(crate) struct Members(HashMap<u32, ByName>);

#[derive(Debug, Default)]
struct ByName {
    nodes: HashMap<Box<str>, u32>,
    /// The first child that is not in the table.
    next: Option<u32>,
}

/// So many children are looked at one by one before a table is made.
const FEW: usize = 16;

/// Follows `names` from the node `from`. `opened`: the compounds around the reference, outermost first. Each step
/// takes one from `budget`.
pub(crate) fn find(
    nodes: &[Node],
    members: &mut Members,
    opened: &[Opened],
    from: u32,
    names: &[Box<str>],
    wanted: Wanted,
    budget: &mut usize,
) -> Result<Place, &'static str> {
    let mut search = Search { nodes, members, opened, wanted };
    let mut place = Place::default();
    let mut left = vec![(from, names)];
    while let Some((at, names)) = left.pop() {
        *budget = budget.checked_sub(1).ok_or("leads to too many fields")?;
        search.step(at, names, &mut place, &mut left)?;
    }
    Ok(place)
}

struct Search<'s> {
    nodes: &'s [Node],
    members: &'s mut Members,
    opened: &'s [Opened],
    wanted: Wanted,
}

impl<'s> Search<'s> {
    fn step<'n>(
        &mut self,
        at: u32,
        names: &'n [Box<str>],
        place: &mut Place,
        left: &mut Vec<(u32, &'n [Box<str>])>,
    ) -> Result<(), &'static str> {
        work::step();
        let node = self.node(at).ok_or(NO_FIELD)?;
        match (&node.kind, names.split_first()) {
            (Kind::Integer(int), None) => {
                match self.wanted {
                    Wanted::Length if int.signed => return Err("leads to a signed integer"),
                    Wanted::Selector if int.mappings.is_none() => {
                        return Err("leads to no enumeration");
                    }
                    _ => place.targets.push(at),
                }
                Ok(())
            }
            (Kind::Structure, Some((first, rest))) => {
                left.push((self.member(at, first).ok_or(NO_FIELD)?, rest));
                Ok(())
            }
            (Kind::Array(_), Some(_)) => {
                let element = self.depth(at).map(|_| at + 1);
                left.push((element.ok_or("leads into an array that it does not stand in")?, names));
                Ok(())
            }
            (Kind::Variant(selector), _) => match self.depth(at) {
                Some(depth) => {
                    let option = self.opened.get(depth + 1).ok_or(NO_FIELD)?.node;
                    left.push((option, self.names_after(&[option], names).unwrap_or(names)));
                    Ok(())
                }
                None => self.options(at, &selector.options, names, place, left),
            },
            _ => Err("leads to something other than an integer"),
        }
    }

    /// Goes on in the options of a variant that the reference does not stand in.
    fn options<'n>(
        &mut self,
        at: u32,
        options: &[u32],
        names: &'n [Box<str>],
        place: &mut Place,
        left: &mut Vec<(u32, &'n [Box<str>])>,
    ) -> Result<(), &'static str> {
        if self.wanted == Wanted::Selector {
            return Err("leads into a variant that it does not stand in");
        }
        if let Some(rest) = self.names_after(options, names) {
            let named = names.first().and_then(|first| self.member(at, first)).ok_or(NO_FIELD)?;
            place.chosen.push(at);
            left.push((named, rest));
        } else {
            // The last one pushed is the next one taken.
            left.extend(options.iter().rev().map(|option| (*option, names)));
        }
        Ok(())
    }

    /// The names after an option's own, when the first of `names` is that and not the way into the options.
    fn names_after<'n>(
        &mut self,
        options: &[u32],
        names: &'n [Box<str>],
    ) -> Option<&'n [Box<str>]> {
        let (first, rest) = names.split_first()?;
        let is_option = |option: &u32| {
            work::step();
            self.node(*option).is_some_and(|node| node.name == *first)
        };
        if !options.iter().any(is_option) {
            return None;
        }
        let mut leads_on = |option: &u32| match self.node(*option).map(|node| &node.kind) {
            Some(Kind::Structure) => self.member(*option, first).is_some(),
            Some(Kind::Array(_) | Kind::Variant(_)) => true,
            _ => false,
        };
        let all_lead_on = options.iter().all(&mut leads_on);
        (!all_lead_on).then_some(rest)
    }

    fn node(&self, index: u32) -> Option<&'s Node> {
        self.nodes.get(usize::try_from(index).ok()?)
    }

    /// The position among the open compounds.
    fn depth(&self, node: u32) -> Option<usize> {
        self.opened.binary_search_by_key(&node, |opened| opened.node).ok()
    }

    /// The child after `child`: none after the one that the reference stands in.
    fn after(&self, child: u32) -> Option<u32> {
        if self.depth(child).is_some() { None } else { Some(self.node(child)?.next) }
    }

    /// The child of this name.
    fn member(&mut self, parent: u32, name: &str) -> Option<u32> {
        let end = match self.depth(parent) {
            Some(_) => u32::try_from(self.nodes.len()).ok()?,
            None => self.node(parent)?.next,
        };
        let mut child = Some(parent + 1).filter(|child| *child < end);
        for _ in 0..FEW {
            work::step();
            let at = child?;
            if &*self.node(at)?.name == name {
                return child;
            }
            child = self.after(at).filter(|child| *child < end);
        }
        let mut table = self.members.0.remove(&parent).unwrap_or_default();
        child = table.next.or(child).filter(|child| *child < end);
        while let Some(at) = child {
            work::step();
            // An open child may be asked for again when its name is known for good.
            let Some(node) = self.node(at) else { break };
            table.nodes.insert(node.name.clone(), at);
            child = self.after(at).filter(|child| *child < end);
            table.next = Some(self.after(at).unwrap_or(at));
        }
        let found = table.nodes.get(name).copied();
        self.members.0.insert(parent, table);
        found
    }
}
