//! A mail relay that takes every mail, or answers to recipients as the test says.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::TEST_TIMEOUT;

/// A mail that was received.
#[derive(Debug, Clone)]
pub struct ReceivedMail {
    pub from: String,
    pub to: Vec<String>,
    /// The head and the text, with dots as they were before the transport.
    pub data: String,
}

impl ReceivedMail {
    /// The text, decoded.
    pub fn text(&self) -> String {
        let (head, body) = self.data.split_once("\r\n\r\n").unwrap();
        assert!(!head.contains("base64"), "{head}");
        // Soft line breaks and escapes of quoted-printable.
        let body = body.replace("=\r\n", "");
        body.replace("=3D", "=").replace("\r\n", "\n")
    }

    pub fn header(&self, name: &str) -> String {
        let head = self.data.split("\r\n\r\n").next().unwrap();
        let unfolded = head.replace("\r\n ", " ");
        let prefix = format!("{name}: ");
        let mut lines = unfolded
            .split("\r\n")
            .filter_map(|line| line.strip_prefix(&prefix));
        lines.next().unwrap().to_owned()
    }
}

pub struct SmtpReceiver {
    pub port: u16,
    mails: mpsc::UnboundedReceiver<ReceivedMail>,
    /// What is answered to the next recipients; then all are taken.
    refusals: Arc<Mutex<Vec<&'static str>>>,
}

impl SmtpReceiver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, mails) = mpsc::unbounded_channel();
        let refusals = Arc::<Mutex<Vec<&'static str>>>::default();
        let next_refusals = refusals.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, sender.clone(), next_refusals.clone()));
            }
        });
        Self {
            port,
            mails,
            refusals,
        }
    }

    /// Answers the next recipient with this.
    pub fn refuse_next(&self, answer: &'static str) {
        self.refusals.lock().unwrap().push(answer);
    }

    pub async fn next(&mut self) -> ReceivedMail {
        let next = tokio::time::timeout(TEST_TIMEOUT, self.mails.recv()).await;
        next.expect("a mail comes in time").unwrap()
    }
}

async fn serve(
    stream: TcpStream,
    mails: mpsc::UnboundedSender<ReceivedMail>,
    refusals: Arc<Mutex<Vec<&'static str>>>,
) -> Option<()> {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    writer.write_all(b"220 test\r\n").await.ok()?;
    let (mut from, mut to) = (String::new(), Vec::new());
    while let Some(line) = lines.next_line().await.ok()? {
        let address = || line.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
        let answer = match line.split([' ', ':']).next().unwrap_or_default() {
            "EHLO" => "250-test\r\n250 8BITMIME",
            "MAIL" => {
                (from, to) = (address(), Vec::new());
                "250 ok"
            }
            "RCPT" => {
                to.push(address());
                refusals.lock().unwrap().pop().unwrap_or("250 ok")
            }
            "DATA" => {
                writer.write_all(b"354 go on\r\n").await.ok()?;
                let mut data = String::new();
                loop {
                    let line = lines.next_line().await.ok()??;
                    if line == "." {
                        break;
                    }
                    data += line.strip_prefix('.').unwrap_or(&line);
                    data += "\r\n";
                }
                let mail = ReceivedMail {
                    from: from.clone(),
                    to: to.clone(),
                    data,
                };
                // The test may be over.
                let _ = mails.send(mail);
                "250 taken"
            }
            "QUIT" => {
                writer.write_all(b"221 bye\r\n").await.ok()?;
                return Some(());
            }
            _ => "250 ok",
        };
        writer
            .write_all(format!("{answer}\r\n").as_bytes())
            .await
            .ok()?;
    }
    Some(())
}
