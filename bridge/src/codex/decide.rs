//! Has one call of Codex decided by the session, and follows it until it has ended.

use std::time::Duration;

use pvp_protocol::payload::OutputStream;
use pvp_protocol::{Action, Digest, JsonObject, MessageId, ParticipantId};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::bound_call::BoundCall;
use crate::supervisor::{
    AllowedCall, CallDecision, CallReport, CallRequest, Denial, DenialKind, PendingCall, Supervisor,
};
use crate::translation::TranslatedCall;

/// Output that may wait to be sent; what comes then is sent at the end.
const MAX_UNSENT: usize = 256;

/// How long the server may take to record a proposal.
const PROPOSE_PATIENCE: Duration = Duration::from_secs(15);

/// How long the server may be away while a call waits, before it is denied.
const PATIENCE: Duration = Duration::from_secs(30);

/// Output of a command that ends sooner is sent with its result.
const STREAM_AFTER: Duration = Duration::from_millis(500);

/// Bytes of output that are compared with what Codex says at the end.
const MAX_COMPARED_BYTES: usize = 4 * 1024 * 1024;

/// What becomes of a call.
pub(super) enum CodexCallEvent {
    /// It waits for people.
    Waits {
        proposal: WaitingProposal,
        text: String,
    },
    /// It may run.
    Allowed(CodexCall),
    /// It may not run.
    Denied(Denial),
    /// Somebody wants it to stop.
    StopWanted,
    /// What became of the vote of the person at the terminal.
    Voted(Result<(), String>),
}

/// Where the events of a call go.
#[derive(Clone)]
pub(super) struct CallEvents {
    pub(super) question: u64,
    pub(super) sender: mpsc::Sender<(u64, CodexCallEvent)>,
}

impl CallEvents {
    async fn send(&self, event: CodexCallEvent) {
        // The bridge may have ended; what was not taken is dropped, which withdraws the call.
        let _ = self.sender.send((self.question, event)).await;
    }
}

/// What waits, and the digest of what was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitingProposal {
    pub(super) id: MessageId,
    pub(super) digest: Option<Digest>,
}

/// A call that runs. Dropping it reports its outcome as unknown.
pub(super) struct CodexCall {
    events: mpsc::Sender<CodexRunEvent>,
}

enum CodexRunEvent {
    Output(String),
    /// With whom to tell when it is recorded.
    Finish(Box<CallReport>, oneshot::Sender<()>),
}

impl CodexCall {
    /// Sends output as it comes. What does not fit is sent with the result.
    pub(super) fn output(&self, text: &str) {
        let _ = self.events.try_send(CodexRunEvent::Output(text.to_owned()));
    }

    /// Reports how it ended. The receiver hears, or closes, when that is done.
    pub(super) fn finish(self, report: CallReport) -> oneshot::Receiver<()> {
        let (sender, reported) = oneshot::channel();
        let finish = CodexRunEvent::Finish(Box::new(report), sender);
        if let Err(mpsc::error::TrySendError::Full(finish)) = self.events.try_send(finish) {
            let events = self.events;
            tokio::spawn(async move { events.send(finish).await });
        }
        reported
    }
}

/// Has a call decided. Every way out that is not `Allowed` means that it does not run.
pub(super) async fn decide(supervisor: Supervisor, mut request: CallRequest, events: CallEvents) {
    let call = request.call.clone();
    let bound = BoundCall::of(call.clone(), supervisor.place());
    request.call = bound.proposed();
    request.file_contents = bound.file_contents();
    let action = Action::from_arguments(&request.call.tool_name, &request.call.arguments);
    let digest = action.ok().map(|action| action.digest());
    let pending = match propose(&supervisor, request).await {
        Ok(pending) => pending,
        Err(denial) => return events.send(CodexCallEvent::Denied(denial)).await,
    };
    let allowed = match wait(pending, digest, &supervisor, &events).await {
        CallDecision::Allowed(allowed) => allowed,
        CallDecision::Denied(denial) => return events.send(CodexCallEvent::Denied(denial)).await,
    };
    let refused = match &allowed.edited {
        Some(edited) => Some(edited_reason(&allowed.approved_by, &call, edited)),
        None => bound
            .check_unchanged()
            .err()
            .map(|why| format!("Not run: {why}.")),
    };
    if let Some(reason) = refused {
        allowed.finish(CallReport::not_run(&reason)).await;
        let kind = DenialKind::Rejected;
        return events
            .send(CodexCallEvent::Denied(Denial { kind, reason }))
            .await;
    }
    let (sender, unsent) = mpsc::channel(MAX_UNSENT);
    events
        .send(CodexCallEvent::Allowed(CodexCall { events: sender }))
        .await;
    follow(*allowed, unsent, events).await;
}

/// Proposes a call, unless the server is away for too long.
async fn propose(supervisor: &Supervisor, request: CallRequest) -> Result<PendingCall, Denial> {
    let proposer = supervisor.clone();
    // What is proposed too late is withdrawn when it is dropped.
    let proposing = tokio::spawn(async move { proposer.propose(request).await });
    match tokio::time::timeout(PROPOSE_PATIENCE, proposing).await {
        Ok(Ok(proposed)) => proposed,
        Ok(Err(_)) | Err(_) => Err(server_away()),
    }
}

/// Waits for the decision, as long as the server is there.
async fn wait(
    mut pending: PendingCall,
    digest: Option<Digest>,
    supervisor: &Supervisor,
    events: &CallEvents,
) -> CallDecision {
    let proposal = WaitingProposal {
        id: pending.id().clone(),
        digest,
    };
    let server_gone = async {
        loop {
            tokio::time::sleep(PATIENCE / 3).await;
            let renewed = supervisor.renew(&proposal.id);
            if tokio::time::timeout(PATIENCE, renewed).await.is_err() {
                return;
            }
        }
    };
    let decided = async {
        while let Some(text) = pending.progress().await {
            let proposal = proposal.clone();
            events.send(CodexCallEvent::Waits { proposal, text }).await;
        }
    };
    tokio::select! {
        () = decided => {}
        () = server_gone => return CallDecision::Denied(server_away()),
    }
    pending.decision().await
}

fn server_away() -> Denial {
    Denial {
        kind: DenialKind::Failed,
        reason: "Not allowed, because nobody can be asked: the server is away. Nothing was done. \
                 Do not try other ways; tell the person at the terminal."
            .to_owned(),
    }
}

/// Codex cannot run anything but what it asked about, so the agent is told what to ask for.
fn edited_reason(by: &[ParticipantId], call: &TranslatedCall, edited: &JsonObject) -> String {
    let names: Vec<_> = by.iter().map(ParticipantId::as_str).collect();
    let names = match names.is_empty() {
        true => "It was".to_owned(),
        false => format!("{}: it was", names.join(", ")),
    };
    let line = edited.get("full_command").and_then(|line| line.as_str());
    let changed_only_line = edited.get("cwd") == call.arguments.get("cwd");
    let form = match line.filter(|_| changed_only_line) {
        Some(line) => line.to_owned(),
        None => serde_json::Value::Object(edited.clone()).to_string(),
    };
    format!(
        "{names} not run as you wrote it, because it was edited and approved only in this form:\n\
         {form}\nIf that serves, make the call again exactly so."
    )
}

/// Sends what a call prints, and how it ended.
async fn follow(
    mut call: AllowedCall,
    mut unsent: mpsc::Receiver<CodexRunEvent>,
    events: CallEvents,
) {
    let stream_at = Instant::now() + STREAM_AFTER;
    let mut output = StreamedOutput::default();
    loop {
        tokio::select! {
            event = unsent.recv() => match event {
                Some(CodexRunEvent::Output(text)) => output.waiting.push_str(&text),
                Some(CodexRunEvent::Finish(mut report, reported)) => {
                    report.stdout = output.rest(report.stdout);
                    call.finish(*report).await;
                    // Nobody may wait for it.
                    let _ = reported.send(());
                    return;
                }
                None => return,
            },
            _ = call.stop_requested() => events.send(CodexCallEvent::StopWanted).await,
            () = sleep_until(stream_at), if !output.waiting.is_empty() => {
                let text = output.take();
                call.output(OutputStream::Stdout, &text).await;
            }
        }
    }
}

/// What was sent of a command's output. Codex may leave out the beginning, and says all at the end.
#[derive(Default)]
struct StreamedOutput {
    waiting: String,
    sent: String,
    /// Whether more was sent than is compared.
    is_long: bool,
}

impl StreamedOutput {
    fn take(&mut self) -> String {
        let text = std::mem::take(&mut self.waiting);
        self.is_long |= self.sent.len() + text.len() > MAX_COMPARED_BYTES;
        if !self.is_long {
            self.sent.push_str(&text);
        }
        text
    }

    /// What is still to be sent, if this is all that was printed.
    fn rest(&mut self, all: String) -> String {
        if self.sent.is_empty() && !self.is_long {
            return match all.is_empty() {
                true => std::mem::take(&mut self.waiting),
                false => all,
            };
        }
        if self.is_long {
            return std::mem::take(&mut self.waiting);
        }
        match all.strip_prefix(&self.sent) {
            Some(rest) => rest.to_owned(),
            None if all.is_empty() => std::mem::take(&mut self.waiting),
            None => format!("\n[Codex left something out above; all of the output:]\n{all}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_sent_once_and_nothing_is_left_out() {
        let streamed = |sent: &str| {
            let mut output = StreamedOutput {
                waiting: sent.to_owned(),
                ..StreamedOutput::default()
            };
            output.take();
            output
        };
        assert_eq!(streamed("").rest("all".to_owned()), "all");
        assert_eq!(streamed("one\n").rest("one\ntwo\n".to_owned()), "two\n");
        assert!(
            streamed("two\n")
                .rest("one\ntwo\n".to_owned())
                .ends_with("]\none\ntwo\n")
        );
        let mut unsent = StreamedOutput {
            waiting: "late".to_owned(),
            ..StreamedOutput::default()
        };
        assert_eq!(unsent.rest(String::new()), "late");
        let mut long = streamed(&"x".repeat(MAX_COMPARED_BYTES + 1));
        long.waiting.push_str("end");
        assert_eq!(long.rest("whatever".to_owned()), "end");
    }
}
