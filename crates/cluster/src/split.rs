//! Which steps go together.

use std::ops::Range;

use crate::worker::MAX_TASKS;

/// Into how many tasks a plan for so many workers is cut: one for each if nobody asks for more or fewer. Never one, because a plan
/// of one task would be done here; and never more for a worker than it takes at once: the rest would wait for what
/// they hold up.
pub(crate) fn tasks(workers: usize, asked: Option<usize>) -> usize {
    asked.unwrap_or(workers).min(workers.saturating_mul(MAX_TASKS)).max(2)
}

/// Cuts steps of these weights into so many runs of neighbours, of about the same weight; some may be empty.
pub(crate) fn shares(weights: &[u64], count: usize) -> Vec<Range<usize>> {
    let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let mut ends = vec![0; count];
    let mut before = 0_u128;
    for (n, weight) in weights.iter().map(|weight| u128::from(*weight)).enumerate() {
        // In the middle of a step, this many of the shares are full.
        let full = (2 * before + weight) * count as u128 / (2 * total).max(1);
        let share = usize::try_from(full).unwrap_or(count).min(count.saturating_sub(1));
        if let Some(end) = ends.get_mut(share) {
            *end = n + 1;
        }
        before += weight;
    }
    let mut begin = 0;
    let share = |end: usize| {
        let share = begin..end.max(begin);
        begin = share.end;
        share
    };
    ends.into_iter().map(share).collect()
}

/// Cuts what takes so many bytes each into runs of at most `most` bytes, or of one.
pub(crate) fn rounds(bytes: &[usize], most: usize) -> Vec<Range<usize>> {
    let mut rounds = Vec::new();
    let mut begin = 0;
    let mut sum = 0_usize;
    for (n, len) in bytes.iter().enumerate() {
        if n > begin && sum.saturating_add(*len) > most {
            rounds.push(begin..n);
            begin = n;
            sum = 0;
        }
        sum = sum.saturating_add(*len);
    }
    if begin < bytes.len() {
        rounds.push(begin..bytes.len());
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_in_one_share_and_none_is_much_heavier() {
        let weights: Vec<u64> = (0..50).map(|n| 1 + n * 7 % 13).collect();
        let total: u64 = weights.iter().sum();
        for count in 1..70_usize {
            let shares = shares(&weights, count);
            assert_eq!(shares.len(), count);
            let all: Vec<usize> = shares.iter().cloned().flatten().collect();
            assert_eq!(all, (0..50).collect::<Vec<_>>(), "{count}");
            for share in shares {
                let weight: u64 = weights[share].iter().sum();
                assert!(weight <= total / count as u64 + 2 * 13, "{count}: {weight}");
            }
        }
        assert_eq!(shares(&[], 2), [0..0, 0..0]);
        assert_eq!(shares(&[0, 0], 2), [0..2, 2..2]);
    }

    #[test]
    fn a_worker_is_given_what_it_takes_at_most() {
        assert_eq!([tasks(1, None), tasks(2, None), tasks(3, None)], [2, 2, 3]);
        assert_eq!([tasks(3, Some(1)), tasks(3, Some(7))], [2, 7]);
        assert_eq!(tasks(2, Some(1_000)), 2 * MAX_TASKS);
    }

    #[test]
    fn rounds_are_as_long_as_they_may_be() {
        assert_eq!(rounds(&[4, 4, 4, 9, 20, 1], 12), [0..3, 3..4, 4..5, 5..6]);
        assert_eq!(rounds(&[], 12), Vec::<Range<usize>>::new());
    }
}
