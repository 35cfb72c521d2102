//! A flame graph as one page that needs nothing else: no server, no network, no other file.
//!
//! Exactly the page's own style and script may run: the policy names them by their digests, and names from profiles reach the page as
//! text only.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hashbrown::HashMap;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::weights::{Label, Weights, percent};

const MARKUP: &str = include_str!("../../assets/flame.html");
const STYLE: &str = include_str!("../../assets/flame.css");
const SCRIPT: &str = include_str!("../../assets/flame.js");

/// Kinds of frames that have a colour.
const KINDS: [&str; 14] = [
    "process", "native", "kernel", "cpython", "v8js", "jvm", "go", "rust", "luajit", "dotnet",
    "ruby", "php", "perl", "beam",
];

/// Nodes of a tree that a page holds. Beyond, those with the least value are left out, and the page says how much that is.
const MAX_NODES: usize = 400_000;

/// The page, below a title such as the command that was profiled.
#[must_use]
pub fn flame_graph(weights: &Weights, title: &str) -> String {
    let stacks = weights.stacks();
    let tree = Tree::of(&stacks);
    let mut kinds: Vec<&str> =
        KINDS.iter().copied().filter(|kind| tree.labels.iter().any(|l| l.kind == *kind)).collect();
    if tree.labels.iter().any(|label| !KINDS.contains(&label.kind.as_str())) {
        kinds.push("other");
    }
    let labels: Vec<_> =
        tree.labels.iter().map(|l| json!([l.name, l.module, l.kind, l.inlined])).collect();
    let (kind, unit) = weights.kind();
    let data = json!({
        "title": title,
        "cover": format!("{} {kind} in {} samples", weights.amount(weights.total()), weights.samples()),
        "notices": notices(weights, &tree),
        "unit": unit,
        "kinds": kinds,
        "labels": labels,
        "nodes": tree.nodes,
    });
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'",
        digest(SCRIPT),
        digest(STYLE)
    );
    // JSON cannot end the element around it: `<` occurs only inside strings, where an escape says the same.
    let data = data.to_string().replace('<', "\\u003c");
    let fill = |page: String, place: &str, text: &str| match page.split_once(place) {
        Some((before, after)) => [before, text, after].concat(),
        None => page,
    };
    let page = fill(MARKUP.to_owned(), "{{policy}}", &policy);
    let page = fill(page, "{{style}}", STYLE);
    // The script comes before the data: what a profile holds is never looked through for places.
    let page = fill(page, "{{script}}", SCRIPT);
    fill(page, "{{data}}", &data)
}

fn digest(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

fn notices(weights: &Weights, tree: &Tree<'_>) -> Vec<String> {
    let mut notices = Vec::new();
    for (class, count) in weights.lost() {
        notices.push(format!("{count} samples were lost ({class})."));
    }
    if weights.other_kinds() != 0 {
        notices.push(format!("{} samples of another kind are not shown.", weights.other_kinds()));
    }
    if weights.left_out() != 0 {
        notices.push(format!(
            "{} samples are not shown: there was no room for their stacks.",
            weights.left_out()
        ));
    }
    if weights.whole() < weights.samples() {
        let cut = weights.samples() - weights.whole();
        notices.push(format!("{cut} of {} stacks do not reach the root.", weights.samples()));
    }
    if tree.left_out != 0 {
        let share = percent(tree.left_out, weights.total());
        notices.push(format!(
            "Stacks of {share:.2} % of the whole are left out: too many for a page."
        ));
    }
    notices
}

/// Stacks with common beginnings joined, in preorder.
struct Tree<'a> {
    labels: Vec<&'a Label>,
    /// Label, depth and self value of each node.
    nodes: Vec<i64>,
    left_out: i64,
}

impl<'a> Tree<'a> {
    /// Stacks come sorted, so what they share with the one before is what they share at all.
    fn of(stacks: &[(Vec<&'a Label>, i64)]) -> Self {
        let mut tree = Self { labels: Vec::new(), nodes: Vec::new(), left_out: 0 };
        let mut known: HashMap<&Label, i64> = HashMap::new();
        let least = least_shown(stacks);
        let mut before: &[&Label] = &[];
        for (stack, value) in stacks.iter().filter(|(stack, _)| !stack.is_empty()) {
            if *value < least {
                tree.left_out = tree.left_out.saturating_add(*value);
                continue;
            }
            let common = before.iter().zip(stack).take_while(|(a, b)| a == b).count();
            for (depth, label) in (0i64..).zip(stack).skip(common) {
                let id = *known.entry(*label).or_insert_with(|| {
                    tree.labels.push(label);
                    i64::try_from(tree.labels.len() - 1).unwrap_or(i64::MAX)
                });
                tree.nodes.extend([id, depth, 0]);
            }
            // A stack that only begins another was sorted before it: the last node is this stack's own.
            if let Some(own) = tree.nodes.last_mut() {
                *own = own.saturating_add(*value);
            }
            before = stack;
        }
        tree
    }
}

/// The least value of a stack that is shown so that the page stays bounded; every stack is when all fit.
fn least_shown(stacks: &[(Vec<&Label>, i64)]) -> i64 {
    let mut sizes: Vec<(i64, usize)> =
        stacks.iter().map(|(stack, value)| (*value, stack.len())).collect();
    if sizes.iter().map(|(_, length)| length).sum::<usize>() <= MAX_NODES {
        return i64::MIN;
    }
    sizes.sort_unstable_by_key(|(value, _)| std::cmp::Reverse(*value));
    let mut nodes = 0;
    let cut = sizes.iter().find(|(_, length)| {
        nodes += length;
        nodes > MAX_NODES
    });
    cut.map_or(i64::MIN, |(value, _)| value.saturating_add(1))
}
