//! The name that was probably meant.

/// The longest name that is compared, in characters.
const MAX_CHARS: usize = 64;

/// The candidate with the fewest edits to `name`, if these are at most a third of its characters, rounded up; the first
/// of several. Nothing is near a single character.
pub(super) fn nearest<'c>(
    name: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    let name: Vec<char> = name.chars().take(MAX_CHARS + 1).collect();
    if !(2..=MAX_CHARS).contains(&name.len()) {
        return None;
    }
    let mut best = (name.len().div_ceil(3) + 1, None);
    for candidate in candidates {
        let edits = edits(&name, candidate);
        if edits < best.0 {
            best = (edits, Some(candidate));
        }
    }
    best.1
}

/// How many characters must be added, taken away or changed (Levenshtein's distance).
fn edits(name: &[char], candidate: &str) -> usize {
    let mut row: Vec<usize> = (0..=candidate.chars().take(MAX_CHARS + 1).count()).collect();
    for (done, left) in name.iter().enumerate() {
        let (mut diagonal, mut before) = (done, done + 1);
        for (cell, right) in row.iter_mut().skip(1).zip(candidate.chars()) {
            let changed = diagonal + usize::from(*left != right);
            diagonal = *cell;
            before = changed.min(*cell + 1).min(before + 1);
            *cell = before;
        }
        row.iter_mut().take(1).for_each(|first| *first = done + 1);
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_when_it_is_near() {
        let names = ["prev_tid", "next_tid", "prev_comm", "ret"];
        assert_eq!(nearest("prev_tdi", names), Some("prev_tid"));
        assert_eq!(nearest("prevtid", names), Some("prev_tid"));
        assert_eq!(nearest("rett", names), Some("ret"));
        assert_eq!(nearest("filename", names), None);
        assert_eq!(nearest("x", names), None);
        assert_eq!(nearest("", names), None);
    }

    #[test]
    fn edits_are_counted() {
        let count = |a: &str, b| edits(&a.chars().collect::<Vec<_>>(), b);
        assert_eq!(count("", ""), 0);
        assert_eq!(count("abc", ""), 3);
        assert_eq!(count("", "abc"), 3);
        assert_eq!(count("kitten", "sitting"), 3);
        assert_eq!(count("abcd", "abdc"), 2);
    }
}
