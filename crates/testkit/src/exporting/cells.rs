//! Cells of rules against those of functions: each rule that the catalogue has must have just those cells that functions add up to.
//!
//! Nothing is left to slack: a generation of a rule has the cells from the first that the catalogue says to the one before it ended, in
//! each of these the series that it groups by, and nothing else. Functions have all labels, so that what any rule counts can be added up of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::rules::{Shape, Version};

/// Labels without the name, nor the rule's id.
pub(super) type Labels = BTreeMap<String, String>;
/// What series have in a cell, by their labels.
type Sums = BTreeMap<Labels, u64>;
/// The same of cells, by when they begin, milliseconds since 1970.
pub(super) type Cells = BTreeMap<i64, Sums>;

const NAME: &str = "__name__";
const RULE_ID: &str = "profiles_rule_id";

/// What came of the comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Compared {
    /// Cells that were looked at, each of one series.
    pub(super) cells: u64,
    /// What is not as it should be: which rule, generation, cell and series, and both values.
    pub(super) wrong: Vec<String>,
}

/// Cells of Prometheus' answer to a query for ranges, by rule; those of functions are under an empty id. A sample has the time at which
/// its cell ended.
///
/// # Panics
/// When a value is no whole number, or not one that is exact.
pub(super) fn cells(series: &[Value], cell_ms: i64) -> BTreeMap<String, Cells> {
    let mut all = BTreeMap::<String, Cells>::new();
    for series in series {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let labels = series.get("metric").and_then(Value::as_object).into_iter().flatten();
        let mut labels: Labels = labels.map(|(name, value)| (name.clone(), text(value))).collect();
        labels.remove(NAME);
        let cells = all.entry(labels.remove(RULE_ID).unwrap_or_default()).or_default();
        for value in series.get("values").and_then(Value::as_array).into_iter().flatten() {
            let at_s = value.get(0).and_then(Value::as_f64).expect("a time");
            let sum = value.get(1).and_then(Value::as_str).expect("a value");
            #[expect(clippy::cast_possible_truncation, reason = "milliseconds since 1970")]
            let begin_ms = (at_s * 1e3).round() as i64 - cell_ms;
            cells.entry(begin_ms).or_default().insert(labels.clone(), whole(sum));
        }
    }
    all
}

/// A whole number up to 2^53.
fn whole(text: &str) -> u64 {
    let value: f64 = text.parse().expect("a number");
    let is_exact = value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value);
    assert!(is_exact, "{text} is no exact count");
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "looked at above")]
    let whole = value as u64;
    whole
}

/// Compares what rules have with what functions add up to. `asked` says of each metric what was ever asked of it.
pub(super) fn compare(
    functions: &Cells,
    rules: &BTreeMap<String, Cells>,
    versions: &[Version],
    asked: &BTreeMap<String, Vec<Shape>>,
) -> Compared {
    let mut compared = Compared::default();
    for version in versions {
        let shape = asked.get(&version.metric).and_then(|all| all.iter().find(|it| it.is(version)));
        let Some(shape) = shape else {
            compared.wrong.push(format!("{version}: nobody asked for that: {version:?}"));
            continue;
        };
        let is_own = |(cell_ms, _): &(&i64, &Sums)| version.has(**cell_ms);
        let expected = functions.iter().filter(is_own);
        let expected = expected.map(|(cell_ms, sums)| (*cell_ms, shape.sums(sums)));
        let expected: Cells = expected.filter(|(_, sums)| !sums.is_empty()).collect();
        let found = rules.get(&version.id).into_iter().flatten().filter(is_own);
        let found: Cells = found.map(|(cell_ms, sums)| (*cell_ms, sums.clone())).collect();
        compared.add(version, &expected, &found);
    }
    for (id, cells) in rules {
        let own: Vec<&Version> = versions.iter().filter(|it| it.id == *id).collect();
        for (cell_ms, sums) in cells.iter().filter(|(at, _)| !own.iter().any(|it| it.has(**at))) {
            for (labels, sum) in sums {
                let generations: String = own.iter().fold(String::new(), |mut all, version| {
                    write!(all, "; {version}").expect("a text");
                    all
                });
                compared.cells += 1;
                compared.wrong.push(format!(
                    "cell {cell_ms} of rule {id} has {sum} of {labels:?}, and no generation has that cell{generations}"
                ));
            }
        }
    }
    compared
}

impl Compared {
    fn add(&mut self, version: &Version, expected: &Cells, found: &Cells) {
        let ends = [expected.first_key_value(), expected.last_key_value()];
        let [first, last] = ends.map(|end| end.map(|(cell_ms, _)| *cell_ms));
        if let (Some(first), Some(last), true) = (first, last, found.is_empty()) {
            let sums: usize = expected.values().map(Sums::len).sum();
            self.cells += sums as u64;
            self.wrong.push(format!(
                "{version} has none of its {} cells, from {first} to {last}",
                expected.len()
            ));
            return;
        }
        let which = |cell_ms: i64| match Some(cell_ms) {
            at if at == first => "its first cell",
            at if at == last => "its last cell",
            _ => "cell",
        };
        let nothing = Sums::new();
        let mut cells: Vec<i64> = expected.keys().chain(found.keys()).copied().collect();
        cells.sort_unstable();
        cells.dedup();
        for cell_ms in cells {
            let of = |all: &Cells| all.get(&cell_ms).unwrap_or(&nothing).clone();
            let (expected, found) = (of(expected), of(found));
            let mut series: Vec<&Labels> = expected.keys().chain(found.keys()).collect();
            series.sort_unstable();
            series.dedup();
            for labels in series {
                self.cells += 1;
                let (should, is) = (expected.get(labels), found.get(labels));
                if should != is {
                    let said = |sum: Option<&u64>| sum.map_or("nothing".to_owned(), u64::to_string);
                    self.wrong.push(format!(
                        "{version}, {} {cell_ms}: it has {} of {labels:?}, and functions have {}",
                        which(cell_ms),
                        said(is),
                        said(should)
                    ));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const METRIC: &str = "profiles_recorded_law1";

    fn version(generation: u64, shape: &Shape, from_ms: i64, until_ms: Option<i64>) -> Version {
        Version {
            id: "a".to_owned(),
            metric: METRIC.to_owned(),
            generation,
            matchers: vec![shape.matcher()],
            group_by: shape.group_by.iter().map(|&name| name.to_owned()).collect(),
            function: shape.function.clone(),
            from_ms,
            until_ms,
        }
    }

    fn labels(all: &[(&str, &str)]) -> Labels {
        all.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Cells 0 to 5, of which 4 has nothing: in each 1 and 10 of one pod, 100 of another.
    fn functions() -> Cells {
        let of = |function, pod| {
            labels(&[("function", function), ("pod", pod), ("service_name", "shop")])
        };
        let sums = || Sums::from([(of("f1", "0"), 1), (of("f2", "0"), 10), (of("f1", "1"), 100)]);
        [0, 1_000, 2_000, 3_000, 5_000].map(|cell_ms| (cell_ms, sums())).into()
    }

    fn shapes() -> [Shape; 2] {
        let all = Shape { pod: None, group_by: &[], function: None };
        let by_pod = Shape { pod: None, group_by: &["pod"], function: None };
        [all, by_pod]
    }

    /// Generation 1 has cells 1 and 2, and generation 2 those from 3 on.
    fn versions() -> [Version; 2] {
        let [all, by_pod] = shapes();
        [version(1, &all, 1_000, Some(3_000)), version(2, &by_pod, 3_000, None)]
    }

    fn right() -> Cells {
        let all = || Sums::from([(labels(&[]), 111)]);
        let by_pod = || Sums::from([(labels(&[("pod", "0")]), 11), (labels(&[("pod", "1")]), 100)]);
        Cells::from([(1_000, all()), (2_000, all()), (3_000, by_pod()), (5_000, by_pod())])
    }

    fn compared(cells: Cells) -> Compared {
        let asked = BTreeMap::from([(METRIC.to_owned(), shapes().to_vec())]);
        compare(&functions(), &BTreeMap::from([("a".to_owned(), cells)]), &versions(), &asked)
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Cells), said: &[&str]) {
        let mut cells = right();
        change(&mut cells);
        let Compared { wrong, .. } = compared(cells);
        assert_eq!(wrong.len(), said.len(), "{wrong:#?}");
        for (wrong, said) in wrong.iter().zip(said) {
            assert!(wrong.contains(said), "{wrong}");
        }
    }

    #[test]
    fn each_generation_has_just_its_own_cells() {
        assert_eq!(compared(right()), Compared { cells: 6, wrong: Vec::new() });
        assert_eq!(compare(&functions(), &BTreeMap::new(), &[], &BTreeMap::new()).cells, 0);
    }

    #[test]
    fn a_cell_that_is_missing_is_named_also_the_first_the_last_and_all() {
        let all = [
            "generation 1, from 1000 to 3000 has none of its 2 cells, from 1000 to 2000",
            "generation 2, from 3000 on has none of its 2 cells, from 3000 to 5000",
        ];
        check(Cells::clear, &all);
        check(
            |cells| drop(cells.remove(&1_000)),
            &[
                "generation 1, from 1000 to 3000, its first cell 1000: it has nothing of {}, and functions have 111",
            ],
        );
        check(|cells| drop(cells.remove(&2_000)), &["its last cell 2000: it has nothing"]);
        check(
            |cells| drop(cells.remove(&5_000)),
            &[
                "its last cell 5000: it has nothing of {\"pod\": \"0\"}, and functions have 11",
                "{\"pod\": \"1\"}",
            ],
        );
        let one = |cells: &mut Cells| {
            let is_of = |labels: &Labels, _: &mut u64| labels.values().any(|pod| pod == "0");
            cells.get_mut(&3_000).unwrap().retain(is_of);
        };
        check(
            one,
            &["its first cell 3000: it has nothing of {\"pod\": \"1\"}, and functions have 100"],
        );
    }

    #[test]
    fn a_cell_that_no_function_or_no_generation_has_is_named() {
        let more = |cells: &mut Cells| {
            drop(cells.insert(4_000, Sums::from([(labels(&[("pod", "0")]), 7)])))
        };
        check(
            more,
            &[
                "generation 2, from 3000 on, cell 4000: it has 7 of {\"pod\": \"0\"}, and functions have nothing",
            ],
        );
        let before = |cells: &mut Cells| drop(cells.insert(0, Sums::from([(labels(&[]), 111)])));
        check(before, &["cell 0 of rule a has 111 of {}, and no generation has that cell; "]);
        let asked = BTreeMap::from([(METRIC.to_owned(), shapes()[..1].to_vec())]);
        let rules = BTreeMap::from([("a".to_owned(), right()), ("b".to_owned(), right())]);
        let Compared { wrong, .. } = compare(&functions(), &rules, &versions(), &asked);
        assert!(
            wrong[0].contains("generation 2, from 3000 on: nobody asked for that"),
            "{wrong:#?}"
        );
        assert!(wrong[1].contains("of rule b has 111 of {}, and no generation"), "{wrong:#?}");
    }

    #[test]
    fn a_cell_of_another_generation_is_noticed() {
        // As if the change had come a cell late: what the first cell of the second generation should have, and what it has.
        let late = |cells: &mut Cells| drop(cells.insert(3_000, Sums::from([(labels(&[]), 111)])));
        let said = [
            "generation 2, from 3000 on, its first cell 3000: it has 111 of {}, and functions have nothing",
            "{\"pod\": \"0\"}, and functions have 11",
            "{\"pod\": \"1\"}, and functions have 100",
        ];
        check(late, &said);
        check(
            |cells| drop(cells.insert(2_000, Sums::from([(labels(&[]), 112)]))),
            &["its last cell 2000: it has 112 of {}, and functions have 111"],
        );
    }

    #[test]
    fn what_prometheus_answers_is_by_rule_and_begin_of_cells() {
        let series = [json!({
            "metric": { "__name__": METRIC, "profiles_rule_id": "a", "pod": "1" },
            "values": [[1.0, "5"], [2.001, "10000000000"]],
        })];
        let sums = |sum| Sums::from([(labels(&[("pod", "1")]), sum)]);
        let expected = Cells::from([(0, sums(5)), (1_001, sums(10_000_000_000))]);
        assert_eq!(cells(&series, 1_000), BTreeMap::from([("a".to_owned(), expected)]));
    }

    #[test]
    #[should_panic = "0.5 is no exact count"]
    fn a_part_of_a_sample_is_no_sum() {
        whole("0.5");
    }
}
