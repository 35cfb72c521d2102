//! The law: every cut and every grouping gives the answer of the whole, byte for byte.

use model::Timestamp;
use proptest::prelude::*;
use stitch::fact::Fact;
use stitch::{Cover, Error, Summary, Window};

use crate::compare::{answers, same};
use crate::kernel_like::{Step, facts};

fn cover(begin: Timestamp, end: Timestamp) -> Cover {
    Cover { host: "host".into(), begin, end }
}

pub(crate) fn map(facts: &[Fact<&str>], begin: Timestamp, end: Timestamp) -> Summary {
    let mut window = Window::new(cover(begin, end));
    for fact in facts.iter().filter(|fact| begin <= fact.at && fact.at < end) {
        window.add(fact);
    }
    window.finish()
}

/// Merges neighbours in the order that `choices` says, until one is left.
pub(crate) fn reduce(mut parts: Vec<Summary>, choices: &[u16]) -> Summary {
    let mut choices = choices.iter().cycle();
    while parts.len() > 1 {
        let at = usize::from(*choices.next().unwrap()) % (parts.len() - 1);
        let right = parts.remove(at + 1);
        let left = std::mem::replace(&mut parts[at], Summary::identity());
        parts[at] = left.merge(right).unwrap();
    }
    parts.pop().unwrap_or_default()
}

/// The begins and ends of the windows between `begin` and `end` that these cuts give.
fn windows(
    mut cuts: Vec<Timestamp>,
    begin: Timestamp,
    end: Timestamp,
) -> Vec<(Timestamp, Timestamp)> {
    cuts.retain(|cut| begin < *cut && *cut < end);
    cuts.push(begin);
    cuts.push(end);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

fn check(all: &[Fact<&str>], cuts: Vec<Timestamp>, end: Timestamp, choices: &[u16]) {
    let begin = Timestamp::from_nanos(0);
    let whole = answers(&map(all, begin, end));
    let parts: Vec<Summary> =
        windows(cuts, begin, end).into_iter().map(|(from, to)| map(all, from, to)).collect();
    let stitched = answers(&reduce(parts, choices));
    same(&whole.0, &stitched.0);
    same(&whole.1, &stitched.1);
}

/// How many sequences a property is tried on; `STITCH_CASES` asks for a longer search.
#[expect(clippy::disallowed_methods, reason = "how long a test searches is its caller's choice")]
pub(crate) fn cases() -> u32 {
    std::env::var("STITCH_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(300)
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(any::<Step>(), 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn random_cuts_and_groupings_give_the_answer_of_the_whole(
        steps in steps(),
        cuts in prop::collection::vec(0.0..1.0_f64, 0..12),
        choices in prop::collection::vec(any::<u16>(), 1..8),
    ) {
        let (all, end) = facts(&steps);
        #[expect(clippy::cast_possible_truncation, reason = "the sequences last microseconds")]
        let at = |part: f64| Timestamp::from_nanos((part * end.nanos() as f64) as i64);
        check(&all, cuts.into_iter().map(at).collect(), end, &choices);
    }

    #[test]
    fn a_window_for_every_event_gives_the_answer_of_the_whole(
        steps in prop::collection::vec(any::<Step>(), 0..150),
        choices in prop::collection::vec(any::<u16>(), 1..8),
    ) {
        let (all, end) = facts(&steps);
        check(&all, all.iter().map(|fact| fact.at).collect(), end, &choices);
    }

    #[test]
    fn missing_windows_give_one_answer_for_every_grouping(
        steps in steps(),
        missing in prop::collection::vec(any::<bool>(), 10),
        one in prop::collection::vec(any::<u16>(), 1..8),
        other in prop::collection::vec(any::<u16>(), 1..8),
    ) {
        let (all, end) = facts(&steps);
        let tenth = |n: i64| Timestamp::from_nanos(end.nanos() * n / 10);
        let parts: Vec<Summary> = (0..10_i64)
            .zip(&missing)
            .filter(|(n, _)| tenth(*n) < tenth(n + 1))
            .map(|(n, missing)| match missing {
                true => Summary::gap(cover(tenth(n), tenth(n + 1))),
                false => map(&all, tenth(n), tenth(n + 1)),
            })
            .collect();
        prop_assert_eq!(answers(&reduce(parts.clone(), &one)), answers(&reduce(parts, &other)));
    }

    #[test]
    fn the_identity_changes_nothing(steps in steps()) {
        let (all, end) = facts(&steps);
        let some = map(&all, Timestamp::from_nanos(0), end);
        let left = Summary::identity().merge(some.clone()).unwrap();
        let right = some.clone().merge(Summary::identity()).unwrap();
        prop_assert_eq!(&left, &some);
        prop_assert_eq!(&right, &some);
    }
}

#[test]
fn the_same_time_twice_and_a_hole_are_refused() {
    let part = |begin, end| map(&[], Timestamp::from_nanos(begin), Timestamp::from_nanos(end));
    assert!(matches!(part(0, 10).merge(part(0, 10)), Err(Error::CoveredTwice { .. })));
    assert!(matches!(part(0, 10).merge(part(9, 20)), Err(Error::CoveredTwice { .. })));
    assert!(matches!(part(0, 10).merge(part(11, 20)), Err(Error::NotAdjacent { .. })));
    let mut other = Window::new(cover(Timestamp::from_nanos(10), Timestamp::from_nanos(20)));
    other.add(&Fact {
        at: Timestamp::from_nanos(11),
        cpu: None,
        tid: None,
        pid: None,
        kind: stitch::fact::FactKind::Seen,
    });
    assert!(part(0, 10).merge(other.finish()).is_ok());
}
