//! `GET /flame.svg`: a flame graph, or the difference of two, as a document that zooms and searches by itself.
//!
//! [`inferno`] draws it: it is kept up, needs a few small crates and neither a build of scripts nor copies of them, and its documents stand alone. Two of them fit
//! into one page, and the policy of each lets nothing run but inferno's script: text of a profile cannot become code, even if it reached the markup. Components with
//! more to offer (d3-flame-graph, Grafana's) come from npm. What it lacks for keys and readers of screens the page adds.
//!
//! | parameter | |
//! |---|---|
//! | `type`, `selector`, `start`, `end` | as in `SelectMergeStacktraces`: profile type, labels in braces, milliseconds |
//! | `base_selector`, `base_start`, `base_end` | what it is compared with; all three or none |
//! | `theme` | `light` or `dark` |
//! | `tenant` | as the field `X-Scope-OrgID`, which a frame of a page cannot send |

use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::LazyLock;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flame::{CallTree, MergedCalls};
use inferno::flamegraph::color::{BackgroundColor, BasicPalette, Color, Palette, StrokeColor};
use inferno::flamegraph::{Direction, Options, TextTruncateDirection, from_lines};
use model::samples::ProfileType;
use serde::Deserialize;
use store::block::Detail;
use store::lake::name::Tenant;
use wire::pyroscope::{self as connect, Code, SelectMergeStacktracesRequest};

use super::querier::visit;
use super::render::rules;
use super::{Failed, Inner, Kind, Profiles, TENANT};
use crate::guard::{Framing, protect};
use crate::page::source_digest;

/// Bytes of all stacks as text: of those that would take more, less deep frames are drawn.
const MAX_TEXT_BYTES: usize = 16 << 20;
/// How deep frames are drawn, tried one after the other.
const DEPTHS: [usize; 6] = [1024, 512, 256, 128, 64, 32];
/// Bytes of a function's name that are drawn.
const MAX_NAME_BYTES: usize = 256;
/// The sum of a graph that a browser computes with exactly (2^53); larger values are drawn in multiples of a power of two.
const MAX_SUM: u128 = 1 << 53;
/// The change that has the full colour in a difference, as a part of all: smaller ones would look as grave where there are no larger ones.
const FULL_COLOUR: u128 = 20;
/// The one handler of a document, which `inferno` writes.
const HANDLER: &str = "init(evt)";

#[derive(Debug, Deserialize)]
pub(super) struct Parameters {
    r#type: String,
    selector: String,
    start: i64,
    end: i64,
    base_selector: Option<String>,
    base_start: Option<i64>,
    base_end: Option<i64>,
    #[serde(default)]
    theme: Theme,
    tenant: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Theme {
    #[default]
    Light,
    Dark,
}

/// The document.
pub(super) async fn answer(
    State(profiles): State<Profiles>,
    asked: Result<Query<Parameters>, QueryRejection>,
    mut request: Request,
) -> Response {
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(wrong) => return Failed(connect::Error::invalid(wrong.body_text())).into_response(),
    };
    if let Some(tenant) = asked.tenant.as_deref().and_then(|it| HeaderValue::from_str(it).ok()) {
        request.headers_mut().entry(TENANT).or_insert(tenant);
    }
    let theme = asked.theme;
    let work = move |inner: &Inner, tenant: &Tenant, _: &_, _: &[u8]| drawn(inner, tenant, asked);
    match profiles.work(Kind::Question, request, work).await {
        Ok(Some(document)) => {
            let kind = [(header::CONTENT_TYPE, "image/svg+xml; charset=utf-8")];
            let mut response = (kind, document).into_response();
            protect(response.headers_mut(), policy(theme), Framing::Ours);
            response
        }
        Ok(None) => (StatusCode::NOT_FOUND, "no samples of this\n").into_response(),
        Err(error) => Failed(error).into_response(),
    }
}

/// The document; `None` when there are no samples.
fn drawn(
    inner: &Inner,
    tenant: &Tenant,
    asked: Parameters,
) -> Result<Option<Vec<u8>>, connect::Error> {
    let Parameters { r#type, selector, start, end, .. } = asked;
    let of: ProfileType =
        r#type.parse().map_err(|error| connect::Error::invalid(format!("{error}")))?;
    let rules = rules(inner);
    // The call tree of a side, and how many nodes of it are drawn.
    let side = |label_selector, start, end| {
        let profile_type_id = r#type.clone();
        let asked = SelectMergeStacktracesRequest {
            profile_type_id,
            label_selector,
            start,
            end,
            ..SelectMergeStacktracesRequest::default()
        };
        let Some(question) = rules.stacktraces(&asked)? else {
            return Ok((CallTree::new(), 0));
        };
        let mut calls = MergedCalls::new(&question);
        visit(inner, tenant, &question.selection, Detail::Totals, |batch| calls.add(batch))?;
        Ok::<_, connect::Error>((calls.finish(), question.max_nodes))
    };
    let (tree, most) = side(selector, start, end)?;
    let stacks = match (asked.base_selector, asked.base_start, asked.base_end) {
        (None, None, None) => Stacks::of(&tree.cut(most)),
        (Some(selector), Some(start), Some(end)) => {
            let (base, base_most) = side(selector, start, end)?;
            Stacks::of_both(&base, &tree, most.max(base_most))
        }
        _ => {
            let words = "base_selector, base_start and base_end go together";
            return Err(connect::Error::invalid(words));
        }
    };
    stacks.draw(&of, asked.theme).map_err(|error| {
        connect::Error::new(Code::Internal, format!("the graph cannot be drawn: {error}"))
    })
}

/// Stacks and what ends in them, as `inferno` draws them: in depth-first order.
struct Stacks {
    stacks: Vec<(Vec<Rc<str>>, [i64; 2])>,
    /// Whether there are two sides; else the value is the right one's.
    is_diff: bool,
}

impl Stacks {
    fn of(tree: &CallTree) -> Self {
        let (stacks, mut names) = (tree.stacks(), Names::default());
        let stacks = stacks.iter().map(|(stack, own)| (names.of(stack), [0, *own])).collect();
        Self { stacks, is_diff: false }
    }

    fn of_both(left: &CallTree, right: &CallTree, max_nodes: usize) -> Self {
        let (mut stacks, mut names) = (Vec::new(), Names::default());
        CallTree::diff_stacks(left, right, max_nodes, |stack, own| {
            stacks.push((names.of(stack), own))
        });
        Self { stacks, is_diff: true }
    }

    /// A line for each stack: names with `;` between them, and its value; of a difference that on the left before it, as a share of as much as the right side
    /// has in all, so that times of different lengths compare. Also by how many powers of two all values are divided.
    fn lines(&self) -> (Vec<String>, u32) {
        let sum = |side: usize| -> u128 {
            let own =
                |own: &[i64; 2]| own.get(side).map_or(0, |own| u128::from(own.unsigned_abs()));
            self.stacks.iter().map(|(_, values)| own(values)).sum()
        };
        let [left, right] = [sum(0), sum(1)];
        let shift = (0..).find(|&shift| right >> shift <= MAX_SUM).unwrap_or_default();
        let scaled = |value: i64| u128::from(value.unsigned_abs()) >> shift;
        let as_right = |value: i64| {
            let value = u128::from(value.unsigned_abs());
            // Both factors are below 2^97 at most where values are below 2^63 and there are fewer than 2^34 stacks.
            value.saturating_mul(right).checked_div(left).unwrap_or_default() >> shift
        };
        let depth = self.depth();
        let mut lines: Vec<String> = Vec::with_capacity(self.stacks.len());
        let mut at = 0;
        while let Some((first, _)) = self.stacks.get(at) {
            let kept = cut(first, depth);
            let rest = self.stacks.get(at..).unwrap_or_default();
            let same = rest.iter().take_while(|(stack, _)| cut(stack, depth) == kept);
            let (mut own, mut count) = ([0, 0], 0);
            for (_, [left, right]) in same {
                own = [own[0] + as_right(*left), own[1] + scaled(*right)];
                count += 1;
            }
            at += count;
            let mut line = kept.join(";");
            // Writing into text does not fail.
            let _written = if self.is_diff {
                write!(line, " {} {}", own[0], own[1])
            } else {
                write!(line, " {}", own[1])
            };
            lines.push(line);
        }
        if self.is_diff {
            // As wide as nothing, so it is not drawn; the greatest change decides how deep colours are.
            lines.push(format!("scale {} 0", (right >> shift) / FULL_COLOUR));
        }
        (lines, shift)
    }

    /// How many frames of each stack are drawn.
    fn depth(&self) -> usize {
        let bytes = |depth: usize| -> usize {
            let of = |stack: &Vec<Rc<str>>| {
                cut(stack, depth).iter().map(|name| name.len() + 1).sum::<usize>()
            };
            self.stacks.iter().map(|(stack, _)| of(stack)).sum()
        };
        let fits = DEPTHS.into_iter().find(|depth| bytes(*depth) <= MAX_TEXT_BYTES);
        fits.unwrap_or(1)
    }

    fn draw(&self, of: &ProfileType, theme: Theme) -> std::io::Result<Option<Vec<u8>>> {
        let (lines, shift) = self.lines();
        if self.stacks.iter().all(|(_, [_, right])| *right == 0) {
            return Ok(None);
        }
        let mut options = options(theme);
        let (factor, unit) = match of.sample_unit.as_str() {
            "nanoseconds" => (1e-6, "ms"),
            "" => (1.0, "samples"),
            unit => (1.0, unit),
        };
        options.factor = factor * f64::from(shift).exp2();
        options.count_name = text(unit);
        let mut document = Vec::new();
        // The component turns the lines of a flame chart round, and takes them in this order then.
        from_lines(&mut options, lines.iter().rev().map(String::as_str), &mut document)?;
        Ok(Some(document))
    }
}

fn cut<T>(stack: &[T], depth: usize) -> &[T] {
    stack.get(..depth).unwrap_or(stack)
}

/// Names as they are drawn, each of which is made once: a chain of calls with many leaves has all of its names in each stack.
#[derive(Default)]
struct Names(HashMap<String, Rc<str>>);

impl Names {
    fn of(&mut self, stack: &[&str]) -> Vec<Rc<str>> {
        cut(stack, DEPTHS[0]).iter().map(|name| self.name(name)).collect()
    }

    fn name(&mut self, name: &str) -> Rc<str> {
        if let Some(known) = self.0.get(name) {
            return Rc::clone(known);
        }
        let drawn: Rc<str> = text(name).into();
        self.0.insert(name.to_owned(), Rc::clone(&drawn));
        drawn
    }
}

/// A name that is one name to `inferno` and can be part of XML: the semicolon is the Greek question mark, which looks alike, a space does not break, and
/// characters that would move or hide their neighbours are shown as their codes, as in the page.
fn text(name: &str) -> String {
    if name.trim().is_empty() {
        return "(no\u{a0}name)".to_owned();
    }
    let mut out = String::with_capacity(name.len().min(MAX_NAME_BYTES + 16));
    for character in name.chars() {
        if out.len() >= MAX_NAME_BYTES {
            out.push('…');
            break;
        }
        match character {
            ';' => out.push('\u{37e}'),
            ' ' => out.push('\u{a0}'),
            '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => out.extend(character.escape_unicode()),
            _ if character.is_control() => out.extend(character.escape_unicode()),
            _ => out.push(character),
        }
    }
    out
}

fn options(theme: Theme) -> Options<'static> {
    let color = |[r, g, b]: [u8; 3]| Color { r, g, b };
    let (ground, ink) = match theme {
        Theme::Light => ([0xff, 0xff, 0xff], [0x1b, 0x21, 0x27]),
        Theme::Dark => ([0x1a, 0x1f, 0x25], [0xe3, 0xe8, 0xec]),
    };
    let mut options = Options::default();
    options.bgcolors = Some(BackgroundColor::Flat(color(ground)));
    options.stroke_color = StrokeColor::Color(color(ground));
    options.uicolor = color(ink);
    options.colors = Palette::Basic(BasicPalette::Orange);
    options.deterministic = true;
    options.direction = Direction::Inverted;
    options.flame_chart = true;
    options.font_size = 12;
    options.frame_height = 19;
    options.min_width = 0.04;
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.title = "\u{a0}".to_owned();
    options
}

/// What documents of a theme may do: run the script that the component writes, and look as it says.
fn policy(theme: Theme) -> &'static str {
    static POLICIES: LazyLock<[String; 2]> = LazyLock::new(|| {
        [Theme::Light, Theme::Dark].map(|theme| {
            let mut document = Vec::new();
            // One that is known, so that what stands in it is the component's own.
            let drawn = from_lines(&mut options(theme), ["a 1"], &mut document);
            let document = String::from_utf8_lossy(&document);
            if drawn.is_err() {
                tracing::error!("the component draws nothing");
            }
            let script = element(&document, "<script type=\"text/ecmascript\">", "</script>");
            let style = element(&document, "<style type=\"text/css\">", "</style>");
            format!(
                "default-src 'none'; script-src 'unsafe-hashes' '{}' '{}'; style-src '{}'; base-uri 'none'; form-action 'none'",
                source_digest(&script),
                source_digest(HANDLER),
                source_digest(&style)
            )
        })
    });
    let [light, dark] = &*POLICIES;
    match theme {
        Theme::Light => light,
        Theme::Dark => dark,
    }
}

/// The text of an element, as a browser has it.
fn element(document: &str, begin: &str, end: &str) -> String {
    let inside = document.split_once(begin).and_then(|(_, rest)| rest.split_once(end));
    let (inside, _) = inside.unwrap_or_default();
    inside.replace("<![CDATA[", "").replace("]]>", "").replace("\r\n", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(stacks: &[(&[&str], i64)]) -> CallTree {
        let mut tree = CallTree::new();
        stacks.iter().for_each(|(stack, value)| tree.add_stack(stack.iter().copied(), *value));
        tree
    }

    fn document(stacks: &Stacks, theme: Theme) -> String {
        let of = "process_cpu:cpu:nanoseconds:cpu:nanoseconds".parse().expect("a profile type");
        String::from_utf8(stacks.draw(&of, theme).expect("drawn").expect("samples")).expect("text")
    }

    fn boxes(document: &str, name: &str) -> usize {
        document.matches(&format!("<title>{name} (")).count()
    }

    #[test]
    fn a_function_has_one_box_whatever_its_neighbours_are_called() {
        // Lines of text would sort as foo, foo(int), foo;baz.
        let tree = tree(&[(&["foo"], 1), (&["foo(int)", "bar"], 2), (&["foo", "baz"], 4)]);
        let document = document(&Stacks::of(&tree), Theme::Light);
        for (name, count) in [("foo", 1), ("foo(int)", 1), ("bar", 1), ("baz", 1), ("all", 1)] {
            assert_eq!(boxes(&document, name), count, "{name} in {document}");
        }
        assert!(document.contains("total_samples=\"7\""), "{document}");
    }

    #[test]
    fn names_are_text_and_no_part_of_the_format() {
        let hostile = "<script>alert(1)</script>]]>";
        let names = [hostile, "[u8; 8]", "call 5 7", "# note", "\u{1}\u{202e}", "", " "];
        let stacks: Vec<(&[&str], i64)> =
            names.iter().map(|name| (std::slice::from_ref(name), 1)).collect();
        let document = document(&Stacks::of(&tree(&stacks)), Theme::Dark);
        assert_eq!(document.matches("<script").count(), 1);
        assert!(document.contains("total_samples=\"7\""), "{document}");
        let shown = [
            "&lt;script&gt;alert(1)&lt;/script&gt;]]&gt;",
            "[u8\u{37e}\u{a0}8]",
            "call\u{a0}5\u{a0}7",
            "#\u{a0}note",
            "\\u{1}\\u{202e}",
        ];
        assert_eq!(boxes(&document, "(no\u{a0}name)"), 2);
        for name in shown {
            assert_eq!(boxes(&document, name), 1, "{name} in {document}");
        }
    }

    #[test]
    fn values_of_any_size_are_drawn() {
        let most = tree(&[(&["a"], i64::MAX), (&["b"], i64::MAX), (&["c"], 1)]);
        let small = tree(&[(&["a"], 1)]);
        assert_eq!(boxes(&document(&Stacks::of(&most), Theme::Light), "a"), 1);
        for (left, right) in
            [(&small, &most), (&most, &small), (&CallTree::new(), &most), (&most, &most)]
        {
            assert_eq!(boxes(&document(&Stacks::of_both(left, right, 100), Theme::Light), "a"), 1);
        }
        let nothing = Stacks::of_both(&most, &CallTree::new(), 100);
        let of = "process_cpu:cpu:nanoseconds:cpu:nanoseconds".parse().expect("a profile type");
        assert!(nothing.draw(&of, Theme::Light).expect("drawn").is_none());
    }

    #[test]
    fn a_difference_is_one_of_shares() {
        let left = tree(&[(&["main", "a"], 10), (&["main", "b"], 10)]);
        let right = tree(&[(&["main", "a"], 3_000), (&["main", "b"], 1_000)]);
        let (lines, _) = Stacks::of_both(&left, &right, 100).lines();
        assert_eq!(lines, ["main;a 2000 3000", "main;b 2000 1000", "scale 200 0"]);
    }

    #[test]
    fn a_small_change_looks_small() {
        let fill = |left: i64, right: i64| {
            let side = |a| tree(&[(&["a"], a), (&["b"], 100_000 - a)]);
            let document = document(&Stacks::of_both(&side(left), &side(right), 100), Theme::Light);
            assert!(!document.contains("scale ("), "{document}");
            let rest = document.split_once("<title>a (").expect("the frame").1;
            let fill = rest.split_once("fill=\"rgb(").expect("a colour").1;
            fill.split(',').nth(1).expect("its green").parse::<u8>().expect("a number")
        };
        let (none, small, large) =
            (fill(50_000, 50_000), fill(50_000, 50_500), fill(50_000, 56_000));
        assert!(none > small && small > 200 && large < 110, "{none} {small} {large}");
    }

    #[test]
    fn stacks_that_take_too_much_room_are_drawn_less_deep() {
        let names: Vec<String> = (0..1000).map(|n| format!("{n:0200}")).collect();
        let mut deep = CallTree::new();
        for leaf in 0..400 {
            let leaf = leaf.to_string();
            deep.add_stack(names.iter().map(String::as_str).chain([leaf.as_str()]), 1);
        }
        let (lines, _) = Stacks::of(&deep).lines();
        assert_eq!(lines.len(), 1);
        assert!(lines.concat().ends_with(" 400"));
        assert_eq!(lines.concat().matches(';').count(), 127);
    }

    #[test]
    fn the_policy_names_the_script_and_the_style_of_each_document() {
        for theme in [Theme::Light, Theme::Dark] {
            let of_one = Stacks::of(&tree(&[(&["</style>", "</script>"], 7)]));
            let document = document(&of_one, theme);
            for (begin, end) in [
                ("<script type=\"text/ecmascript\">", "</script>"),
                ("<style type=\"text/css\">", "</style>"),
            ] {
                let text = element(&document, begin, end);
                assert!(text.len() > 100, "{text}");
                assert!(policy(theme).contains(&source_digest(&text)), "{theme:?} {begin}");
            }
            assert!(document.contains(&format!("onload=\"{HANDLER}\"")));
        }
    }
}
