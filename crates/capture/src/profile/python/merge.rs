//! Frames of an interpreter among the native ones.

/// Puts runs of frames, the innermost first, at the place of the native frames that ran them; `is_evaluation` tells these. The second is
/// whether there was one of either for each of the other.
///
/// One call of the evaluation function may have no frame yet, or none any more: the innermost one, when both stacks
/// are whole. Runs without a place come last.
pub(in crate::profile) fn merge<F>(
    native: Vec<F>,
    is_evaluation: impl Fn(&F) -> bool,
    runs: Vec<Vec<F>>,
    are_whole: bool,
) -> (Vec<F>, bool) {
    let evaluations = native.iter().filter(|frame| is_evaluation(frame)).count();
    let without = usize::from(are_whole && evaluations == runs.len() + 1);
    let is_even = evaluations == runs.len() + without || !are_whole;
    let frames = native.len() + runs.iter().map(Vec::len).sum::<usize>();
    let mut merged = Vec::with_capacity(frames);
    let mut runs = runs.into_iter();
    let mut met = 0;
    for frame in native {
        if !is_evaluation(&frame) {
            merged.push(frame);
            continue;
        }
        met += 1;
        let run = if met > without { runs.next() } else { None };
        match run {
            // A call that has begun and has no frame yet shows as itself.
            Some(run) if !run.is_empty() => merged.extend(run),
            _ => merged.push(frame),
        }
    }
    merged.extend(runs.flatten());
    (merged, is_even)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `E` is the evaluation function; runs are of lower case.
    fn merged(native: &str, runs: &[&str], are_whole: bool) -> (String, bool) {
        let runs = runs.iter().map(|run| run.chars().collect()).collect();
        let native = native.chars().collect();
        let (merged, is_even) = merge(native, |frame| *frame == 'E', runs, are_whole);
        (merged.into_iter().collect(), is_even)
    }

    #[test]
    fn each_run_takes_the_place_of_what_ran_it() {
        assert_eq!(merged("MEXYEZ", &["ab", "cde"], true), ("MabXYcdeZ".into(), true));
        assert_eq!(merged("EEZ", &["a", "b"], true), ("abZ".into(), true));
        assert_eq!(merged("MX", &[], true), ("MX".into(), true));
    }

    #[test]
    fn a_call_that_has_no_frame_yet_is_the_innermost_one() {
        assert_eq!(merged("MEXEZ", &["ab"], true), ("MEXabZ".into(), true));
        assert_eq!(merged("MEXEZ", &["", "ab"], true), ("MEXabZ".into(), true));
    }

    #[test]
    fn stacks_that_were_cut_begin_at_the_same_place() {
        assert_eq!(merged("MEXE", &["a", "b", "c"], false), ("MaXbc".into(), true));
        assert_eq!(merged("MEXEYE", &["a"], false), ("MaXEYE".into(), true));
    }

    #[test]
    fn what_does_not_fit_is_told() {
        assert_eq!(merged("ME", &["a", "b"], true), ("Mab".into(), false));
        assert_eq!(merged("MEEE", &["a"], true), ("MaEE".into(), false));
        assert_eq!(merged("M", &["a"], true), ("Ma".into(), false));
    }
}
