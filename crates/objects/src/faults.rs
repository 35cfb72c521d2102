//! What a test has go wrong: nothing of it is in a build without the feature `faults`.

/// What is done with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "faults"), expect(unreachable_pub, reason = "of tests only"))]
pub enum Deed {
    /// Bytes are read.
    Read,
    /// Bytes are put.
    Create,
    /// It is removed.
    Remove,
}

/// Has what is done fail, or take long.
#[cfg(feature = "faults")]
pub trait Faults: std::fmt::Debug + Send + Sync {
    /// Before it is done: with an error it is not.
    ///
    /// # Errors
    ///
    /// What the caller is told.
    fn before(&self, deed: Deed, name: &str) -> std::io::Result<()>;

    /// When it was done.
    ///
    /// # Errors
    ///
    /// What the caller is told although it was done.
    fn after(&self, deed: Deed, name: &str) -> std::io::Result<()>;
}
