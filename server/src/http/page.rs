//! Serves the page that is embedded into the program: its files, compressed when they were built,
//! with headers that let a browser keep them and let them do nothing but what the page needs.

use std::sync::OnceLock;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    VARY, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use pvp_protocol::hex;
use sha2::{Digest as _, Sha256};

use super::static_document::accepts;

/// Scripts, styles and connections of this server only, no text is ever taken for HTML or code, and
/// nobody frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data: blob:; connect-src 'self'; manifest-src 'self'; worker-src 'self'; \
    font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types pvp";

/// What the page has no use for.
const PERMISSIONS: &str = "accelerometer=(), autoplay=(), camera=(), display-capture=(), \
    encrypted-media=(), geolocation=(), gyroscope=(), hid=(), magnetometer=(), microphone=(), \
    midi=(), payment=(), picture-in-picture=(), publickey-credentials-get=(), serial=(), usb=(), \
    xr-spatial-tracking=()";

/// On every file of the page, and on the page that stands in for it.
const SECURITY_HEADERS: [(HeaderName, &str); 4] = [
    (X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("permissions-policy"), PERMISSIONS),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// A file of the page, as it is and compressed when the page was built.
struct PageFile {
    /// Its path on the server.
    path: &'static str,
    plain: &'static [u8],
    gzip: Option<&'static [u8]>,
    brotli: Option<&'static [u8]>,
}

/// The built page; empty if there was none when the server was built.
static FILES: &[PageFile] = include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

/// The page at `/`; `None` if the server was built without it.
pub(super) fn index(request: &HeaderMap) -> Option<Response> {
    file("/index.html", request)
}

/// A file of the page; `None` if there is no such file.
pub(super) fn file(path: &str, request: &HeaderMap) -> Option<Response> {
    let at = FILES.iter().position(|file| file.path == path)?;
    static TAGS: OnceLock<Vec<String>> = OnceLock::new();
    let tags = TAGS.get_or_init(|| FILES.iter().map(|file| tag(file.plain)).collect());
    Some(FILES[at].respond(&tags[at], request))
}

/// Adds what every answer with a page has.
pub(super) fn add_security_headers(headers: &mut HeaderMap) {
    for (name, value) in SECURITY_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Names a content.
fn tag(content: &[u8]) -> String {
    hex::encode(&Sha256::digest(content)[..16])
}

impl PageFile {
    fn respond(&self, tag: &str, request: &HeaderMap) -> Response {
        let (encoding, content) = self.encoded(request);
        let tag = format!("\"{tag}-{}\"", encoding.unwrap_or("plain"));
        let mut response = match is_known(&tag, request) {
            true => StatusCode::NOT_MODIFIED.into_response(),
            false => {
                let mut response = Body::from(content).into_response();
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type()));
                if let Some(encoding) = encoding {
                    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
                }
                response
            }
        };
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(self.lifetime()));
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(ETAG, tag);
        }
        add_security_headers(headers);
        response
    }

    /// The smallest form that the caller accepts, with the name of its encoding.
    fn encoded(&self, request: &HeaderMap) -> (Option<&'static str>, &'static [u8]) {
        match (self.brotli, self.gzip) {
            (Some(brotli), _) if accepts(request, "br") => (Some("br"), brotli),
            (_, Some(gzip)) if accepts(request, "gzip") => (Some("gzip"), gzip),
            _ => (None, self.plain),
        }
    }

    fn content_type(&self) -> &'static str {
        match self.extension() {
            "html" => "text/html; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "json" => "application/json",
            "webmanifest" => "application/manifest+json",
            "svg" => "image/svg+xml",
            "png" => "image/png",
            "ico" => "image/x-icon",
            "woff2" => "font/woff2",
            "txt" => "text/plain; charset=utf-8",
            _ => "application/octet-stream",
        }
    }

    /// How long a browser may keep it: for ever where the name changes with the content, not without
    /// asking where a new version must be found at once, and an hour otherwise.
    fn lifetime(&self) -> &'static str {
        match self.extension() {
            _ if self.path.starts_with("/assets/") => "public, max-age=31536000, immutable",
            "html" | "js" | "webmanifest" => "no-cache",
            _ => "public, max-age=3600",
        }
    }

    fn extension(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(_, end)| end)
    }
}

/// Whether the caller has this content already.
fn is_known(tag: &str, request: &HeaderMap) -> bool {
    let known = request.get_all(IF_NONE_MATCH).iter();
    let known = known.filter_map(|value| value.to_str().ok());
    known
        .flat_map(|value| value.split(','))
        .any(|one| one.trim().trim_start_matches("W/") == tag)
}

#[cfg(test)]
#[path = "../../build/page_files.rs"]
mod page_files;

#[cfg(test)]
mod tests {
    use std::fs;

    use http::header::ACCEPT_ENCODING;

    use super::page_files::{BuiltFile, find_files, rust_table};
    use super::*;

    const SCRIPT: PageFile = PageFile {
        path: "/assets/page-1a2b.js",
        plain: b"plain",
        gzip: Some(b"gzip"),
        brotli: Some(b"brotli"),
    };

    fn asking(name: HeaderName, value: &str) -> HeaderMap {
        [(name, value.parse().unwrap())].into_iter().collect()
    }

    fn header<'a>(response: &'a Response, name: &str) -> &'a str {
        let value = response.headers().get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    async fn content(response: Response) -> Vec<u8> {
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await;
        body.unwrap().to_vec()
    }

    #[tokio::test]
    async fn each_caller_gets_the_smallest_form_that_they_accept() {
        let only_plain = PageFile {
            gzip: None,
            brotli: None,
            ..SCRIPT
        };
        let no_brotli = PageFile {
            brotli: None,
            ..SCRIPT
        };
        for (file, accepted, encoding, expected) in [
            (&SCRIPT, "gzip, deflate, br, zstd", "br", &b"brotli"[..]),
            (&SCRIPT, "gzip, br;q=0", "gzip", b"gzip"),
            (&SCRIPT, "identity", "", b"plain"),
            (&no_brotli, "br, gzip", "gzip", b"gzip"),
            (&only_plain, "br, gzip", "", b"plain"),
        ] {
            let response = file.respond("t", &asking(ACCEPT_ENCODING, accepted));
            assert_eq!(
                header(&response, "content-encoding"),
                encoding,
                "{accepted}"
            );
            assert_eq!(header(&response, "vary"), "accept-encoding");
            assert_eq!(content(response).await, expected, "{accepted}");
        }
    }

    #[tokio::test]
    async fn what_a_browser_has_is_not_sent_again() {
        let plain = SCRIPT.respond("t", &HeaderMap::new());
        assert_eq!(plain.status(), StatusCode::OK);
        let tag = header(&plain, "etag").to_owned();
        for known in [tag.clone(), format!("\"other\", W/{tag}")] {
            let again = SCRIPT.respond("t", &asking(IF_NONE_MATCH, &known));
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
            assert_eq!(header(&again, "etag"), tag);
            assert_eq!(header(&again, "content-security-policy"), POLICY);
            assert_eq!(content(again).await, b"");
        }
        // The compressed form is another one, and so is another content.
        let mut compressed = asking(IF_NONE_MATCH, &tag);
        compressed.insert(ACCEPT_ENCODING, "br".parse().unwrap());
        assert_eq!(SCRIPT.respond("t", &compressed).status(), StatusCode::OK);
        let changed = SCRIPT.respond("u", &asking(IF_NONE_MATCH, &tag));
        assert_eq!(changed.status(), StatusCode::OK);
    }

    #[test]
    fn only_what_has_a_hash_in_its_name_is_kept_for_ever() {
        for (path, kind, lifetime) in [
            ("/index.html", "text/html; charset=utf-8", "no-cache"),
            ("/sw.js", "text/javascript; charset=utf-8", "no-cache"),
            (
                "/manifest.webmanifest",
                "application/manifest+json",
                "no-cache",
            ),
            ("/icons/icon.svg", "image/svg+xml", "public, max-age=3600"),
            (
                "/assets/page-1a2b.css",
                "text/css; charset=utf-8",
                "public, max-age=31536000, immutable",
            ),
            ("/odd", "application/octet-stream", "public, max-age=3600"),
        ] {
            let file = PageFile { path, ..SCRIPT };
            let response = file.respond("t", &HeaderMap::new());
            assert_eq!(header(&response, "content-type"), kind, "{path}");
            assert_eq!(header(&response, "cache-control"), lifetime, "{path}");
            for (name, value) in SECURITY_HEADERS {
                assert_eq!(header(&response, name.as_str()), value);
            }
        }
    }

    #[test]
    fn the_policy_allows_no_foreign_origin_and_no_inline_code() {
        for forbidden in ["unsafe", "http", "*", "ws"] {
            assert!(!POLICY.contains(forbidden), "{forbidden}");
        }
        for needed in [
            "default-src 'none';",
            "script-src 'self';",
            "frame-ancestors 'none';",
            "base-uri 'none';",
            "require-trusted-types-for 'script';",
        ] {
            assert!(POLICY.contains(needed), "{needed}");
        }
    }

    #[test]
    fn only_the_files_of_the_page_are_embedded() {
        let dist = tempfile::tempdir().unwrap();
        let at = |path: &str| dist.path().join(path);
        assert_eq!(find_files(dist.path()).unwrap(), []);
        fs::create_dir_all(at("assets/.cache")).unwrap();
        for path in [
            "assets/a.js",
            "assets/a.js.br",
            "assets/a.js.gz",
            "assets/a.js.map",
            "assets/a.js.map.gz",
            "assets/.cache/x.js",
            ".env",
        ] {
            fs::write(at(path), path).unwrap();
        }
        assert_eq!(find_files(dist.path()).unwrap(), [], "there is no page");
        fs::write(at("index.html"), "page").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", at("assets/b.js")).unwrap();
        let found = find_files(dist.path()).unwrap();
        let expected = [
            BuiltFile {
                path: "/assets/a.js".to_owned(),
                plain: at("assets/a.js"),
                gzip: Some(at("assets/a.js.gz")),
                brotli: Some(at("assets/a.js.br")),
            },
            BuiltFile {
                path: "/index.html".to_owned(),
                plain: at("index.html"),
                gzip: None,
                brotli: None,
            },
        ];
        assert_eq!(found, expected);
        let table = rust_table(&found);
        assert_eq!(table.matches("include_bytes!").count(), 4);
        assert!(table.contains("path: \"/index.html\""), "{table}");
        assert_eq!(rust_table(&[]), "&[\n]\n");
    }

    #[test]
    fn an_embedded_page_is_whole() {
        for file in FILES {
            assert!(!file.path.ends_with(".map"), "{}", file.path);
            assert_ne!(
                file.content_type(),
                "application/octet-stream",
                "{}",
                file.path
            );
        }
        let names: Vec<_> = FILES.iter().map(|file| file.path).collect();
        if names.is_empty() {
            // Without Node.js the program is built without it.
            let ci = std::env::var_os("CI");
            assert!(ci.is_none_or(|ci| ci != "true"), "the page was not built");
            return;
        }
        assert!(names.contains(&"/index.html"), "{names:?}");
        let index = FILES
            .iter()
            .find(|file| file.path == "/index.html")
            .unwrap();
        let index = String::from_utf8_lossy(index.plain);
        for loaded in index
            .split(['"', '\''])
            .filter(|text| text.starts_with("/assets/"))
        {
            assert!(names.contains(&loaded), "{loaded} is not embedded");
        }
    }
}
