//! As much of HTTP/1.1 as the clients use: one request per connection, answered whole.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Far above what the clients send.
const MAX_BODY: usize = 32 * 1024 * 1024;
const MAX_HEAD: usize = 64 * 1024;

pub(super) struct ModelHttpRequest {
    method: String,
    /// The path with its query.
    path: String,
    /// Null if the body is not JSON.
    pub(super) body: Value,
}

impl ModelHttpRequest {
    pub(super) fn path(&self) -> &str {
        self.path.split('?').next().expect("split gives one part")
    }

    pub(super) fn target(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

pub(super) struct ModelHttpResponse {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl ModelHttpResponse {
    pub(super) fn json(body: &Value) -> Self {
        Self {
            status: "200 OK",
            content_type: "application/json",
            body: body.to_string(),
        }
    }

    /// A stream of events, each with its name if it has one.
    pub(super) fn events(events: &[(Option<&str>, String)]) -> Self {
        let mut body = String::new();
        for (name, data) in events {
            if let Some(name) = name {
                body += &format!("event: {name}\n");
            }
            body += &format!("data: {data}\n\n");
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
            body: r#"{"error":{"type":"not_found_error","message":"not scripted"}}"#.to_owned(),
        }
    }
}

/// Reads one request and answers it.
pub(super) async fn serve(
    socket: TcpStream,
    respond: impl FnOnce(&ModelHttpRequest) -> ModelHttpResponse,
) -> io::Result<()> {
    let mut stream = BufReader::new(socket);
    let request = read_request(&mut stream).await?;
    let ModelHttpResponse {
        status,
        content_type,
        body,
    } = respond(&request);
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let socket = stream.get_mut();
    socket.write_all(head.as_bytes()).await?;
    if request.method != "HEAD" {
        socket.write_all(body.as_bytes()).await?;
    }
    socket.shutdown().await
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> io::Result<ModelHttpRequest> {
    let line = read_line(stream).await?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next(), words.next());
    let mut length = 0;
    let mut chunked = false;
    loop {
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
        false => read_exactly(stream, length).await?,
    };
    Ok(ModelHttpRequest {
        method: method.unwrap_or_default(),
        path: path.unwrap_or_default(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}

async fn read_chunks(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let length = parse_length(&read_line(stream).await?, 16)?;
        if body.len() + length > MAX_BODY {
            return Err(io::ErrorKind::InvalidData.into());
        }
        body.extend(read_exactly(stream, length).await?);
        read_line(stream).await?;
        if length == 0 {
            return Ok(body);
        }
    }
}

async fn read_exactly(stream: &mut BufReader<TcpStream>, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// A line without its end.
async fn read_line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    let mut limited = stream.take(MAX_HEAD as u64);
    limited.read_line(&mut line).await?;
    match line.ends_with('\n') {
        true => Ok(line.trim_end().to_owned()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn parse_length(digits: &str, radix: u32) -> io::Result<usize> {
    match usize::from_str_radix(digits, radix) {
        Ok(length) if length <= MAX_BODY => Ok(length),
        Ok(_) | Err(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}
