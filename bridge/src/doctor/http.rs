//! As much of HTTP/1.1 as a client needs to speak with its model: one request per connection.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Far above what a client sends for one call.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
const MAX_LINE_BYTES: u64 = 64 * 1024;
const MAX_HEADERS: usize = 256;

pub(super) struct CanaryRequest {
    /// The path without its query.
    pub(super) path: String,
    /// Null if the body is not JSON.
    pub(super) body: Value,
}

pub(super) struct CanaryResponse {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl CanaryResponse {
    pub(super) fn json(body: &Value) -> Self {
        Self {
            status: "200 OK",
            content_type: "application/json",
            body: body.to_string(),
        }
    }

    /// A stream of events, each named by its type if it has one.
    pub(super) fn events(events: impl IntoIterator<Item = Value>) -> Self {
        let mut body = String::new();
        for event in events {
            if let Some(name) = event["type"].as_str() {
                body.push_str(&format!("event: {name}\n"));
            }
            body.push_str(&format!("data: {event}\n\n"));
        }
        Self {
            status: "200 OK",
            content_type: "text/event-stream",
            body,
        }
    }

    pub(super) fn not_found() -> Self {
        Self {
            status: "404 Not Found",
            content_type: "application/json",
            body: r#"{"error":{"type":"not_found_error","message":"not here"}}"#.to_owned(),
        }
    }
}

/// Reads one request and answers it.
pub(super) async fn serve(
    socket: TcpStream,
    respond: impl FnOnce(&CanaryRequest) -> CanaryResponse,
) -> io::Result<()> {
    let mut stream = BufReader::new(socket);
    let (method, request) = read_request(&mut stream).await?;
    let response = respond(&request);
    let head = format!(
        "HTTP/1.1 {}\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        response.status,
        response.content_type,
        response.body.len()
    );
    let socket = stream.get_mut();
    socket.write_all(head.as_bytes()).await?;
    if method != "HEAD" {
        socket.write_all(response.body.as_bytes()).await?;
    }
    socket.shutdown().await
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> io::Result<(String, CanaryRequest)> {
    let line = read_line(stream).await?;
    let mut words = line.split(' ');
    let method = words.next().unwrap_or_default().to_owned();
    let path = words.next().unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default().to_owned();
    let (mut length, mut chunked) = (0, false);
    for _ in 0..MAX_HEADERS {
        let line = read_line(stream).await?.to_ascii_lowercase();
        match line.split_once(':') {
            Some(("content-length", value)) => length = parse_length(value.trim(), 10)?,
            Some(("transfer-encoding", value)) => chunked = value.contains("chunked"),
            Some(_) => {}
            None => break,
        }
    }
    let body = match chunked {
        true => read_chunks(stream).await?,
        false => read_bytes(stream, length).await?,
    };
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Ok((method, CanaryRequest { path, body }))
}

async fn read_chunks(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(stream).await?;
        let length = parse_length(line.split(';').next().unwrap_or_default().trim(), 16)?;
        if body.len() + length > MAX_BODY_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        body.extend(read_bytes(stream, length).await?);
        read_line(stream).await?;
        if length == 0 {
            return Ok(body);
        }
    }
}

async fn read_bytes(stream: &mut BufReader<TcpStream>, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// A line without its end.
async fn read_line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = Vec::new();
    stream
        .take(MAX_LINE_BYTES)
        .read_until(b'\n', &mut line)
        .await?;
    match line.ends_with(b"\n") {
        true => Ok(String::from_utf8_lossy(&line).trim_end().to_owned()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn parse_length(digits: &str, radix: u32) -> io::Result<usize> {
    match usize::from_str_radix(digits, radix) {
        Ok(length) if length <= MAX_BODY_BYTES => Ok(length),
        Ok(_) | Err(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}
