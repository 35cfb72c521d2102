//! HTTP endpoints and the web page.
