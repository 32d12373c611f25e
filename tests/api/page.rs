//! The page in a browser: that of the server if it was built with one, else one that says what to do.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::http_client::{HttpResponse, raw_exchange};
use crate::support::{TestServer, read_to_close};

const BROWSER: (&str, &str) = ("Accept", "text/html,application/xhtml+xml,*/*;q=0.8");

async fn get(server: &TestServer, path: &str) -> HttpResponse {
    raw_exchange(&server.address, "GET", path, &[BROWSER], b"").await
}

fn header<'a>(response: &'a HttpResponse, name: &str) -> &'a str {
    response.headers.get(name).map_or("", String::as_str)
}

fn check_page_headers(page: &HttpResponse) {
    let policy = header(page, "content-security-policy");
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    for directive in [
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(directive), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-frame-options", "DENY"),
        // Whoever serves plain HTTP promises nothing about HTTPS.
        ("strict-transport-security", ""),
        ("set-cookie", ""),
    ] {
        assert_eq!(header(page, name), value, "{name}");
    }
    assert!(header(page, "permissions-policy").contains("camera=()"));
}

#[tokio::test]
async fn a_browser_gets_a_page_that_repeats_nothing_of_the_request() {
    let server = TestServer::start(&[]).await;
    let mut pages = BTreeSet::new();
    for path in [
        "/",
        "/?token=pvp_no&session=owl",
        "/?%3Cscript%3Ealert(1)%3C/script%3E",
    ] {
        let page = get(&server, path).await;
        assert_eq!(page.status, 200, "{path}");
        assert_eq!(header(&page, "content-type"), "text/html; charset=utf-8");
        check_page_headers(&page);
        pages.insert(page.text);
    }
    assert_eq!(pages.len(), 1, "nothing of the request is on the page");
    // Programs get what they always got.
    let line = raw_exchange(&server.address, "GET", "/", &[], b"").await;
    assert!(line.text.starts_with("PVP server."), "{}", line.text);
    let bad = raw_exchange(&server.address, "GET", "/?token=pvp_no", &[], b"").await;
    assert_eq!(bad.status, 401);
}

#[tokio::test]
async fn the_page_is_served_whole_or_the_browser_is_told_how_to_get_it() {
    let server = TestServer::start(&[]).await;
    let page = get(&server, "/").await;
    let index = get(&server, "/index.html").await;
    if index.status == 404 {
        assert!(!must_be_embedded(), "the page was not built");
        assert_eq!(header(&page, "cache-control"), "no-store");
        assert!(page.text.contains("<code>pvp join</code>"), "{}", page.text);
        assert!(page.text.contains("<code>make install</code>"));
        return;
    }
    assert_eq!(page.text, index.text);
    assert_eq!(header(&page, "cache-control"), "no-cache");
    let policy = header(&page, "content-security-policy");
    assert!(policy.contains("require-trusted-types-for 'script'"));
    let loaded = page.text.split(['"', '\'']);
    let loaded: Vec<_> = loaded.filter(|text| text.starts_with("/assets/")).collect();
    assert!(!loaded.is_empty(), "{}", page.text);
    for path in loaded {
        let asset = get(&server, path).await;
        assert_eq!(asset.status, 200, "{path}");
        assert_eq!(
            header(&asset, "cache-control"),
            "public, max-age=31536000, immutable"
        );
        check_page_headers(&asset);
        assert!(!asset.text.contains("sourceMappingURL"), "{path}");
        let map = get(&server, &format!("{path}.map")).await;
        assert_eq!(map.status, 404, "{path}");
        for encoding in ["gzip", "br"] {
            let decoded = decompressed(&server, path, encoding).await;
            assert_eq!(decoded, asset.text, "{path} {encoding}");
        }
    }
    check_conditions_and_methods(&server, &page).await;
}

async fn check_conditions_and_methods(server: &TestServer, page: &HttpResponse) {
    let known = [BROWSER, ("If-None-Match", header(page, "etag"))];
    let again = raw_exchange(&server.address, "GET", "/", &known, b"").await;
    assert_eq!((again.status, again.text.as_str()), (304, ""));
    let head = raw_exchange(&server.address, "HEAD", "/", &[BROWSER], b"").await;
    assert_eq!((head.status, head.text.as_str()), (200, ""));
    let length = page.text.len().to_string();
    assert_eq!(header(&head, "content-length"), length);
    let post = raw_exchange(&server.address, "POST", "/index.html", &[], b"").await;
    assert_eq!(post.status, 405);
}

/// Whether a program without the page is an error. Without Node.js it is built all the same.
fn must_be_embedded() -> bool {
    std::env::var_os("CI").is_some_and(|ci| ci == "true")
}

/// What a browser gets that takes this encoding, which it must get, decompressed.
async fn decompressed(server: &TestServer, path: &str, encoding: &str) -> String {
    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nAccept-Encoding: {encoding}\r\nConnection: close\r\n\r\n",
        server.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read_to_close(&mut stream).await;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.unwrap() + 4);
    let head = String::from_utf8_lossy(head);
    let said = format!("content-encoding: {encoding}\r\n");
    assert!(head.contains(&said), "{path}: {head}");
    // The page was built with Node.js, which decodes both.
    let decode = match encoding {
        "gzip" => "gunzipSync",
        _ => "brotliDecompressSync",
    };
    let script = format!("process.stdout.write(zlib.{decode}(fs.readFileSync(0)))");
    let mut node = Command::new("node");
    node.args(["-e", &script]);
    node.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut node = node.spawn().unwrap();
    let (mut input, body) = (node.stdin.take().unwrap(), body.to_vec());
    let writing = std::thread::spawn(move || input.write_all(&body).unwrap());
    let output = node.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.status.success(), "{path} {encoding}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn nothing_but_the_page_and_the_api_is_served() {
    let server = TestServer::start(&[]).await;
    for path in [
        "/assets/",
        "/assets/none.js",
        "/assets/../Cargo.toml",
        "/assets/%2e%2e/index.html",
        "//index.html",
        "/.env",
        "/src/main.tsx",
        "/package.json",
    ] {
        let answer = get(&server, path).await;
        assert_eq!(answer.status, 404, "{path}");
    }
    // Not under a foreign name either.
    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    let rebound =
        "GET / HTTP/1.1\r\nHost: evil.example\r\nAccept: text/html\r\nConnection: close\r\n\r\n";
    stream.write_all(rebound.as_bytes()).await.unwrap();
    let answer = String::from_utf8(read_to_close(&mut stream).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}
