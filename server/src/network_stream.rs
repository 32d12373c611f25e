//! What a connection's bytes travel through: TCP alone, or TLS on top of it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// The stream of one connection.
#[derive(Debug)]
pub enum NetworkStream {
    Tcp(TcpStream),
    /// Boxed, because it is some hundred times as large.
    Tls(Box<TlsStream<TcpStream>>),
}

impl NetworkStream {
    /// The TCP stream underneath.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            NetworkStream::Tcp(tcp) => tcp,
            NetworkStream::Tls(tls) => tls.get_ref().0,
        }
    }
}

impl AsyncRead for NetworkStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            NetworkStream::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            NetworkStream::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for NetworkStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            NetworkStream::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            NetworkStream::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            NetworkStream::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            NetworkStream::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            NetworkStream::Tcp(tcp) => tcp.is_write_vectored(),
            NetworkStream::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            NetworkStream::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
            NetworkStream::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            NetworkStream::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            NetworkStream::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
