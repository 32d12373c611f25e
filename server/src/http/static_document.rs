//! Documents that never change while the server runs: made and compressed once, then shared.

use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, VARY};

use super::gzip;

/// A document, as it is and compressed. Every answer shares the same bytes.
pub(super) struct StaticDocument {
    content_type: &'static str,
    plain: Bytes,
    compressed: Bytes,
}

impl StaticDocument {
    pub(super) fn new(content_type: &'static str, text: impl Into<Bytes>) -> Self {
        let plain = text.into();
        Self {
            content_type,
            compressed: gzip::compress(&plain).into(),
            plain,
        }
    }

    /// The document in a form that the caller accepts.
    pub(super) fn respond(&self, request: &HeaderMap) -> Response {
        let content_type = (CONTENT_TYPE, self.content_type);
        let vary = (VARY, "accept-encoding");
        match accepts(request, "gzip") {
            true => {
                let headers = [content_type, vary, (CONTENT_ENCODING, "gzip")];
                (headers, self.compressed.clone()).into_response()
            }
            false => ([content_type, vary], self.plain.clone()).into_response(),
        }
    }
}

/// Whether the caller accepts this encoding.
pub(super) fn accepts(request: &HeaderMap, encoding: &str) -> bool {
    let values = request.get_all(ACCEPT_ENCODING).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|offer| {
        let (name, weight) = offer.split_once(';').unwrap_or((offer, ""));
        let weight = weight.trim().trim_start_matches("q=");
        let is_refused = !weight.is_empty() && weight.chars().all(|c| matches!(c, '0' | '.'));
        name.trim().eq_ignore_ascii_case(encoding) && !is_refused
    })
}
