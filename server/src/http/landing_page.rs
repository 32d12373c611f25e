//! The page that a browser shows for a link if the server was built without the real one: what this
//! is and what to do. It is the same for everyone, and contains nothing of the request.

use axum::response::{Html, IntoResponse, Response};
use http::header::{ACCEPT, CONTENT_SECURITY_POLICY, UPGRADE};
use http::{HeaderMap, Method};

use super::page;

const PAGE: &str = include_str!("landing_page.html");

/// Nothing is loaded, run, sent or framed; the style is the one on the page, by its hash.
const POLICY: &str = "default-src 'none'; style-src 'sha256-C8HVa+Qdyc9JAF/hh+SQBqIDWebwxzELpy38+SnewDQ='; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Whether a browser asks for a page, and not for a WebSocket: with somebody who looks at it, or for
/// the page's own worker, which keeps it for when there is no network.
pub(super) fn is_wanted(method: &Method, headers: &HeaderMap) -> bool {
    let mut accepts = headers.get_all(ACCEPT).iter();
    let wants_html = accepts.any(|accept| {
        let accept = accept.to_str().unwrap_or_default();
        accept.split(',').any(|kind| {
            let kind = kind.split(';').next().unwrap_or_default();
            kind.trim().eq_ignore_ascii_case("text/html")
        })
    });
    // Only browsers send it, and scripts cannot.
    let is_own_page = headers
        .get("sec-fetch-site")
        .is_some_and(|site| site == "same-origin");
    matches!(*method, Method::GET | Method::HEAD)
        && (wants_html || is_own_page)
        && !headers.contains_key(UPGRADE)
}

pub(super) fn respond() -> Response {
    let mut response = ([(CONTENT_SECURITY_POLICY, POLICY)], Html(PAGE)).into_response();
    page::add_security_headers(response.headers_mut());
    response
}

#[cfg(test)]
mod tests {
    use data_encoding::BASE64;
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn the_policy_allows_the_style_on_the_page_and_nothing_else() {
        let style = PAGE.split("<style>").nth(1).unwrap();
        let style = style.split("</style>").next().unwrap();
        let hash = BASE64.encode(&Sha256::digest(style));
        assert!(POLICY.contains(&format!("'sha256-{hash}'")), "{hash}");
        for forbidden in [
            "<script", "<img", "<link", "<form", "href", "src=", "style=", "http",
        ] {
            assert!(!PAGE.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn only_a_browser_gets_the_page() {
        let wanted = |method: Method, accept: &'static str, upgrade: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            if upgrade {
                headers.insert(UPGRADE, "websocket".parse().unwrap());
            }
            is_wanted(&method, &headers)
        };
        let browser = "text/html,application/xhtml+xml,*/*;q=0.8";
        assert!(wanted(Method::GET, browser, false));
        assert!(wanted(
            Method::HEAD,
            "application/xml, TEXT/HTML;q=0.9",
            false
        ));
        assert!(!wanted(Method::GET, browser, true));
        assert!(!wanted(Method::POST, browser, false));
        assert!(!wanted(Method::GET, "*/*", false));
        assert!(!wanted(Method::GET, "application/json", false));
        assert!(!is_wanted(&Method::GET, &HeaderMap::new()));
        let mut worker = HeaderMap::new();
        worker.insert(ACCEPT, "*/*".parse().unwrap());
        worker.insert("sec-fetch-site", "same-origin".parse().unwrap());
        assert!(is_wanted(&Method::GET, &worker));
        worker.insert("sec-fetch-site", "cross-site".parse().unwrap());
        assert!(!is_wanted(&Method::GET, &worker));
    }
}
