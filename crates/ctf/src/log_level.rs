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

/// As CTF 2 metadata write them.
const CTF2_NAMES: [&str; 15] = [
    "emergency",
    "alert",
    "critical",
    "error",
    "warning",
    "notice",
    "info",
    "debug:system",
    "debug:program",
    "debug:process",
    "debug:module",
    "debug:unit",
    "debug:function",
    "debug:line",
    "debug",
];

/// The name of a number in CTF 2 metadata.
pub(crate) fn ctf2_name(level: i64) -> Option<&'static str> {
    CTF2_NAMES.get(usize::try_from(level).ok()?).copied()
}

/// The number of a name in CTF 2 metadata.
pub(crate) fn ctf2_number(name: &str) -> Option<i64> {
    (0..).zip(CTF2_NAMES).find_map(|(level, known)| (known == name).then_some(level))
}

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
        assert_eq!((ctf2_number("debug"), ctf2_number("Debug")), (Some(14), None));
        assert_eq!((ctf2_name(2), ctf2_name(15)), (Some("critical"), None));
    }
}
