//! Publishes anchors of all sessions on a schedule, to a file and to a webhook.
//!
//! An anchor counts as published when the file is synced or the webhook has answered with success.
//! What was not published is tried again soon; anchors are small and signed, and a newer one of a
//! session replaces the one that waits.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::SeekFrom;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::body::Body;
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, Uri};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::directory::SessionDirectory;
use crate::store::Store;
use crate::store::audit::Anchor;

/// Sessions that are looked at, and anchors that are sent, at a time.
const MAX_BATCH: usize = 256;

/// How long a webhook may take to answer.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait after a failure, if the schedule does not say sooner.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Whether the text is an address that anchors can be posted to.
pub(crate) fn is_webhook(text: &str) -> bool {
    parse_webhook(text).is_some()
}

fn parse_webhook(text: &str) -> Option<Uri> {
    let uri: Uri = text.parse().ok()?;
    let authority = uri.authority()?.as_str();
    let is_plain = uri.scheme_str() == Some("http") && !authority.contains('@');
    is_plain.then_some(uri)
}

/// Publishes anchors until the server stops, and once more then.
pub(crate) async fn publish_anchors(directory: Arc<SessionDirectory>) {
    let config = &directory.config;
    let file = config.anchor_file.clone().map(AnchorTarget::File);
    let webhook = config.anchor_url.as_deref().and_then(parse_webhook);
    let targets = file.into_iter().chain(webhook.map(AnchorTarget::Webhook));
    let publishers = targets.map(|target| {
        let publisher = AnchorPublisher {
            target,
            published: BTreeMap::new(),
        };
        publisher.run(&directory)
    });
    futures_util::future::join_all(publishers).await;
}

/// Where anchors go.
enum AnchorTarget {
    File(PathBuf),
    Webhook(Uri),
}

impl std::fmt::Display for AnchorTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AnchorTarget::File(path) => write!(f, "{}", path.display()),
            // The path may be what keeps others from posting.
            AnchorTarget::Webhook(uri) => write!(f, "{}", uri.host().unwrap_or_default()),
        }
    }
}

impl AnchorTarget {
    async fn publish(&self, anchors: &[Anchor]) -> anyhow::Result<()> {
        let mut lines = String::new();
        for anchor in anchors {
            lines += &anchor.to_json();
            lines.push('\n');
        }
        match self {
            AnchorTarget::File(path) => append_lines(path, &lines).await,
            AnchorTarget::Webhook(uri) => timeout(WEBHOOK_TIMEOUT, post_lines(uri, lines))
                .await
                .unwrap_or_else(|_| bail!("it did not answer in time")),
        }
    }
}

/// Publishes anchors to one target.
struct AnchorPublisher {
    target: AnchorTarget,
    /// The entry of the last anchor that was published, by the session's row.
    published: BTreeMap<i64, u64>,
}

impl AnchorPublisher {
    async fn run(mut self, directory: &SessionDirectory) {
        let interval = Duration::from_secs(directory.config.anchor_seconds);
        let mut shutdown = directory.shutdown_signal();
        loop {
            let delay = match self.publish_all(directory.store.as_ref()).await {
                Ok(()) => interval,
                Err(error) => {
                    let target = &self.target;
                    tracing::error!(%target, "could not publish anchors, will try again: {error:#}");
                    interval.min(RETRY_DELAY)
                }
            };
            let stopping = *shutdown.borrow();
            if stopping {
                return;
            }
            tokio::select! {
                () = sleep(delay) => {}
                _ = shutdown.wait_for(|stopping| *stopping) => {}
            }
        }
    }

    /// Publishes an anchor of every session that has been signed since its last one.
    async fn publish_all(&mut self, store: &dyn Store) -> anyhow::Result<()> {
        let mut last_row = i64::MIN;
        loop {
            let rows = store.anchors(last_row, MAX_BATCH).await?;
            let Some(last) = rows.last() else {
                return Ok(());
            };
            last_row = last.row;
            let (mut fresh, mut seqs) = (Vec::new(), Vec::new());
            for row in rows {
                let Some(anchor) = row.anchor else {
                    tracing::error!(
                        row = row.row,
                        "a session has no good checkpoint; run `pvp audit verify`"
                    );
                    continue;
                };
                if self.published.get(&row.row) != Some(&anchor.checkpoint.seq) {
                    seqs.push((row.row, anchor.checkpoint.seq));
                    fresh.push(anchor);
                }
            }
            if !fresh.is_empty() {
                self.target.publish(&fresh).await?;
                self.published.extend(seqs);
            }
        }
    }
}

/// Appends lines to a file, and returns when they are on the disk.
async fn append_lines(path: &Path, lines: &str) -> anyhow::Result<()> {
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .await
        .context("opening the file")?;
    let torn = ends_within_a_line(&mut file)
        .await
        .context("reading the file")?;
    let text = match torn {
        true => format!("\n{lines}"),
        false => lines.to_owned(),
    };
    file.write_all(text.as_bytes())
        .await
        .context("writing the file")?;
    file.flush().await.context("writing the file")?;
    file.sync_data().await.context("writing the file")
}

/// Whether an earlier write was cut short, by a full disk for example.
async fn ends_within_a_line(file: &mut File) -> std::io::Result<bool> {
    if file.metadata().await?.len() == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1)).await?;
    Ok(file.read_u8().await? != b'\n')
}

/// Posts lines, and returns when they were accepted.
async fn post_lines(uri: &Uri, lines: String) -> anyhow::Result<()> {
    let authority = uri.authority().context("it names no host")?.clone();
    let host = authority.host().trim_matches(['[', ']']);
    let port = authority.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host, port)).await;
    let stream = TokioIo::new(stream.context("connecting")?);
    let (mut sender, connection) = http1::handshake(stream).await.context("connecting")?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::post(path)
        .header(HOST, authority.as_str())
        .header(CONTENT_TYPE, "application/x-ndjson")
        .body(Body::from(lines))
        .context("making the request")?;
    let status = {
        let answer = sender.send_request(request);
        drive(connection, answer).await.context("posting")?.status()
    };
    match status.is_success() {
        true => Ok(()),
        false => bail!("it answered {status}"),
    }
}

/// Waits for an answer while the connection does its work.
async fn drive<T>(
    connection: impl Future<Output = hyper::Result<()>>,
    answer: impl Future<Output = hyper::Result<T>>,
) -> anyhow::Result<T> {
    let (mut connection, mut answer) = (std::pin::pin!(connection), std::pin::pin!(answer));
    tokio::select! {
        biased;
        answer = answer.as_mut() => Ok(answer?),
        ended = connection.as_mut() => {
            ended?;
            // What had arrived by then may be the answer.
            Ok(answer.await?)
        }
    }
}
