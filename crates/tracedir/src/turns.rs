//! Whose turn it is: a heap of lanes by what comes next in them.
//!
//! A turn compares as one number, so that comparing two needs no branch, and the heap is four-ary: the four turns below one lie
//! side by side in one cache line. With a thousand lanes that is five lines for a turn that goes to the bottom, and one
//! comparison for a lane that stays first.

use std::cmp::Ordering;

/// Whose turn it is when: ordered by time, then by lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The time with its sign bit flipped: so it orders without sign as it did with.
    biased: u64,
    lane: usize,
}

impl Turn {
    const SIGN: u64 = 1 << 63;

    #[inline]
    pub(crate) const fn new(at: i64, lane: usize) -> Self {
        Self { biased: at.cast_unsigned() ^ Self::SIGN, lane }
    }

    #[inline]
    pub(crate) const fn at(self) -> i64 {
        (self.biased ^ Self::SIGN).cast_signed()
    }

    #[inline]
    pub(crate) const fn lane(self) -> usize {
        self.lane
    }

    #[inline]
    const fn key(self) -> u128 {
        (self.biased as u128) << 64 | self.lane as u128
    }
}

impl Ord for Turn {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Turn {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Turns that wait.
#[derive(Debug)]
pub(crate) struct Turns {
    /// No turn is after one of the four below it: those of turn `n` are `4n + 1` to `4n + 4`.
    heap: Vec<Turn>,
}

impl Turns {
    pub(crate) fn with_capacity(lanes: usize) -> Self {
        Self { heap: Vec::with_capacity(lanes) }
    }

    pub(crate) fn push(&mut self, turn: Turn) {
        let mut at = self.heap.len();
        self.heap.push(turn);
        while let Some(above) = at.checked_sub(1).map(|at| at / 4) {
            match self.heap.get(above) {
                Some(upper) if turn < *upper => self.heap.swap(above, at),
                _ => break,
            }
            at = above;
        }
    }

    pub(crate) fn first(&self) -> Option<Turn> {
        self.heap.first().copied()
    }

    pub(crate) fn pop(&mut self) -> Option<Turn> {
        let last = self.heap.pop()?;
        match self.heap.first().copied() {
            Some(first) => {
                self.sink(last);
                Some(first)
            }
            None => Some(last),
        }
    }

    /// The earlier of `mine` and the first that waits; the other one waits.
    #[inline]
    pub(crate) fn first_of(&mut self, mine: Turn) -> Turn {
        match self.heap.first().copied() {
            Some(first) if first < mine => {
                self.sink(mine);
                first
            }
            _ => mine,
        }
    }

    /// Puts `turn` in the first one's place, and from there to its own.
    fn sink(&mut self, turn: Turn) {
        let heap = self.heap.as_mut_slice();
        let mut at = 0;
        loop {
            let below = 4 * at + 1;
            let (least, next) = match heap.get(below..below + 4) {
                Some(&[a, b, c, d]) => {
                    let (left, l) = if b < a { (b, 1) } else { (a, 0) };
                    let (right, r) = if d < c { (d, 3) } else { (c, 2) };
                    if right < left { (right, below + r) } else { (left, below + l) }
                }
                _ => {
                    let few = heap.get(below..).unwrap_or_default();
                    match few.iter().copied().zip(below..).min() {
                        Some(least) => least,
                        None => break,
                    }
                }
            };
            if turn <= least {
                break;
            }
            if let Some(slot) = heap.get_mut(at) {
                *slot = least;
            }
            at = next;
        }
        if let Some(slot) = heap.get_mut(at) {
            *slot = turn;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_keeps_its_time_and_lane_and_orders_by_both() {
        let turns = [(i64::MIN, 0), (-5, 7), (-5, 8), (0, 0), (3, usize::MAX), (i64::MAX, 1)];
        for (at, lane) in turns {
            let turn = Turn::new(at, lane);
            assert_eq!((turn.at(), turn.lane()), (at, lane));
        }
        assert!(
            turns
                .windows(2)
                .all(|two| { Turn::new(two[0].0, two[0].1) < Turn::new(two[1].0, two[1].1) })
        );
    }

    /// Numbers that look random and are the same each time.
    fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        }
    }

    #[test]
    fn turns_come_out_in_order_for_any_number_of_lanes() {
        for lanes in (0..30).chain([255, 1_000]) {
            let mut next = numbers(lanes + 1);
            let mut expected: Vec<Turn> = (0..lanes)
                .map(|lane| {
                    Turn::new(i64::try_from(next(50)).unwrap() - 25, usize::try_from(lane).unwrap())
                })
                .collect();
            let mut turns = Turns::with_capacity(expected.len());
            expected.iter().for_each(|turn| turns.push(*turn));
            expected.sort();
            let given: Vec<Turn> = std::iter::from_fn(|| turns.pop()).collect();
            assert_eq!(given, expected);
        }
    }

    #[test]
    fn lanes_that_go_on_merge_as_sorting_does() {
        for lanes in [1, 2, 3, 5, 17, 100] {
            let mut next = numbers(lanes);
            let own: Vec<Vec<i64>> = (0..lanes)
                .map(|_| {
                    let mut times: Vec<i64> =
                        (0..next(40)).map(|_| i64::try_from(next(1_000)).unwrap()).collect();
                    times.sort_unstable();
                    times
                })
                .collect();
            let mut expected: Vec<(i64, usize)> = own
                .iter()
                .enumerate()
                .flat_map(|(lane, times)| times.iter().map(move |at| (*at, lane)))
                .collect();
            expected.sort_unstable();
            let mut rest: Vec<_> = own.iter().map(|times| times.iter().copied()).collect();
            let mut turns = Turns::with_capacity(rest.len());
            for (lane, times) in rest.iter_mut().enumerate() {
                times.next().into_iter().for_each(|at| turns.push(Turn::new(at, lane)));
            }
            let mut merged = Vec::new();
            let mut current = turns.pop();
            while let Some(turn) = current {
                merged.push((turn.at(), turn.lane()));
                current = match rest[turn.lane()].next() {
                    Some(at) => Some(turns.first_of(Turn::new(at, turn.lane()))),
                    None => turns.pop(),
                };
            }
            assert_eq!(merged, expected, "{lanes} lanes");
        }
    }
}
