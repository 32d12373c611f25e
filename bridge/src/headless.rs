//! Lets people prompt a client that has no screen of its own: passes their prompts and interrupts
//! on to it, and tells the session what it says.
//!
//! The client is idle, or it answers one prompt. Prompts that arrive meanwhile wait for the end of
//! the turn. An interrupt ends the turn, and what waited then is said together with the next prompt.

use std::collections::VecDeque;
use std::time::Duration;

use pvp_agent::proposer::{PersonRequest, PersonRequestKind};
use pvp_agent::response_stream::ResponseStream;
use pvp_protocol::MessageId;
use pvp_protocol::payload::{FinishReason, InterruptUrgency};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::supervisor::{Supervisor, heeded};

/// Prompts that may wait; further ones are dropped, and the client reads how many.
const MAX_QUEUED: usize = 64;

/// How long a client may take to end its turn after an interrupt, before it is stopped.
const INTERRUPT_GRACE: Duration = Duration::from_secs(10);

/// What a client is told to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientInstruction {
    /// Answer this. It is not given another one before it has said that its turn is over.
    Prompt(String),
    /// End the turn, in the client's own way.
    Interrupt,
    /// End at once: it did not heed the interrupt.
    Kill,
}

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientEvent {
    /// It thinks.
    Thinking(String),
    /// It says something.
    Text(String),
    /// Its turn is over.
    TurnEnded(FinishReason),
}

/// A client that is spoken to in its own protocol, by a task at the other ends of these channels.
/// The task has the client's calls decided by itself. Both channels close when the client ends.
pub struct HeadlessClient {
    pub instructions: mpsc::Sender<ClientInstruction>,
    pub events: mpsc::Receiver<ClientEvent>,
}

/// When to stop passing prompts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveUntil {
    /// The session is over, or the client has ended.
    SessionEnds,
    /// The first prompt is answered.
    FirstTurnEnds,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveEnd {
    /// The session is over for this participant.
    SessionOver,
    /// The client has ended.
    ClientGone,
    /// The first prompt is answered.
    Answered,
}

/// Passes on what people ask of a client, and what it says, until one of them is gone.
pub async fn drive(
    supervisor: &Supervisor,
    mut requests: mpsc::Receiver<PersonRequest>,
    mut client: HeadlessClient,
    until: DriveUntil,
) -> DriveEnd {
    let mut driver = Driver {
        supervisor,
        instructions: client.instructions.clone(),
        waiting: WaitingPrompts::default(),
        turn: None,
    };
    loop {
        let kill_at = driver.turn.as_ref().and_then(|turn| turn.kill_at);
        tokio::select! {
            request = requests.recv() => match request {
                Some(request) => driver.on_request(request).await,
                None => {
                    driver.end_turn(FinishReason::Interrupted).await;
                    return DriveEnd::SessionOver;
                }
            },
            event = client.events.recv() => match event {
                Some(ClientEvent::Thinking(text)) => driver.response().push_thinking(&text).await,
                Some(ClientEvent::Text(text)) => driver.response().push_text(&text).await,
                Some(ClientEvent::TurnEnded(finish)) => {
                    driver.end_turn(finish).await;
                    if until == DriveUntil::FirstTurnEnds {
                        driver.acknowledge_unread(&mut requests).await;
                        return DriveEnd::Answered;
                    }
                    driver.begin_next_turn().await;
                }
                None => {
                    driver.end_turn(FinishReason::Error).await;
                    return DriveEnd::ClientGone;
                }
            },
            () = driver.wait_flush_due() => driver.response().flush().await,
            () = sleep_until(kill_at) => driver.kill().await,
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// A turn of the client.
struct ClientTurn {
    response: ResponseStream,
    /// Interrupts that are acknowledged when the turn is over.
    interrupts: Vec<(MessageId, InterruptUrgency)>,
    /// When the client is stopped, because it did not heed an interrupt.
    kill_at: Option<Instant>,
}

/// Prompts that the client has not been given.
#[derive(Debug, Default)]
struct WaitingPrompts {
    prompts: VecDeque<(MessageId, String)>,
    dropped: usize,
    /// Whether they wait for another prompt, because an interrupt came after them.
    held: bool,
}

impl WaitingPrompts {
    fn push(&mut self, id: MessageId, text: String) {
        self.held = false;
        if self.prompts.len() < MAX_QUEUED {
            self.prompts.push_back((id, text));
        } else {
            self.dropped += 1;
        }
    }

    /// Everything that waits, as one prompt, under the id of the last.
    fn take(&mut self) -> Option<(MessageId, String)> {
        if self.held {
            return None;
        }
        let (last, _) = self.prompts.back()?;
        let last = last.clone();
        let mut texts: Vec<_> = self.prompts.drain(..).map(|(_, text)| text).collect();
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            texts.push(format!("[{dropped} further prompts were dropped]"));
        }
        Some((last, texts.join("\n\n")))
    }
}

struct Driver<'a> {
    supervisor: &'a Supervisor,
    instructions: mpsc::Sender<ClientInstruction>,
    waiting: WaitingPrompts,
    turn: Option<ClientTurn>,
}

impl Driver<'_> {
    async fn on_request(&mut self, request: PersonRequest) {
        let said = |text: &str| format!("{} says: {text}", request.name);
        match &request.kind {
            PersonRequestKind::Prompt(prompt) => {
                self.waiting.push(request.id.clone(), said(&prompt.content));
            }
            PersonRequestKind::Amend(amend) => {
                let text = format!("(a correction) {}", amend.amendment);
                self.waiting.push(request.id.clone(), said(&text));
            }
            PersonRequestKind::Interrupt(interrupt) => {
                return self.interrupt(request.id, interrupt.urgency).await;
            }
        }
        if self.turn.is_none() {
            self.begin_next_turn().await;
        }
    }

    async fn interrupt(&mut self, id: MessageId, urgency: InterruptUrgency) {
        self.waiting.held = true;
        match &mut self.turn {
            Some(turn) => {
                turn.interrupts.push((id, urgency));
                turn.kill_at.get_or_insert(Instant::now() + INTERRUPT_GRACE);
                self.instruct(ClientInstruction::Interrupt).await;
            }
            None => self.supervisor.acknowledge(&id, heeded(urgency)).await,
        }
    }

    /// Acknowledges the interrupts that the end of the turn has overtaken.
    async fn acknowledge_unread(&self, requests: &mut mpsc::Receiver<PersonRequest>) {
        while let Ok(request) = requests.try_recv() {
            if let PersonRequestKind::Interrupt(interrupt) = &request.kind {
                let action = heeded(interrupt.urgency);
                self.supervisor.acknowledge(&request.id, action).await;
            }
        }
    }

    async fn begin_next_turn(&mut self) {
        if let Some((prompt, text)) = self.waiting.take() {
            self.turn = Some(self.new_turn(Some(prompt)));
            self.instruct(ClientInstruction::Prompt(text)).await;
        }
    }

    async fn end_turn(&mut self, finish: FinishReason) {
        let Some(turn) = self.turn.take() else {
            return;
        };
        turn.response.finish(finish, None).await;
        for (id, urgency) in turn.interrupts {
            self.supervisor.acknowledge(&id, heeded(urgency)).await;
        }
    }

    async fn kill(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.kill_at = None;
        }
        self.instruct(ClientInstruction::Kill).await;
    }

    async fn instruct(&self, instruction: ClientInstruction) {
        if self.instructions.send(instruction).await.is_err() {
            // The events end too, and that is where it is noticed.
            tracing::debug!("the client has ended");
        }
    }

    /// The answer that is being given. A client may also say something unasked.
    fn response(&mut self) -> &mut ResponseStream {
        let turn = self.turn.take().unwrap_or_else(|| self.new_turn(None));
        &mut self.turn.insert(turn).response
    }

    fn new_turn(&self, prompt: Option<MessageId>) -> ClientTurn {
        ClientTurn {
            response: ResponseStream::new(self.supervisor.connection().clone(), prompt),
            interrupts: Vec::new(),
            kill_at: None,
        }
    }

    async fn wait_flush_due(&self) {
        match &self.turn {
            Some(turn) => turn.response.wait_flush_due().await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> MessageId {
        MessageId::parse(text).unwrap()
    }

    #[test]
    fn what_waited_before_an_interrupt_is_said_with_the_next_prompt() {
        let mut waiting = WaitingPrompts::default();
        assert_eq!(waiting.take(), None);
        waiting.push(id("a"), "ann says: one".to_owned());
        waiting.held = true;
        assert_eq!(waiting.take(), None);
        waiting.push(id("b"), "bob says: two".to_owned());
        let expected = (id("b"), "ann says: one\n\nbob says: two".to_owned());
        assert_eq!(waiting.take(), Some(expected));
        assert_eq!(waiting.take(), None);
    }

    #[test]
    fn prompts_that_nobody_takes_are_bounded_and_counted() {
        let mut waiting = WaitingPrompts::default();
        for number in 0..MAX_QUEUED + 3 {
            waiting.push(id(&format!("p{number}")), "x".to_owned());
        }
        let (last, text) = waiting.take().unwrap();
        assert_eq!(last, id(&format!("p{}", MAX_QUEUED - 1)));
        assert!(text.ends_with("[3 further prompts were dropped]"));
        waiting.push(id("later"), "y".to_owned());
        assert_eq!(waiting.take(), Some((id("later"), "y".to_owned())));
    }
}
