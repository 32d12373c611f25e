//! Stands between `codex app-server` and whoever speaks to it, and lets nothing run that was not
//! allowed.
//!
//! One task owns everything; calls are decided by tasks of their own, and report to it. When it ends,
//! for whatever reason, the app-server is killed, what waits is withdrawn, and what runs is reported
//! as unknown.

mod items;
mod people;
mod questions;
mod screen_side;

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use pvp_agent::proposer::PersonRequest;
use pvp_protocol::payload::{FinishReason, InterruptUrgency};
use pvp_protocol::{JsonObject, MessageId};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::app_server::AppServer;
use super::decide::CodexCallEvent;
use super::methods::WebSearch;
use super::person::TerminalPerson;
use super::screen::Screen;
use super::threads::Threads;
use super::wire::{self, Message, text};
use crate::headless::{ClientEvent, ClientInstruction};
use crate::launch::AgentProject;
use crate::supervisor::Supervisor;
use items::Items;
use questions::ScreenQuestion;

/// Events of calls that may wait to be looked at.
const MAX_CALL_EVENTS: usize = 64;

/// How long the record of a result is waited for at the end of a turn.
const REPORT_PATIENCE: Duration = Duration::from_secs(5);

/// Prefix of the ids of the bridge's own requests, which the screen may not use.
const OWN_ID: &str = "pvp-";

/// Why a bridge ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BridgeEnd {
    /// The app-server has ended, or does not read any more.
    AppServerGone,
    /// The screen has ended, or does not read any more.
    ScreenGone,
    /// The session is over for this agent.
    SessionOver,
    /// The other ends of the channels are gone.
    NobodyAsks,
}

/// Who speaks to Codex.
pub(super) enum Front {
    /// Its own screen, and people elsewhere.
    Screen {
        screen: Screen,
        people: mpsc::Receiver<PersonRequest>,
    },
    /// People elsewhere, through [`crate::headless::drive`].
    Headless(mpsc::Receiver<ClientInstruction>),
}

/// What a conversation is started with, besides what its screen says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ThreadSettings {
    pub model: Option<String>,
    pub sandbox: Option<String>,
    pub web_search: WebSearch,
    /// What the directories may bring in which conversations work.
    pub project: AgentProject,
}

pub struct CodexBridge {
    /// Has the calls decided.
    supervisor: Supervisor,
    /// Codex's version, if it is known.
    version: Option<String>,
    /// The app-server.
    server: AppServer,
    /// The screen, if there is one.
    screen: Option<Screen>,
    /// The person at the terminal, if their link is saved.
    person: Option<TerminalPerson>,
    /// What every thread is held to.
    thread_settings: ThreadSettings,
    /// The directory of Codex's own files.
    codex_home: Option<PathBuf>,
    /// The threads that there are.
    threads: Threads,
    /// What Codex runs, or wants to run.
    items: Items,
    /// The questions that wait for an answer, by number.
    questions: HashMap<u64, ScreenQuestion>,
    /// Results that may not be in the record yet.
    unreported: Vec<oneshot::Receiver<()>>,
    /// Requests of the app-server that the screen answers by itself.
    passed_on: HashSet<String>,
    /// The bridge's own requests that are not answered.
    own_requests: HashMap<String, OwnRequest>,
    /// The number of the next question or request.
    next_number: u64,
    /// Where it goes what becomes of the calls.
    call_events: mpsc::Sender<(u64, CodexCallEvent)>,
    /// Where it goes what the agent says.
    spoken: mpsc::Sender<ClientEvent>,
    /// Messages of the agent in this turn, of which something was told.
    told_messages: HashSet<String>,
    /// The last whole message of the agent.
    last_message: watch::Sender<String>,
    /// Interrupts that are acknowledged when the turn is over.
    interrupts: Vec<(MessageId, InterruptUrgency)>,
    /// When Codex is ended, because it did not heed an interrupt.
    kill_at: Option<Instant>,
    /// Prompts of people that wait for a turn.
    held_prompts: VecDeque<String>,
    /// How it ended, once it has.
    end: Option<BridgeEnd>,
}

/// What an answer of the app-server is needed for.
enum OwnRequest {
    /// The settings that hold for a conversation that the screen wants to begin.
    Settings {
        id: Value,
        method: String,
        params: JsonObject,
    },
    /// The conversation that people without a screen speak to.
    OwnSettings,
    Initialize,
    StartThread,
    /// Something that a person said during a turn, which may have ended meanwhile.
    Steer {
        thread: String,
        text: String,
    },
    /// The reason of a denial, or an interrupt.
    Other,
}

impl CodexBridge {
    /// `spoken` gets what the agent says.
    pub fn new(
        supervisor: Supervisor,
        version: Option<String>,
        server: AppServer,
        person: Option<TerminalPerson>,
        spoken: mpsc::Sender<ClientEvent>,
    ) -> (Self, CallEventReceiver) {
        let (call_events, receiver) = mpsc::channel(MAX_CALL_EVENTS);
        let bridge = Self {
            supervisor,
            version,
            server,
            screen: None,
            person,
            thread_settings: ThreadSettings::default(),
            codex_home: super::rules::codex_home(),
            threads: Threads::default(),
            items: Items::default(),
            questions: HashMap::new(),
            unreported: Vec::new(),
            passed_on: HashSet::new(),
            own_requests: HashMap::new(),
            next_number: 0,
            call_events,
            spoken,
            told_messages: HashSet::new(),
            last_message: watch::Sender::new(String::new()),
            interrupts: Vec::new(),
            kill_at: None,
            held_prompts: VecDeque::new(),
            end: None,
        };
        (bridge, CallEventReceiver(receiver))
    }

    /// The last whole message of the agent.
    pub fn last_message(&self) -> watch::Receiver<String> {
        self.last_message.subscribe()
    }

    /// Supervises Codex under its own screen, until one of them ends.
    pub async fn run_with_screen(
        mut self,
        events: CallEventReceiver,
        settings: ThreadSettings,
        screen: Screen,
        people: mpsc::Receiver<PersonRequest>,
    ) -> BridgeEnd {
        self.thread_settings = settings;
        self.run(events, Front::Screen { screen, people }).await
    }

    /// Supervises Codex without a screen, until it ends or nobody speaks to it.
    pub async fn run_headless(
        mut self,
        events: CallEventReceiver,
        settings: ThreadSettings,
        instructions: mpsc::Receiver<ClientInstruction>,
    ) -> BridgeEnd {
        self.thread_settings = settings;
        self.run(events, Front::Headless(instructions)).await
    }

    async fn run(mut self, events: CallEventReceiver, front: Front) -> BridgeEnd {
        let mut events = events.0;
        let stopped = self.supervisor.stopped();
        tokio::pin!(stopped);
        let (mut people, mut instructions) = (None, None);
        match front {
            Front::Screen { screen, people: it } => {
                self.screen = Some(screen);
                people = Some(it);
            }
            Front::Headless(it) => {
                instructions = Some(it);
                self.begin_headless();
            }
        }
        while self.end.is_none() {
            let kill_at = self.kill_at;
            tokio::select! {
                message = self.server.next() => match message {
                    Some(message) => self.on_server_message(message).await,
                    None => self.end = Some(BridgeEnd::AppServerGone),
                },
                message = next_of_screen(&mut self.screen) => match message {
                    Some(message) => self.on_screen_message(message),
                    None => self.end = Some(BridgeEnd::ScreenGone),
                },
                Some((number, event)) = events.recv() => self.on_call_event(number, event),
                request = next_of(&mut people) => match request {
                    Some(request) => self.on_person(request).await,
                    None => self.end = Some(BridgeEnd::SessionOver),
                },
                instruction = next_of(&mut instructions) => match instruction {
                    Some(instruction) => self.on_instruction(instruction),
                    None => self.end = Some(BridgeEnd::NobodyAsks),
                },
                _ = &mut stopped => self.end = Some(BridgeEnd::SessionOver),
                () = sleep_until(kill_at) => self.end = Some(BridgeEnd::AppServerGone),
            }
        }
        self.server.kill();
        for question in self.questions.values() {
            question.decides.abort();
        }
        self.wait_for_reports().await;
        self.end.unwrap_or(BridgeEnd::AppServerGone)
    }

    /// Waits until the results of what has ended are recorded, but not for a server that is away.
    async fn wait_for_reports(&mut self) {
        let unreported = std::mem::take(&mut self.unreported);
        let reported = async {
            for report in unreported {
                // A report that is given up has no more to wait for either.
                let _ = report.await;
            }
        };
        let _ = tokio::time::timeout(REPORT_PATIENCE, reported).await;
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn send(&mut self, message: Value) {
        if !self.server.send(message) {
            self.end.get_or_insert(BridgeEnd::AppServerGone);
        }
    }

    /// Asks the app-server something on the bridge's own account.
    fn ask(&mut self, method: &str, params: Value, request: OwnRequest) {
        let id = format!("{OWN_ID}{}", self.number());
        self.send(wire::request(&id, method, params));
        self.own_requests.insert(id, request);
    }

    fn show(&mut self, message: Value) {
        if let Some(screen) = &self.screen
            && !screen.send(message)
        {
            self.end.get_or_insert(BridgeEnd::ScreenGone);
        }
    }

    /// Shows the person at the terminal a line.
    fn warn(&mut self, thread: &str, message: &str) {
        let params = json!({ "threadId": thread, "message": format!("PVP: {message}") });
        self.show(wire::notification("warning", params));
    }

    async fn on_server_message(&mut self, message: Message) {
        match message {
            Message::Request { id, method, params } => self.on_question(id, &method, params),
            Message::Response { id, body } => {
                let own = id.as_str().and_then(|id| self.own_requests.remove(id));
                match own {
                    Some(own) => self.on_own_answer(own, &body),
                    None => {
                        self.learn_from(&body);
                        self.show(Value::Object(body));
                    }
                }
            }
            Message::Notification { method, params } => {
                self.on_notification(&method, &params).await;
                self.show(wire::notification(&method, Value::Object(params)));
            }
        }
    }

    /// Learns what an answer to the screen says about conversations and files.
    fn learn_from(&mut self, body: &JsonObject) {
        let Some(result) = body.get("result") else {
            return;
        };
        self.threads.learn(result.get("thread"));
        if let Some(home) = result.get("codexHome").and_then(Value::as_str) {
            self.codex_home = Some(PathBuf::from(home));
        }
    }

    async fn on_notification(&mut self, method: &str, params: &JsonObject) {
        let thread = text(params, "threadId").to_owned();
        match method {
            "thread/started" => {
                self.threads.learn(params.get("thread"));
                self.say_held();
            }
            "turn/started" => {
                let turn = params.get("turn").and_then(|turn| turn.get("id"));
                if let Some(turn) = turn.and_then(Value::as_str) {
                    self.threads.begin_turn(&thread, turn);
                }
            }
            "turn/completed" => self.on_turn_ended(&thread, params).await,
            "item/started" => self.on_item_started(&thread, params),
            "item/completed" => self.on_item_ended(&thread, params).await,
            "item/fileChange/patchUpdated" => self.on_patch_updated(&thread, params),
            "item/commandExecution/outputDelta" => {
                let delta = text(params, "delta");
                self.items.output(&thread, text(params, "itemId"), delta);
                if !self.items.may_print(&thread, text(params, "itemId")) {
                    self.notice_unasked(&thread, text(params, "itemId"));
                }
            }
            "item/commandExecution/terminalInteraction" if !text(params, "stdin").is_empty() => {
                self.tell_and_interrupt(&thread, "it typed into a command that was running");
            }
            "item/agentMessage/delta" => {
                self.tell_message(&thread, text(params, "itemId"), text(params, "delta"))
                    .await;
            }
            "item/reasoning/summaryTextDelta" if self.threads.is_spoken_to(&thread) => {
                let thinking = ClientEvent::Thinking(text(params, "delta").to_owned());
                self.tell(thinking).await;
            }
            "serverRequest/resolved" => {
                let id = params.get("requestId").cloned().unwrap_or_default();
                self.passed_on.remove(&id.to_string());
                self.withdraw_question(&id);
            }
            _ => {}
        }
    }

    async fn on_turn_ended(&mut self, thread: &str, params: &JsonObject) {
        self.threads.end_turn(thread);
        self.withdraw_questions_of(thread);
        let turn = params.get("turn").and_then(Value::as_object);
        let status = turn.map_or("", |turn| text(turn, "status"));
        if status != "completed" {
            // What was interrupted does not say how it ended.
            self.items.forget_thread(thread);
        }
        if self.threads.is_spoken_to(thread) {
            self.wait_for_reports().await;
            self.told_messages.clear();
            let finish = match status {
                "completed" => FinishReason::Complete,
                "interrupted" => FinishReason::Interrupted,
                _ => FinishReason::Error,
            };
            self.tell(ClientEvent::TurnEnded(finish)).await;
        }
        self.acknowledge_interrupts().await;
        self.say_held();
    }

    /// Tells the session what the agent says.
    async fn tell_message(&mut self, thread: &str, item: &str, said: &str) {
        if !self.threads.is_spoken_to(thread) || said.is_empty() {
            return;
        }
        let mut said = said.to_owned();
        if self.told_messages.insert(item.to_owned()) && self.told_messages.len() > 1 {
            said.insert_str(0, "\n\n");
        }
        self.tell(ClientEvent::Text(said)).await;
    }

    async fn tell(&mut self, event: ClientEvent) {
        if self.spoken.send(event).await.is_err() {
            self.end.get_or_insert(BridgeEnd::NobodyAsks);
        }
    }
}

/// What becomes of the calls of a bridge.
pub struct CallEventReceiver(mpsc::Receiver<(u64, CodexCallEvent)>);

async fn next_of_screen(screen: &mut Option<Screen>) -> Option<Message> {
    match screen {
        Some(screen) => screen.next().await,
        None => std::future::pending().await,
    }
}

async fn next_of<T>(receiver: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    match receiver {
        Some(receiver) => receiver.recv().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
