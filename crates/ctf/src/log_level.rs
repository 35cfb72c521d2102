//! LTTng's log levels: numbers from 0, the most severe, to 14.

const NAMES: [&str; 15] = [
    "TRACE_EMERG",
    "TRACE_ALERT",
    "TRACE_CRIT",
    "TRACE_ERR",
    "TRACE_WARNING",
    "TRACE_NOTICE",
    "TRACE_INFO",
    "TRACE_DEBUG_SYSTEM",
    "TRACE_DEBUG_PROGRAM",
    "TRACE_DEBUG_PROCESS",
    "TRACE_DEBUG_MODULE",
    "TRACE_DEBUG_UNIT",
    "TRACE_DEBUG_FUNCTION",
    "TRACE_DEBUG_LINE",
    "TRACE_DEBUG",
];

/// The number of a name, in either case, with or without `TRACE_`.
pub(crate) fn number(text: &str) -> Option<i64> {
    (0..).zip(NAMES).find_map(|(level, name)| {
        let short = name.strip_prefix("TRACE_").unwrap_or(name);
        let named = name.eq_ignore_ascii_case(text) || short.eq_ignore_ascii_case(text);
        named.then_some(level)
    })
}

/// The name of a number.
pub(crate) fn name(level: i64) -> Option<&'static str> {
    NAMES.get(usize::try_from(level).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_has_a_long_and_a_short_name() {
        assert_eq!(number("TRACE_EMERG"), Some(0));
        assert_eq!(number("warning"), Some(4));
        assert_eq!(number("Debug"), Some(14));
        assert_eq!(number("TRACE_"), None);
        assert_eq!((name(4), name(15), name(-1)), (Some("TRACE_WARNING"), None, None));
    }
}
