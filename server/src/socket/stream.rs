//! The transport under an upgraded connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::network_stream::NetworkStream;

/// The connection's own stream where possible; otherwise hyper's upgraded stream, boxed.
#[derive(Debug)]
pub enum SocketStream {
    Own(NetworkStream),
    Other(Box<TokioIo<Upgraded>>),
}

impl AsyncRead for SocketStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SocketStream::Own(own) => Pin::new(own).poll_read(cx, buffer),
            SocketStream::Other(other) => Pin::new(other).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for SocketStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            SocketStream::Own(own) => Pin::new(own).poll_write(cx, bytes),
            SocketStream::Other(other) => Pin::new(other).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            SocketStream::Own(own) => Pin::new(own).poll_write_vectored(cx, slices),
            SocketStream::Other(other) => Pin::new(other).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            SocketStream::Own(own) => own.is_write_vectored(),
            SocketStream::Other(other) => other.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SocketStream::Own(own) => Pin::new(own).poll_flush(cx),
            SocketStream::Other(other) => Pin::new(other).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SocketStream::Own(own) => Pin::new(own).poll_shutdown(cx),
            SocketStream::Other(other) => Pin::new(other).poll_shutdown(cx),
        }
    }
}
