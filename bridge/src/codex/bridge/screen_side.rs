//! What Codex's screen asks of the app-server: passed on, changed so that Codex asks, or refused.

use std::path::Path;

use pvp_protocol::JsonObject;
use pvp_protocol::payload::ClientOrigin;
use serde_json::{Value, json};

use super::super::methods::{self, ScreenMethod};
use super::super::wire::{self, Message, text};
use super::super::{CLIENT, rules};
use super::{CodexBridge, OWN_ID, OwnRequest};

impl CodexBridge {
    pub(super) fn on_screen_message(&mut self, message: Message) {
        match message {
            Message::Response { id, body } => self.on_screen_answer(&id, body),
            Message::Notification { method, params } if method == "initialized" => {
                self.send(wire::notification(&method, Value::Object(params)));
            }
            Message::Notification { method, .. } => {
                tracing::warn!(method, "Codex's screen said something that is not known");
            }
            Message::Request { id, method, params } => {
                if id.as_str().is_some_and(|id| id.starts_with(OWN_ID)) {
                    return self.refuse(&id, "this id is taken");
                }
                self.on_screen_request(id, method, params);
            }
        }
    }

    fn on_screen_request(&mut self, id: Value, method: String, mut params: JsonObject) {
        match methods::of_screen(&method) {
            ScreenMethod::Pass => {}
            ScreenMethod::Initialize => methods::hear_everything(&mut params),
            ScreenMethod::Thread => return self.begin_thread(id, method, params),
            ScreenMethod::Turn => {
                methods::ask_about_everything(&mut params);
                methods::stay_here(&mut params);
                self.record_prompt(&params);
            }
            ScreenMethod::Say => self.record_prompt(&params),
            ScreenMethod::ThreadSettings => methods::ask_about_everything(&mut params),
            ScreenMethod::TurnSettings => methods::ask_people(&mut params),
            ScreenMethod::WriteSetting if methods::may_write_setting(&params) => {}
            ScreenMethod::WriteSettings if methods::may_write_settings(&params) => {}
            ScreenMethod::WriteSetting | ScreenMethod::WriteSettings => {
                let why = "PVP keeps this setting as it is while Codex is supervised; change it \
                           when Codex runs without `pvp run`";
                return self.refuse(&id, why);
            }
            ScreenMethod::ShellCommand => {
                let why = "PVP does not let commands run from here, because nobody is asked about \
                           them; use another terminal, or `pvp exec`";
                return self.refuse(&id, why);
            }
            ScreenMethod::Refuse => {
                let why =
                    format!("PVP does not let Codex do this while it is supervised ({method})");
                return self.refuse(&id, &why);
            }
        }
        self.send(json!({ "id": id, "method": method, "params": params }));
    }

    fn refuse(&mut self, id: &Value, why: &str) {
        self.show(wire::refusal(id, why));
    }

    /// Begins a conversation as soon as it is known which settings hold where it works.
    fn begin_thread(&mut self, id: Value, method: String, mut params: JsonObject) {
        if text(&params, "cwd").is_empty() {
            let workspace = self.supervisor.place().workspace;
            params.insert("cwd".to_owned(), workspace.to_string_lossy().into());
        }
        let asked = json!({ "cwd": params.get("cwd"), "includeLayers": false });
        let request = OwnRequest::Settings { id, method, params };
        self.ask("config/read", asked, request);
    }

    /// Why a conversation in this directory cannot be supervised, if it cannot.
    pub(super) fn check_rules(&self, directory: &str) -> Result<(), String> {
        match rules::find_rules(self.codex_home.as_deref(), Path::new(directory)) {
            Some(file) => Err(rules::refusal(&file)),
            None => Ok(()),
        }
    }

    pub(super) fn on_own_answer(&mut self, request: OwnRequest, body: &JsonObject) {
        let result = body.get("result");
        match request {
            OwnRequest::Settings {
                id,
                method,
                mut params,
            } => match self.supervise_thread(&mut params, result) {
                Ok(()) => {
                    self.send(json!({ "id": id, "method": method, "params": params }));
                }
                Err(why) => self.refuse(&id, &why),
            },
            OwnRequest::Initialize => {
                self.learn_from(body);
                self.send(wire::notification("initialized", json!({})));
                let workspace = self.supervisor.place().workspace;
                let asked = json!({ "cwd": workspace, "includeLayers": false });
                self.ask("config/read", asked, OwnRequest::OwnSettings);
            }
            OwnRequest::OwnSettings => self.start_own_thread(result),
            OwnRequest::StartThread => {
                self.learn_from(body);
                match result {
                    Some(_) => self.say_held(),
                    None => self.fail(&format!("Codex did not begin: {}", error_of(body))),
                }
            }
            OwnRequest::Steer { thread, text } if result.is_none() => {
                // The turn has ended meanwhile.
                self.threads.end_turn(&thread);
                self.say(text);
            }
            OwnRequest::Steer { .. } => {}
            OwnRequest::Other => {
                if result.is_none() {
                    tracing::debug!(error = error_of(body), "Codex did not do as it was told");
                }
            }
        }
    }

    pub(super) fn supervise_thread(
        &self,
        params: &mut JsonObject,
        settings: Option<&Value>,
    ) -> Result<(), String> {
        self.check_rules(text(params, "cwd"))?;
        let directory = Path::new(text(params, "cwd"));
        let real = directory.canonicalize();
        let project = &self.thread_settings.project;
        let checked = project.check(real.as_deref().unwrap_or(directory));
        checked.map_err(|error| error.to_string())?;
        let effective = settings.and_then(|settings| settings.get("config"));
        let Some(Value::Object(effective)) = effective else {
            return Err(
                "Codex does not say which settings hold here, so it cannot be supervised"
                    .to_owned(),
            );
        };
        methods::supervise_thread(params, effective, self.thread_settings.web_search)
    }

    /// Tells the session what the person at the terminal says to the agent.
    fn record_prompt(&mut self, params: &JsonObject) {
        let thread = text(params, "threadId").to_owned();
        if !self.threads.is_spoken_to(&thread) {
            return;
        }
        self.threads.speak_to(&thread);
        let said = said(params);
        if let (Some(person), false) = (self.person.clone(), said.is_empty()) {
            let origin = ClientOrigin {
                client: CLIENT.to_owned(),
                version: self.version.clone(),
                session: Some(thread),
                call: None,
                subagent: None,
                fails_open: false,
            };
            let agent = self.supervisor.participant().clone();
            tokio::spawn(person.prompt(agent, origin, said));
        }
    }
}

/// What was typed.
fn said(params: &JsonObject) -> String {
    let input = params.get("input").and_then(Value::as_array);
    let texts: Vec<_> = input
        .into_iter()
        .flatten()
        .filter_map(|part| part.get("text")?.as_str())
        .collect();
    texts.join("\n")
}

pub(super) fn error_of(body: &JsonObject) -> String {
    let error = body.get("error").and_then(|error| error.get("message"));
    let error = error
        .and_then(Value::as_str)
        .unwrap_or("it does not say why");
    error.chars().take(500).collect()
}
