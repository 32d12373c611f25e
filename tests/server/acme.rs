//! Certificates from an ACME authority, a small one of these tests.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::support::fake_acme::{FakeAcme, REJECTION};
use crate::support::tls::{exchange, served_certificate};
use crate::support::{TEST_TIMEOUT, TestServer};

const DOMAIN: &str = "pvp.example.com";

/// The settings of a server that gets its certificate from this authority.
fn settings(acme: &FakeAcme, directory: &Path) -> String {
    let root = directory.join("root.pem");
    std::fs::write(&root, acme.authority.pem()).unwrap();
    json!({
        "acme": DOMAIN, "acme_email": "ops@example.com", "acme_directory": acme.directory,
        "acme_root": root,
    })
    .to_string()
}

/// Waits until a server shows a certificate that the authority has signed.
async fn wait_certified(acme: &FakeAcme, server: &TestServer) {
    let waiting = async {
        loop {
            let config = acme.authority.client();
            if served_certificate(&server.address, DOMAIN, config)
                .await
                .is_ok()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, waiting).await.unwrap();
}

#[tokio::test]
async fn a_certificate_is_ordered_kept_and_used() {
    let (directory, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let acme = FakeAcme::start(DOMAIN).await;
    // The authority checks the domain where the server will listen.
    let reserved = crate::support::reserve_port("127.0.0.1:0");
    let address = reserved.local_addr().unwrap().to_string();
    acme.check_at(&address);
    let settings = settings(&acme, directory.path());
    let flags = ["--config", settings.as_str()];
    let server = TestServer::start_on(data.path(), &address, &flags).await;
    wait_certified(&acme, &server).await;
    let request = format!("GET /health HTTP/1.1\r\nHost: {DOMAIN}\r\nConnection: close\r\n\r\n");
    let config = acme.authority.client();
    let answer = exchange(&server.address, DOMAIN, config, &request).await;
    assert!(answer.contains("\"ok\""), "{answer}");
    assert!(
        answer.contains("strict-transport-security: max-age="),
        "{answer}"
    );
    let link = server.invite_link("ann", "observer");
    assert!(
        link.starts_with(&format!("https://{DOMAIN}/#token=")),
        "{link}"
    );
    for file in std::fs::read_dir(data.path().join("acme")).unwrap() {
        use std::os::unix::fs::PermissionsExt;
        let mode = file.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    // The next start asks nobody.
    assert!(server.stop().await.success());
    let orders = acme.count("/order");
    let server = TestServer::start_on(data.path(), &address, &flags).await;
    wait_certified(&acme, &server).await;
    assert_eq!((acme.count("/order"), acme.count("/account")), (orders, 1));
}

#[tokio::test]
async fn a_domain_that_leads_elsewhere_gets_no_certificate_and_the_server_says_so() {
    let (directory, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let acme = FakeAcme::start(DOMAIN).await;
    let elsewhere = TestServer::start(&["--tls-self-signed"]).await;
    acme.check_at(&elsewhere.address);
    let settings = settings(&acme, directory.path());
    let log_path = directory.path().join("log");
    let log = std::fs::File::create(&log_path).unwrap();
    let flags = ["--config", settings.as_str()];
    let server = TestServer::start_with(data.path(), "127.0.0.1:0", &flags, &[], Some(log)).await;
    let reported = async {
        let is_reported = || {
            let log = std::fs::read_to_string(&log_path).unwrap();
            log.contains("could not get a certificate") && log.contains(REJECTION)
        };
        while !is_reported() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let log = || std::fs::read_to_string(&log_path).unwrap();
    tokio::time::timeout(TEST_TIMEOUT, reported)
        .await
        .unwrap_or_else(|_| panic!("{}", log()));
    // It goes on, with a certificate that nobody trusts, and does not ask again at once.
    let config = acme.authority.client();
    let served = served_certificate(&server.address, DOMAIN, config).await;
    assert!(served.is_err());
    assert_eq!(acme.count("/order"), 1);
    assert_eq!(acme.count("/finalize/1"), 0);
}

#[tokio::test]
async fn a_certificate_that_seems_to_have_expired_when_it_comes_is_not_ordered_again_at_once() {
    let (directory, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let acme = FakeAcme::start(DOMAIN).await;
    acme.sign_expired();
    let reserved = crate::support::reserve_port("127.0.0.1:0");
    let address = reserved.local_addr().unwrap().to_string();
    acme.check_at(&address);
    let settings = settings(&acme, directory.path());
    let log_path = directory.path().join("log");
    let log = std::fs::File::create(&log_path).unwrap();
    let flags = ["--config", settings.as_str()];
    let _server = TestServer::start_with(data.path(), &address, &flags, &[], Some(log)).await;
    let log = || std::fs::read_to_string(&log_path).unwrap();
    let reported = async {
        while !log().contains("clock may be wrong") {
            assert!(acme.count("/order") <= 1, "{}", log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, reported)
        .await
        .unwrap_or_else(|_| panic!("{}", log()));
    assert_eq!(acme.count("/order"), 1, "{}", log());
    assert!(log().contains("seconds=172800"), "{}", log());
}
