use std::collections::BTreeMap;
use std::io;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::addresses::{AddressPolicy, TrustedHost};
use crate::web_target::AddressSource;

/// A resolver whose answers tests set; each is given once, the last one for ever.
#[derive(Default)]
struct FakeResolver {
    answers: Mutex<BTreeMap<String, Vec<Vec<SocketAddr>>>>,
    asked: Mutex<u32>,
}

impl FakeResolver {
    fn new(host: &str, answers: &[&[SocketAddr]]) -> Arc<Self> {
        let resolver = Self::default();
        let answers = answers.iter().map(|addresses| addresses.to_vec()).collect();
        resolver.answers.lock().insert(host.to_owned(), answers);
        Arc::new(resolver)
    }
}

impl HostResolver for FakeResolver {
    fn resolve<'a>(&'a self, host: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        *self.asked.lock() += 1;
        let mut answers = self.answers.lock();
        let answer = answers.get_mut(host).map(|answers| match answers.len() {
            1 => answers[0].clone(),
            _ => answers.remove(0),
        });
        Box::pin(async move { answer.ok_or_else(|| io::ErrorKind::NotFound.into()) })
    }
}

fn person(text: &str) -> WebTarget {
    WebTarget::parse(text, AddressSource::Person, &AddressPolicy::default()).unwrap()
}

fn trusted(text: &str, host: &str) -> WebTarget {
    let policy = AddressPolicy::new(TrustedHost::parse(host));
    WebTarget::parse(text, AddressSource::Person, &policy).unwrap()
}

/// Answers the next connection with these bytes, and returns what it received.
async fn answer_one(listener: TcpListener, answer: &'static str) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&received).ends_with("\r\n\r\nbody") {
        let length = stream.read(&mut buffer).await.unwrap();
        assert!(length > 0, "the request ended early");
        received.extend(&buffer[..length]);
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    String::from_utf8(received).unwrap()
}

async fn post(poster: &WebPoster, target: &WebTarget) -> Result<(), DeliveryError> {
    let body = Bytes::from_static(b"body");
    poster.post(target, HeaderMap::new(), body).await
}

#[tokio::test]
async fn a_name_that_leads_to_a_private_address_is_refused() {
    for private in [
        "127.0.0.1:443",
        "10.1.2.3:443",
        "169.254.169.254:443",
        "100.64.0.1:443",
        "[::1]:443",
        "[::ffff:127.0.0.1]:443",
        "[fd00::1]:443",
        "[fe80::1]:443",
    ] {
        let public: SocketAddr = "1.1.1.1:443".parse().unwrap();
        let private: SocketAddr = private.parse().unwrap();
        for answer in [&[private][..], &[public, private]] {
            let resolver = FakeResolver::new("rebound.example", &[answer]);
            let poster = WebPoster::with_resolver(resolver);
            let target = person("https://rebound.example/hook");
            let refused = post(&poster, &target).await;
            // Nobody learns which names there are inside.
            let unknown = post(&poster, &person("https://unknown.example/hook")).await;
            assert_eq!(refused, unknown, "{private}");
            assert_eq!(refused, Err(unreachable_host()), "{private}");
        }
    }
}

#[tokio::test]
async fn a_name_is_looked_up_once_for_each_request_so_that_it_cannot_change_in_between() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let elsewhere: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let resolver = FakeResolver::new("once.example", &[&[address], &[elsewhere]]);
    let poster = WebPoster::with_resolver(resolver.clone());
    let url = format!("http://once.example:{}/hook", address.port());
    let target = trusted(&url, "once.example");
    let answer = "HTTP/1.1 204 No Content\r\n\r\n";
    let (result, received) = tokio::join!(post(&poster, &target), answer_one(listener, answer));
    assert_eq!(result, Ok(()));
    assert_eq!(*resolver.asked.lock(), 1);
    assert!(
        received.starts_with("POST /hook HTTP/1.1\r\n"),
        "{received}"
    );
    let host = format!("host: once.example:{}\r\n", address.port());
    assert!(received.contains(&host), "{received}");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let target = trusted(&url, "127.0.0.1");
    let location = other.local_addr().unwrap();
    let answer = format!("HTTP/1.1 307 Moved\r\nLocation: http://{location}/\r\n\r\n");
    let answer: &'static str = answer.leak();
    let poster = WebPoster::default();
    let (result, _) = tokio::join!(post(&poster, &target), answer_one(listener, answer));
    let error = result.unwrap_err();
    assert!(matches!(error, DeliveryError::Permanent(_)), "{error}");
    assert!(error.to_string().contains("redirect"), "{error}");
    // Connections are accepted in the order in which they came.
    let own = TcpStream::connect(location).await.unwrap();
    let (_, first) = other.accept().await.unwrap();
    assert_eq!(first, own.local_addr().unwrap(), "nobody else came");
}

#[tokio::test]
async fn a_receiver_may_ask_to_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = trusted(
        &format!("http://{}/", listener.local_addr().unwrap()),
        "127.0.0.1",
    );
    let answer = "HTTP/1.1 429 Slow down\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno";
    let poster = WebPoster::default();
    let (result, _) = tokio::join!(post(&poster, &target), answer_one(listener, answer));
    let expected = DeliveryError::Transient {
        why: "it answered 429".to_owned(),
        retry_after: Some(Duration::from_secs(7)),
    };
    assert_eq!(result, Err(expected));
}

#[test]
fn what_a_receiver_asks_for_is_seconds_or_a_date_and_bounded() {
    let now = 784_111_777; // Sun, 06 Nov 1994 08:49:37 GMT
    let parsed = |text: &str| parse_retry_after(text, now).map(|wait| wait.as_secs());
    assert_eq!(parsed("120"), Some(120));
    assert_eq!(parsed(" 0 "), Some(0));
    assert_eq!(parsed("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
    assert_eq!(parsed("Sun, 06 Nov 1994 08:49:00 GMT"), Some(0));
    assert_eq!(parsed("99999999"), Some(300));
    assert_eq!(parsed("Sat, 06 Nov 2094 08:49:37 GMT"), Some(300));
    assert_eq!(parsed("soon"), None);
    assert_eq!(parsed("-1"), None);
}

/// Answers a request with these bytes, and then with the others again and again; returns how many of
/// them were taken.
async fn flood(start: &'static [u8], more: &'static [u8]) -> (Result<(), DeliveryError>, u64) {
    let (near, mut far) = tokio::io::duplex(64);
    let target = trusted("http://127.0.0.1/", "127.0.0.1");
    let request = build_request(&target, HeaderMap::new(), Bytes::from_static(b"body")).unwrap();
    let flooding = async {
        let mut received = Vec::new();
        let mut buffer = [0; 64];
        while !received.ends_with(b"body") {
            let length = far.read(&mut buffer).await.unwrap();
            received.extend(&buffer[..length]);
        }
        far.write_all(start).await.unwrap();
        let mut sent = 0;
        while far.write_all(more).await.is_ok() {
            sent += more.len() as u64;
        }
        sent
    };
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    tokio::join!(exchange(near, request, deadline), flooding)
}

#[tokio::test]
async fn only_a_little_of_an_answer_is_read() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n";
    let (result, taken) = flood(head, &[b'x'; 64]).await;
    assert_eq!(result, Ok(()));
    assert!(taken <= MAX_ANSWER_BYTES as u64 + 64, "{taken} bytes");
}

#[tokio::test]
async fn heads_that_announce_another_one_without_end_are_refused() {
    let (result, taken) = flood(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n").await;
    let broken = DeliveryError::transient("the connection broke");
    assert_eq!(result, Err(broken));
    assert!(taken <= MAX_ANSWER_BYTES as u64 + 64, "{taken} bytes");
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_when_its_head_has_come_however_long_the_rest_takes() {
    for (head, is_taken) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", true),
        ("HTTP/1.1 403 No\r\nContent-Length: 9\r\n\r\n", false),
    ] {
        let (near, mut far) = tokio::io::duplex(4096);
        let target = trusted("http://127.0.0.1/", "127.0.0.1");
        let request = build_request(&target, HeaderMap::new(), Bytes::new()).unwrap();
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let answering = async {
            let _ = far.read(&mut [0; 4096]).await.unwrap();
            far.write_all(head.as_bytes()).await.unwrap();
        };
        let (result, ()) = tokio::join!(exchange(near, request, deadline), answering);
        assert_eq!(result.is_ok(), is_taken, "{result:?}");
        let is_final = !matches!(result, Err(DeliveryError::Transient { .. }));
        assert!(is_final, "{result:?}");
        drop(far);
    }
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = trusted(
        &format!("http://{}/", listener.local_addr().unwrap()),
        "127.0.0.1",
    );
    let flood = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n").await.unwrap();
        while stream
            .write_all(b"X-Filler: aaaaaaaaaaaaaaaaaaaaaaaa\r\n")
            .await
            .is_ok()
        {}
    };
    let poster = WebPoster::default();
    let (result, ()) = tokio::join!(post(&poster, &target), flood);
    assert_eq!(
        result,
        Err(DeliveryError::transient("the connection broke"))
    );
}

#[tokio::test]
async fn a_server_without_a_trusted_certificate_is_told_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = trusted(
        &format!("https://{}/", listener.local_addr().unwrap()),
        "127.0.0.1",
    );
    let plain = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; 1024];
        let length = stream.read(&mut hello).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        hello[..length].to_vec()
    };
    let poster = WebPoster::default();
    let (result, hello) = tokio::join!(post(&poster, &target), plain);
    let error = result.unwrap_err().to_string();
    assert!(error.starts_with("TLS failed"), "{error}");
    assert_eq!(hello[0], 0x16, "a TLS handshake");
    assert!(!hello.windows(4).any(|bytes| bytes == b"body"));
}
