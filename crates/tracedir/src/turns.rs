//! Whose turn it is: a tournament of lanes by what comes next in them.
//!
//! Every lane has a leaf of a binary tree; every inner node keeps the turn that lost there, and the winner goes up. When
//! the winner's lane goes on, its next turn is compared with the losers on the way from its leaf to the top, and with
//! nothing else. That way is known beforehand, so that the processor needs not wait for one comparison to know where
//! the next one is, and a comparison chooses without a branch: with a thousand lanes, ten of both.

use std::cmp::Ordering;
use std::hint::select_unpredictable;

/// Whose turn it is when: ordered by time, then by lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The time with its sign bit flipped: so it orders without sign as it did with.
    biased: u64,
    lane: usize,
}

impl Turn {
    const SIGN: u64 = 1 << 63;
    /// After all others.
    const NEVER: Self = Self { biased: u64::MAX, lane: usize::MAX };

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

/// The turns of lanes from 0 on, one for each.
#[derive(Debug)]
pub(crate) struct Tournament {
    /// The losers; the nodes below node `n` are `2n` and `2n + 1`, the leaf of lane `l` is as many nodes behind the last
    /// as `l`. Node 0 keeps the winner.
    nodes: Vec<Turn>,
}

impl Tournament {
    /// `first` gives each lane's turn, `None` for one that is over.
    pub(crate) fn new(first: &[Option<i64>]) -> Self {
        let leaves = first.len().next_power_of_two();
        let turn = |lane: usize| {
            let at = first.get(lane).copied().flatten();
            at.map_or(Turn::NEVER, |at| Turn::new(at, lane))
        };
        let mut nodes = vec![Turn::NEVER; leaves];
        let mut winners: Vec<Turn> = (0..leaves).map(turn).collect();
        // One round after the other: those who won in the last one meet in pairs.
        while let Some(half) = Some(winners.len() / 2).filter(|half| *half > 0) {
            let (pairs, _) = winners.as_chunks::<2>();
            for (node, [a, b]) in nodes.iter_mut().skip(half).zip(pairs) {
                *node = *a.max(b);
            }
            winners = pairs.iter().map(|[a, b]| *a.min(b)).collect();
        }
        if let (Some(top), Some(winner)) = (nodes.first_mut(), winners.first()) {
            *top = *winner;
        }
        Self { nodes }
    }

    /// The first turn; `None` when all lanes are over.
    #[inline]
    pub(crate) fn winner(&self) -> Option<Turn> {
        self.nodes.first().copied().filter(|turn| turn.lane != usize::MAX)
    }

    /// Gives the winner's lane its next turn, `None` when it is over; returns the new winner.
    #[inline]
    pub(crate) fn replace_winner(&mut self, lane: usize, next: Option<i64>) -> Option<Turn> {
        let mut winner = next.map_or(Turn::NEVER, |at| Turn::new(at, lane));
        let mut node = self.nodes.len().wrapping_add(lane) / 2;
        while node > 0 {
            let Some(loser) = self.nodes.get_mut(node) else { break };
            let other = *loser;
            let wins = other < winner;
            *loser = select_unpredictable(wins, winner, other);
            winner = select_unpredictable(wins, other, winner);
            node /= 2;
        }
        if let Some(top) = self.nodes.first_mut() {
            *top = winner;
        }
        self.winner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_keeps_its_time_and_lane_and_orders_by_both() {
        let turns = [(i64::MIN, 0), (-5, 7), (-5, 8), (0, 0), (3, 9), (i64::MAX, 1)];
        for (at, lane) in turns {
            let turn = Turn::new(at, lane);
            assert_eq!((turn.at(), turn.lane()), (at, lane));
            assert!(turn < Turn::NEVER);
        }
        let in_order =
            |two: &[(i64, usize)]| Turn::new(two[0].0, two[0].1) < Turn::new(two[1].0, two[1].1);
        assert!(turns.windows(2).all(in_order));
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
    fn lanes_merge_as_sorting_does_for_any_number_of_them() {
        for lanes in (0..35).chain([100, 255, 256, 257, 1_000]) {
            let mut next = numbers(lanes);
            let mut times = |_| {
                let mut times: Vec<i64> =
                    (0..next(12)).map(|_| i64::try_from(next(200)).unwrap() - 100).collect();
                times.sort_unstable();
                times
            };
            let own: Vec<Vec<i64>> = (0..lanes).map(&mut times).collect();
            let mut expected: Vec<(i64, usize)> = own
                .iter()
                .enumerate()
                .flat_map(|(lane, times)| times.iter().map(move |at| (*at, lane)))
                .collect();
            expected.sort_unstable();
            let mut rest: Vec<_> = own.iter().map(|times| times.iter().copied()).collect();
            let first: Vec<Option<i64>> = rest.iter_mut().map(Iterator::next).collect();
            let mut tournament = Tournament::new(&first);
            let mut merged = Vec::new();
            let mut winner = tournament.winner();
            while let Some(turn) = winner {
                merged.push((turn.at(), turn.lane()));
                winner = tournament.replace_winner(turn.lane(), rest[turn.lane()].next());
            }
            assert_eq!(merged, expected, "{lanes} lanes");
        }
    }
}
