//! Why a rule is not taken.

use flame::SelectorError;

/// What is wrong with a rule, or with changing it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A field does not say what it should.
    #[error("{field}: {what}")]
    Field {
        /// As it is called in a [`Draft`](crate::Draft).
        field: &'static str,
        /// What is wrong with it.
        what: Fault,
    },
    /// Somebody else has changed the rule.
    #[error("rule {id} is of generation {found}, not of {expected}; read it again")]
    Conflict {
        /// The rule.
        id: String,
        /// What it was believed to be.
        expected: u64,
        /// What it is; 0 when there is none.
        found: u64,
    },
    /// There is no such rule.
    #[error("there is no rule {id:?}")]
    Missing {
        /// What was asked for.
        id: String,
    },
    /// The rule comes from the configuration and is changed there.
    #[error("rule {id} comes from the configuration and is changed there")]
    Provisioned {
        /// The rule.
        id: String,
    },
    /// There are as many rules as there may be.
    #[error("there are {limit} rules, and no more may be")]
    TooMany {
        /// How many.
        limit: usize,
    },
    /// Rules were changed so often that no more versions of them are kept.
    #[error("{limit} versions of rules are kept, and no more may be; try again later")]
    TooOften {
        /// How many.
        limit: usize,
    },
    /// Two rules would write one metric that means something else in each.
    #[error("metric {metric} is of something else in rule {other}")]
    Clash {
        /// Its name.
        metric: String,
        /// The rule that has it.
        other: String,
    },
    /// Two rules have one id.
    #[error("rule {id} is there twice")]
    Twice {
        /// The id.
        id: String,
    },
}

/// What is wrong with a field of a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing is there.
    #[error("it is missing")]
    Missing,
    /// A text is too long.
    #[error("{len} bytes are more than {limit}")]
    TooLong {
        /// Of the text.
        len: usize,
        /// What may be.
        limit: usize,
    },
    /// A list is too long.
    #[error("{count} are more than {limit}")]
    TooMany {
        /// In the list.
        count: usize,
        /// What may be.
        limit: usize,
    },
    /// An id has something else than letters.
    #[error("{text:?} is not of the letters a to z and A to Z")]
    Letters {
        /// What it is.
        text: String,
    },
    /// No name of a metric of a rule.
    #[error(
        "{text:?} is no name of letters, digits, underscores and colons that begins with {prefix}"
    )]
    Metric {
        /// What it is.
        text: String,
        /// With what it must begin.
        prefix: &'static str,
    },
    /// No name of a label that every receiver takes.
    #[error("{text:?} is no label name of letters, digits and underscores")]
    LabelName {
        /// What it is.
        text: String,
    },
    /// The name of a label that is not exported, or that rules give.
    #[error("label {text:?} is not for rules to give")]
    Reserved {
        /// Its name.
        text: String,
    },
    /// A name is there twice.
    #[error("{text:?} is there twice")]
    Twice {
        /// The name.
        text: String,
    },
    /// No profile type.
    #[error("{text:?} is no profile type such as process_cpu:cpu:nanoseconds:cpu:nanoseconds")]
    ProfileType {
        /// What it is.
        text: String,
    },
    /// Matchers say another profile type than the rule, none, or several.
    #[error("exactly one matcher says __profile_type__=\"…\", and what the rule says")]
    TypeMatcher,
    /// A matcher is none.
    #[error("{0}")]
    Matcher(SelectorError),
    /// A pattern is no regular expression.
    #[error("{0}")]
    Pattern(flame::Fault),
}

impl Error {
    pub(crate) const fn field(field: &'static str, what: Fault) -> Self {
        Self::Field { field, what }
    }
}
