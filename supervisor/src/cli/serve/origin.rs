//! Which page a browser's request came from, according to its headers.

use super::site::said;
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;

/// Returns true if a page of this server made the request. Browsers say so with each POST; programs do not.
pub(super) fn is_from_here(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|v| v.to_str().unwrap_or_default());
    let host = text(HOST.as_str()).unwrap_or_default();
    let origin = text(ORIGIN.as_str()).is_none_or(|o| {
        o.split_once("://")
            .is_some_and(|(_, from)| from.eq_ignore_ascii_case(host))
    });
    origin && text("sec-fetch-site").is_none_or(|site| site == "same-origin")
}

/// Returns true if a page of another server made the request. Expensive answers are refused to it, even through a tunnel to the
/// socket, where no cookie is needed.
pub(super) fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    let from = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    from.is_some_and(|site| !matches!(site, b"same-origin" | b"none"))
}

pub(super) fn not_from_here() -> Response {
    let text = "This did not come from a page of this server: open the run's page anew and try again.";
    said(StatusCode::FORBIDDEN, "Not from here", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_elsewhere_costs_nothing() {
        let from = |site: &'static str| {
            is_from_elsewhere(&HeaderMap::from_iter([(
                "sec-fetch-site".parse().unwrap(),
                HeaderValue::from_static(site),
            )]))
        };
        assert!(from("cross-site") && from("same-site") && from(""));
        assert!(!from("same-origin") && !from("none") && !is_from_elsewhere(&HeaderMap::new()));
    }

    #[test]
    fn a_page_elsewhere_is_not_here() {
        let from = |pairs: &[(&'static str, &'static str)]| {
            let all = pairs.iter().chain(&[("host", "127.0.0.1:8617")]);
            is_from_here(&all.map(|(k, v)| (k.parse().unwrap(), v.parse().unwrap())).collect())
        };
        assert!(from(&[]), "a program says nothing");
        assert!(from(&[
            ("origin", "http://127.0.0.1:8617"),
            ("sec-fetch-site", "same-origin")
        ]));
        for other in [
            "null",
            "http://127.0.0.1:8618",
            "http://evil.example",
            "127.0.0.1:8617",
            "",
        ] {
            assert!(!from(&[("origin", other)]), "{other}");
        }
        for site in ["same-site", "cross-site", "none"] {
            assert!(!from(&[("sec-fetch-site", site)]), "{site}");
        }
    }
}
