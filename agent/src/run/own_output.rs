//! Output that the executor itself produced, recorded and streamed like a command's.

use std::collections::BTreeMap;
use std::time::Duration;

use pvp_protocol::payload::OutputStream;
use tokio::sync::mpsc;

use super::output_recorder::{MAX_CHUNK_BYTES, OutputRecorder, StreamSummary};
use super::{FinishedRun, StdioChunk};
use crate::mask::SecretMask;

/// What a tool of the executor printed, and how it ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnOutput {
    pub(crate) exit_code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl OwnOutput {
    /// Sends both streams to `chunks`, with the values of `secrets` masked, up to `max_bytes`
    /// together.
    pub(crate) async fn stream_to_end(
        self,
        max_bytes: u64,
        secrets: &BTreeMap<String, String>,
        duration: Duration,
        chunks: mpsc::Sender<StdioChunk>,
    ) -> FinishedRun {
        let mask = SecretMask::new(secrets);
        let mut left = max_bytes;
        let mut stream = async |stream, bytes: &[u8]| {
            let recorder = OutputRecorder::new(stream, mask.clone(), false);
            send_all(recorder, bytes, &mut left, &chunks).await
        };
        let stderr = stream(OutputStream::Stderr, self.stderr.as_bytes()).await;
        let stdout = stream(OutputStream::Stdout, &self.stdout).await;
        FinishedRun {
            exit_code: Some(self.exit_code),
            signal: None,
            stop_reason: None,
            duration,
            stdout,
            stderr,
            kill_mechanism: None,
            left_behind: 0,
            denied: None,
        }
    }
}

async fn send_all(
    mut recorder: OutputRecorder,
    bytes: &[u8],
    left: &mut u64,
    chunks: &mpsc::Sender<StdioChunk>,
) -> StreamSummary {
    for piece in bytes.chunks(MAX_CHUNK_BYTES) {
        *left -= recorder.push(piece, *left).recorded;
        send_recorded(&mut recorder, chunks).await;
    }
    *left -= recorder.finish(*left);
    send_recorded(&mut recorder, chunks).await;
    recorder.summary()
}

async fn send_recorded(recorder: &mut OutputRecorder, chunks: &mpsc::Sender<StdioChunk>) {
    while let Some(chunk) = recorder.next_chunk() {
        // Whoever does not listen any more gets the summary.
        let _ = chunks.send(chunk).await;
    }
}
