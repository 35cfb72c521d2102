//! Names as V8 writes them: `JS:*name file:///a.js:12:3`.

/// What a name of V8 says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct V8Name<'a> {
    /// The function; `(anonymous)` for one without a name.
    pub function: &'a str,
    /// Its source file, as a path or URL.
    pub file: &'a str,
    /// The line on which it begins, from 1.
    pub line: u32,
}

impl<'a> V8Name<'a> {
    /// A function of JavaScript; `None` for anything else, as builtins and compiled regular expressions.
    ///
    /// Kind, how it was compiled (`~` not yet, `^` quickly, `+` halfway, `*` optimised), name, file, line and column
    /// (`src/logging/log.cc` of V8). Before V8 9.8 kinds were `LazyCompile`, `Function`, `Script` and `Eval`.
    #[must_use]
    pub fn of(name: &'a str) -> Option<Self> {
        const KINDS: [&str; 5] = ["JS", "LazyCompile", "Function", "Script", "Eval"];
        let (kind, rest) = name.split_once(':')?;
        if !KINDS.contains(&kind) {
            return None;
        }
        let rest = rest.trim_start_matches(['~', '^', '+', '*']);
        let (rest, _column) = rest.rsplit_once(':').filter(|(_, column)| is_number(column))?;
        let (rest, line) = rest.rsplit_once(':')?;
        let line = line.parse().ok().filter(|line| *line > 0)?;
        // A name may have spaces, and so may a path; where a path begins can be told of most.
        let (function, file) = ["file:", "node:", "/"]
            .iter()
            .filter_map(|begin| position(rest, begin))
            .min()
            .and_then(|at| Some((rest.get(..at)?, rest.get(at..)?)))
            .or_else(|| rest.split_once(' '))?;
        let function = function.trim_end();
        let function = if function.is_empty() { "(anonymous)" } else { function };
        Some(Self { function, file, line })
    }
}

/// Where a path begins that begins so.
fn position(text: &str, begin: &str) -> Option<usize> {
    if text.starts_with(begin) {
        return Some(0);
    }
    let after_space = text.match_indices(' ').map(|(at, _)| at + 1);
    after_space.into_iter().find(|at| text.get(*at..).is_some_and(|it| it.starts_with(begin)))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_name_that_was_written_and_where() {
        let of = |name| V8Name::of(name).map(|it| (it.function, it.file, it.line));
        assert_eq!(of("JS:*hot /a b/c.js:12:3"), Some(("hot", "/a b/c.js", 12)));
        assert_eq!(of("JS:~get x file:///a.mjs:1:9"), Some(("get x", "file:///a.mjs", 1)));
        assert_eq!(
            of("LazyCompile:~wrapSafe node:internal/modules/cjs/loader:1178:18"),
            Some(("wrapSafe", "node:internal/modules/cjs/loader", 1178))
        );
        assert_eq!(of("JS:^ /a.js:2:1"), Some(("(anonymous)", "/a.js", 2)));
        assert_eq!(of("Script:~/a.js:2:1"), Some(("(anonymous)", "/a.js", 2)));
        assert_eq!(
            of("JS:*f evalmachine.<anonymous>:2:1"),
            Some(("f", "evalmachine.<anonymous>", 2))
        );
        for other in ["Builtin:JSEntry", "RegExp:a:1:2", "JS:*f", "JS:*f /a.js:x:1", "", "JS:"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
