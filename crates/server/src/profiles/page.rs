//! The page of the store: one document that asks the querier and shows what it says.
//!
//! As the page of recordings ([`crate::page`]) it loads nothing from elsewhere, and its policy names its own style and script by their digests. Flame graphs
//! are documents of their own in frames of it ([`super::svg`]).

use std::sync::LazyLock;

use axum::response::{Html, IntoResponse, Response};

use crate::guard::{Framing, protect};
use crate::page::{STYLE as SHARED_STYLE, source_digest};

const MARKUP: &str = include_str!("../../assets/profiles/page.html");
const OWN_STYLE: &str = include_str!("../../assets/profiles/page.css");
const SCRIPT: &str = concat!(
    include_str!("../../assets/dom.js"),
    include_str!("../../assets/figures.js"),
    include_str!("../../assets/profiles/address.js"),
    include_str!("../../assets/profiles/data.js"),
    include_str!("../../assets/profiles/sides.js"),
    include_str!("../../assets/profiles/graph.js"),
    include_str!("../../assets/profiles/tables.js"),
    include_str!("../../assets/profiles/rules.js"),
    include_str!("../../assets/profiles/page.js")
);

struct Page {
    document: String,
    policy: String,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let style = format!("{SHARED_STYLE}{OWN_STYLE}");
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'",
        source_digest(SCRIPT),
        source_digest(&style)
    );
    let document = MARKUP.replacen("{{style}}", &style, 1).replacen("{{script}}", SCRIPT, 1);
    Page { document, policy }
});

/// `GET /`.
pub(super) async fn page() -> Response {
    let mut response = Html(PAGE.document.as_str()).into_response();
    protect(response.headers_mut(), &PAGE.policy, Framing::Nobody);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_one_document_that_loads_nothing() {
        let Page { document, .. } = &*PAGE;
        for mark in ["{{", "@import", "url(\"http", "https://"] {
            assert!(!document.contains(mark), "{mark} in the page");
        }
        assert!(document.starts_with("<!doctype html>"));
    }
}
