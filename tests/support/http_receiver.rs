//! An HTTP server that takes whatever it is sent, and answers as the test says.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::TEST_TIMEOUT;

/// A request that was received.
#[derive(Debug, Clone)]
pub struct ReceiverRequest {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl ReceiverRequest {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// What is answered: a whole head without the lines that end it, or nothing at all.
#[derive(Debug, Clone)]
pub enum ReceiverAnswer {
    Head(String),
    /// The connection stays open, and nothing comes.
    Silence,
}

pub struct HttpReceiver {
    pub address: String,
    requests: mpsc::UnboundedReceiver<ReceiverRequest>,
    answers: Arc<Mutex<VecDeque<ReceiverAnswer>>>,
}

impl HttpReceiver {
    pub async fn start() -> Self {
        Self::start_with(None).await
    }

    /// A receiver that is reached by https.
    pub async fn start_tls(acceptor: TlsAcceptor) -> Self {
        Self::start_with(Some(acceptor)).await
    }

    async fn start_with(acceptor: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, requests) = mpsc::unbounded_channel();
        let answers = Arc::<Mutex<VecDeque<ReceiverAnswer>>>::default();
        let next_answers = answers.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, answers) = (sender.clone(), next_answers.clone());
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    match acceptor {
                        None => serve(stream, sender, answers).await,
                        Some(acceptor) => {
                            // Whoever does not trust the certificate leaves.
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, sender, answers).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            requests,
            answers,
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Answers the next request that has no answer yet with this status.
    pub fn answer_next(&self, status: u16) {
        self.answer_next_with(ReceiverAnswer::Head(format!("HTTP/1.1 {status} Test")));
    }

    pub fn answer_next_with(&self, answer: ReceiverAnswer) {
        self.answers.lock().unwrap().push_back(answer);
    }

    /// Answers all that follows as usual.
    pub fn forget_answers(&self) {
        self.answers.lock().unwrap().clear();
    }

    /// The next request, when it comes.
    pub async fn next(&mut self) -> ReceiverRequest {
        self.next_within(TEST_TIMEOUT).await
    }

    /// The next request, if it takes longer than usual.
    pub async fn next_within(&mut self, timeout: Duration) -> ReceiverRequest {
        let next = tokio::time::timeout(timeout, self.requests.recv()).await;
        next.expect("a request comes in time").unwrap()
    }

    /// The next request, if there is one already.
    pub fn try_next(&mut self) -> Option<ReceiverRequest> {
        self.requests.try_recv().ok()
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    requests: mpsc::UnboundedSender<ReceiverRequest>,
    answers: Arc<Mutex<VecDeque<ReceiverAnswer>>>,
) {
    let Some(request) = read_request(&mut stream).await else {
        return;
    };
    let answer = answers.lock().unwrap().pop_front();
    // The test may be over.
    let _ = requests.send(request);
    let usual = || ReceiverAnswer::Head("HTTP/1.1 201 Created".to_owned());
    match answer.unwrap_or_else(usual) {
        ReceiverAnswer::Head(head) => {
            let answer = format!("{head}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
        ReceiverAnswer::Silence => {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
    }
}

/// Reads one request; `None` if the connection ends before.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<ReceiverRequest> {
    let mut received = Vec::new();
    let head_end = loop {
        if let Some(at) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at;
        }
        read_some(stream, &mut received).await?;
    };
    let head = String::from_utf8(received[..head_end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: BTreeMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length");
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    let mut body = received.split_off(head_end + 4);
    while body.len() < length {
        read_some(stream, &mut body).await?;
    }
    Some(ReceiverRequest {
        method,
        path,
        headers,
        body,
    })
}

async fn read_some(stream: &mut (impl AsyncRead + Unpin), received: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 4096];
    let length = stream.read(&mut buffer).await.ok()?;
    received.extend(&buffer[..length]);
    (length > 0).then_some(())
}
