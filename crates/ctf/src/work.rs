//! Counts steps of work in tests, where "no more than linear" must mean something that does not depend on the machine.

/// One step; nothing outside of tests.
#[inline]
pub(crate) fn step() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The steps that this thread takes in `work`.
#[cfg(test)]
pub(crate) fn steps_of<T>(work: impl FnOnce() -> T) -> (T, u64) {
    STEPS.set(0);
    let result = work();
    (result, STEPS.get())
}
