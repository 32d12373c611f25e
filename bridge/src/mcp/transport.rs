//! A transport that reads no further while too many answers wait to be written, and that says when
//! the client has gone.

use std::sync::Arc;

use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::watch;

/// Messages that may wait to be written. A client that sends and never reads is not read either.
const MAX_UNSENT: usize = 128;

pub(super) struct BoundedTransport<T> {
    transport: T,
    /// How many messages wait to be written.
    unsent: Arc<watch::Sender<usize>>,
    /// Set when the client has closed its side.
    closed: watch::Sender<bool>,
}

impl<T> BoundedTransport<T> {
    pub(super) fn new(transport: T, closed: watch::Sender<bool>) -> Self {
        Self {
            transport,
            unsent: Arc::new(watch::Sender::new(0)),
            closed,
        }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for BoundedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let unsent = UnsentMessage::new(self.unsent.clone());
        let sending = self.transport.send(message);
        async move {
            let _unsent = unsent;
            sending.await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let mut unsent = self.unsent.subscribe();
        // It cannot fail: the sender is in this struct.
        let _ = unsent.wait_for(|unsent| *unsent < MAX_UNSENT).await;
        let message = self.transport.receive().await;
        if message.is_none() {
            self.closed.send_replace(true);
        }
        message
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.transport.close().await
    }
}

/// Counts a message until it is written, or given up.
struct UnsentMessage(Arc<watch::Sender<usize>>);

impl UnsentMessage {
    fn new(unsent: Arc<watch::Sender<usize>>) -> Self {
        unsent.send_modify(|unsent| *unsent += 1);
        Self(unsent)
    }
}

impl Drop for UnsentMessage {
    fn drop(&mut self) {
        self.0.send_modify(|unsent| *unsent -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{EmptyResult, JsonRpcMessage, NumberOrString, ServerResult};
    use rmcp::transport::async_rw::AsyncRwTransport;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_client_that_never_reads_is_not_read_either() {
        let (ours, theirs) = tokio::io::duplex(64);
        let (input, output) = tokio::io::split(ours);
        let (_unread, mut client) = tokio::io::split(theirs);
        let (closed, _) = watch::channel(false);
        let streams = AsyncRwTransport::new_server(input, output);
        let mut transport = BoundedTransport::new(streams, closed);
        let answer = || {
            JsonRpcMessage::response(
                ServerResult::EmptyResult(EmptyResult {}),
                NumberOrString::Number(1),
            )
        };
        let mut sending = Vec::new();
        for _ in 0..MAX_UNSENT {
            sending.push(transport.send(answer()));
        }
        let ping = b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n";
        client.write_all(ping).await.unwrap();
        let mut receiving = Box::pin(transport.receive());
        assert!(futures_util::poll!(&mut receiving).is_pending());
        // One message fewer waits.
        sending.pop();
        assert!(receiving.await.is_some());
    }
}
