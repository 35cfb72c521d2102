//! Call trees as graphs of Graphviz: a node for each function, an edge for each call.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hashbrown::HashMap;

use crate::tree::CallTree;

impl CallTree {
    /// The tree as text of Graphviz's language DOT, of at most so many nodes of the tree and those that stand for the rest.
    ///
    /// A function that calls itself, however indirectly, counts once in its own total, and so does a call in its edge's.
    #[must_use]
    pub fn dot(&self, max_nodes: usize) -> String {
        let cut = self.cut(max_nodes);
        let mut functions: BTreeMap<&str, [i64; 2]> = BTreeMap::new();
        let mut calls: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        let mut path = Path::default();
        for node in cut.flat().iter().skip(1) {
            path.truncate(node.depth - 1);
            let name = cut.name(node.key);
            let ([own], [total]) = (node.own, node.total);
            let sums = functions.entry(name).or_default();
            sums[0] = sums[0].saturating_add(own);
            if !path.has(node.key) {
                sums[1] = sums[1].saturating_add(total);
            }
            if let Some(&caller) = path.keys.last() {
                let call = calls.entry((cut.name(caller), name)).or_default();
                if !path.has_call((caller, node.key)) {
                    *call = call.saturating_add(total);
                }
            }
            path.push(node.key);
        }
        let mut out = String::from("digraph \"calls\" {\nnode [shape=box]\n");
        let numbers: BTreeMap<&str, usize> = functions.keys().copied().zip(1..).collect();
        for (name, [own, total]) in &functions {
            let number = numbers.get(name).copied().unwrap_or_default();
            let name = name.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            line(
                &mut out,
                format_args!("N{number} [label=\"{name}\\nself {own}\\ntotal {total}\"]"),
            );
        }
        for ((caller, callee), total) in &calls {
            let number = |name: &str| numbers.get(name).copied().unwrap_or_default();
            let (caller, callee) = (number(caller), number(callee));
            line(&mut out, format_args!("N{caller} -> N{callee} [label=\"{total}\"]"));
        }
        out.push_str("}\n");
        out
    }
}

/// Functions from the root to a node, and how often each of them and each call is among them.
#[derive(Default)]
struct Path {
    keys: Vec<u32>,
    functions: HashMap<u32, usize>,
    calls: HashMap<(u32, u32), usize>,
}

impl Path {
    fn has(&self, key: u32) -> bool {
        self.functions.get(&key).is_some_and(|count| *count > 0)
    }

    fn has_call(&self, call: (u32, u32)) -> bool {
        self.calls.get(&call).is_some_and(|count| *count > 0)
    }

    fn push(&mut self, key: u32) {
        if let Some(&caller) = self.keys.last() {
            *self.calls.entry((caller, key)).or_default() += 1;
        }
        *self.functions.entry(key).or_default() += 1;
        self.keys.push(key);
    }

    fn truncate(&mut self, length: usize) {
        while self.keys.len() > length {
            let Some(key) = self.keys.pop() else { return };
            *self.functions.entry(key).or_default() -= 1;
            if let Some(&caller) = self.keys.last() {
                *self.calls.entry((caller, key)).or_default() -= 1;
            }
        }
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a text takes all");
}
