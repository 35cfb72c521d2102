//! The page as one document: markup, styles, scripts and, when it stands alone, the answer.
//!
//! Nothing is loaded from elsewhere. Exactly the page's own style and script may run: the policy names them by their
//! digests, so text from a trace cannot become code even if it reached the markup.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const MARKUP: &str = include_str!("../assets/page.html");
pub(crate) const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = concat!(
    include_str!("../assets/dom.js"),
    include_str!("../assets/figures.js"),
    include_str!("../assets/charts.js"),
    include_str!("../assets/live.js"),
    include_str!("../assets/page.js")
);

static SERVED: LazyLock<String> = LazyLock::new(|| assemble(""));

/// The page that fetches its answer from the server it came from.
#[must_use]
pub fn served() -> &'static str {
    &SERVED
}

/// The page with an answer in it, to be kept as a file and opened without a server.
///
/// `answer_json` is what `analyze phases` prints as JSON. It may hold any text in its strings; text that is not JSON
/// does no harm, the page then says that it cannot read it.
#[must_use]
pub fn standalone(answer_json: &str) -> String {
    assemble(&inert(answer_json))
}

/// The content security policy of both pages.
#[must_use]
pub fn content_security_policy() -> &'static str {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        format!(
            "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; connect-src 'self'; base-uri 'none'; \
             form-action 'none'",
            source_digest(SCRIPT),
            source_digest(STYLE)
        )
    });
    &POLICY
}

/// A digest as `script-src` and `style-src` take it: over the exact text between the tags.
pub(crate) fn source_digest(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

/// JSON that cannot end the script element around it: `<` occurs only inside strings, where an escape says the same.
fn inert(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// The answer goes in last and the text around it is split off first, so nothing in it is taken for a mark.
fn assemble(answer: &str) -> String {
    let markup = MARKUP
        .replacen("{{policy}}", content_security_policy(), 1)
        .replacen("{{style}}", STYLE, 1)
        .replacen("{{script}}", SCRIPT, 1);
    markup.replacen("{{answer}}", answer, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_cannot_leave_its_element() {
        let hostile = r#"{"name":"</script><script>alert(1)</script><!--"}"#;
        let page = standalone(hostile);
        assert_eq!(page.matches("</script>").count(), served().matches("</script>").count());
        assert!(
            page.contains(
                r#"{"name":"\u003c/script>\u003cscript>alert(1)\u003c/script>\u003c!--"}"#
            )
        );
        let kept: serde_json::Value = serde_json::from_str(&inert(hostile)).expect("JSON");
        assert_eq!(kept, serde_json::from_str::<serde_json::Value>(hostile).expect("JSON"));
    }

    #[test]
    fn marks_in_an_answer_are_text() {
        let page = standalone(r#"{"name":"{{script}}{{answer}}"}"#);
        assert!(page.contains(r#"{"name":"{{script}}{{answer}}"}"#));
    }

    #[test]
    fn the_page_is_one_document_that_loads_nothing() {
        let page = served();
        for mark in ["{{", "src=", "@import", "url(\"http", "https://"] {
            assert!(!page.contains(mark), "{mark} in the page");
        }
        assert!(page.starts_with("<!doctype html>"));
    }
}
