//! Which number each item of a table has in the packet.

use std::cmp::Ordering;

use super::Common;
use crate::builder::{AttributeValue, Builder, FunctionItem, LocationItem};
use model::intern::item;

/// The order of a table's items in the packet, and each item's number there. What is not used has number 0, as the zero value.
pub(super) struct Order {
    pub(super) list: Vec<u32>,
    numbers: Vec<u32>,
}

impl Order {
    /// As `compare` says, which tells different items apart.
    pub(super) fn by(used: &Used, mut compare: impl FnMut(u32, u32) -> Ordering) -> Self {
        let mut list: Vec<u32> = used.ids().collect();
        list.sort_unstable_by(|&a, &b| compare(a, b));
        Self::of(list, used.0.len())
    }

    /// As they are met for the first time.
    fn by_use(items: usize, ids: impl IntoIterator<Item = u32>) -> Self {
        let mut seen = Used::none(items);
        let list = ids.into_iter().filter(|&id| id != 0 && seen.mark(id)).collect();
        Self::of(list, items)
    }

    fn of(list: Vec<u32>, items: usize) -> Self {
        let mut numbers = vec![0; items];
        for (at, &id) in (1..).zip(&list) {
            if let Some(number) = numbers.get_mut(id as usize) {
                *number = at;
            }
        }
        Self { list, numbers }
    }

    pub(super) fn number(&self, id: u32) -> u32 {
        *item(&self.numbers, id)
    }
}

/// Which items of a table are needed.
pub(super) struct Used(Vec<bool>);

impl Used {
    fn none(items: usize) -> Self {
        Self(vec![false; items])
    }

    pub(super) fn all(items: usize) -> Self {
        Self(vec![true; items])
    }

    pub(super) fn of(items: usize, ids: impl IntoIterator<Item = u32>) -> Self {
        let mut used = Self::none(items);
        ids.into_iter().for_each(|id| {
            used.mark(id);
        });
        used
    }

    /// Whether that is news.
    fn mark(&mut self, id: u32) -> bool {
        self.0.get_mut(id as usize).is_some_and(|used| !std::mem::replace(used, true))
    }

    /// Without the zero value.
    fn ids(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.0).skip(1).filter(|(_, used)| **used).map(|(id, _)| id)
    }
}

/// The order of each table.
pub(super) struct Numbers {
    pub(super) strings: Order,
    pub(super) attributes: Order,
    pub(super) mappings: Order,
    pub(super) functions: Order,
    pub(super) locations: Order,
    pub(super) stacks: Order,
    pub(super) links: Order,
}

impl Numbers {
    pub(super) fn of(builder: &Builder, common: &Common) -> Self {
        let Builder { mappings, functions, locations, stacks, links, groups, .. } = builder;
        let used_stacks = Used::of(stacks.len(), groups.iter().map(|group| group.stack));
        let frames = used_stacks.ids().flat_map(|id| stacks.get(id).iter().map(|frame| frame.0));
        let used_locations = Used::of(locations.len(), frames);
        let used_mappings =
            Used::of(mappings.len(), used_locations.ids().map(|id| locations.get(id).mapping));
        let of_locations = used_locations.ids().flat_map(|id| locations.get(id).attributes);
        let of_mappings = used_mappings.ids().flat_map(|id| mappings.get(id).build_ids);
        let of_samples = common.groups.iter().skip(1).flatten().copied();
        let all = common.attributes.iter().copied().chain(of_samples);
        let used_attributes =
            Used::of(builder.attributes.len(), all.chain(of_locations).chain(of_mappings));

        let attributes = attributes(builder, &used_attributes);
        let mappings = Order::by(&used_mappings, |a, b| {
            let key = |id: u32| {
                let item = mappings.get(id);
                let build_ids = item.build_ids.map(|id| attributes.number(id));
                (text(builder, item.path), item.start, item.limit, item.offset, build_ids)
            };
            key(a).cmp(&key(b))
        });
        let locations_order = locations_by_place(builder, &used_locations, &mappings, &attributes);
        let in_order = locations_order.list.iter();
        let lines = in_order.flat_map(|&id| builder.lines.get(locations.get(id).lines));
        let functions = Order::by_use(functions.len(), lines.map(|(function, _)| *function));
        let stacks = stacks_from_root(builder, &used_stacks, &locations_order);
        let used_links = Used::of(links.len(), groups.iter().map(|group| group.link));
        let links = Order::by(&used_links, |a, b| links.get(a).cmp(links.get(b)));
        let strings = strings(builder, common, &attributes, &mappings, &functions);
        Self { strings, attributes, mappings, functions, locations: locations_order, stacks, links }
    }
}

fn text(builder: &Builder, id: u32) -> &str {
    builder.strings.get(id)
}

/// By key and value.
fn attributes(builder: &Builder, used: &Used) -> Order {
    let text = |id: u32| text(builder, id);
    Order::by(used, |a, b| {
        let (a, b) = (builder.attributes.get(a), builder.attributes.get(b));
        let keys = if a.key == b.key { Ordering::Equal } else { text(a.key).cmp(text(b.key)) };
        let value = |value: AttributeValue| match value {
            AttributeValue::Text(value) => (0, text(value), 0),
            AttributeValue::Number(value) => (1, "", value),
        };
        keys.then_with(|| value(a.value).cmp(&value(b.value)))
    })
}

/// By mapping and address. Code that has neither mapping nor path, an interpreter's or a JIT compiler's, by what it is called.
fn locations_by_place(
    builder: &Builder,
    used: &Used,
    mappings: &Order,
    attributes: &Order,
) -> Order {
    let mut places: Vec<((u32, u32, u64), u32)> = used
        .ids()
        .map(|id| {
            let location = builder.locations.get(id);
            let [_, _, path] = location.attributes.map(|id| attributes.number(id));
            let mapping = mappings.number(location.mapping);
            let address = if (mapping, path) == (0, 0) { 0 } else { location.address };
            ((mapping, path, address), id)
        })
        .collect();
    places.sort_unstable_by(|a, b| {
        a.0.cmp(&b.0).then_with(|| {
            let (a, b) = (builder.locations.get(a.1), builder.locations.get(b.1));
            let attributes = |it: &LocationItem| it.attributes.map(|id| attributes.number(id));
            lines(builder, a, b)
                .then_with(|| (a.address, attributes(a)).cmp(&(b.address, attributes(b))))
        })
    });
    Order::of(places.into_iter().map(|(_, id)| id).collect(), used.0.len())
}

fn lines(builder: &Builder, a: &LocationItem, b: &LocationItem) -> Ordering {
    let line = |&(function, line): &(u32, u32)| {
        let FunctionItem { name, system_name, file, start_line } = *builder.functions.get(function);
        let [name, system_name, file] = [name, system_name, file].map(|id| text(builder, id));
        (file, start_line, name, system_name, line)
    };
    let [a, b] = [a, b].map(|it| builder.lines.get(it.lines));
    a.iter().map(line).cmp(b.iter().map(line))
}

/// By frames, the root first.
fn stacks_from_root(builder: &Builder, used: &Used, locations: &Order) -> Order {
    // Big-endian bytes compare as numbers do, and many at a time.
    let mut roots_first = Vec::new();
    let mut ranges = Vec::new();
    for id in used.ids() {
        let begin = roots_first.len();
        let frames = builder.stacks.get(id).iter().rev();
        roots_first.extend(frames.flat_map(|frame| locations.number(frame.0).to_be_bytes()));
        ranges.push((begin..roots_first.len(), id));
    }
    ranges.sort_unstable_by(|(a, _), (b, _)| {
        roots_first.get(a.clone()).cmp(&roots_first.get(b.clone()))
    });
    Order::of(ranges.into_iter().map(|(_, id)| id).collect(), used.0.len())
}

/// Those of the string table: as they are met, names before files.
fn strings(
    builder: &Builder,
    common: &Common,
    attributes: &Order,
    mappings: &Order,
    functions: &Order,
) -> Order {
    let ((kind, unit), (period, period_unit)) = (common.sample_type, common.period_type);
    let keys = attributes.list.iter().map(|&id| builder.attributes.get(id).key);
    let paths = mappings.list.iter().map(|&id| builder.mappings.get(id).path);
    let functions = || functions.list.iter().map(|&id| builder.functions.get(id));
    let names = functions().flat_map(|function| [function.name, function.system_name]);
    let files = functions().map(|function| function.file);
    let types = [kind, unit, period, period_unit].into_iter();
    Order::by_use(builder.strings.len(), types.chain(keys).chain(paths).chain(names).chain(files))
}
