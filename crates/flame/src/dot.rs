//! Call trees as graphs of Graphviz: a node for each function, an edge for each call.

use std::collections::BTreeMap;
use std::fmt::Write as _;

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
        let mut path: Vec<&str> = Vec::new();
        for node in cut.flat().iter().skip(1) {
            path.truncate(node.depth - 1);
            let name = cut.name(node.key);
            let ([own], [total]) = (node.own, node.total);
            let sums = functions.entry(name).or_default();
            sums[0] = sums[0].saturating_add(own);
            if !path.contains(&name) {
                sums[1] = sums[1].saturating_add(total);
            }
            if let Some(caller) = path.last() {
                let is_known = path.windows(2).any(|pair| pair == [*caller, name]);
                let call = calls.entry((caller, name)).or_default();
                if !is_known {
                    *call = call.saturating_add(total);
                }
            }
            path.push(name);
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

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a text takes all");
}
