//! Conversations that an editor opens: the agent is brought to ask before the editor hears of one.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{EditorProxy, MAX_OPEN};
use crate::acp::modes::{self, SettingChange};
use crate::acp::wire::{INVALID_PARAMS, RpcError};

/// A conversation that the editor wants to open.
pub(super) struct OpeningConversation {
    /// Its id, if it is an old one.
    pub(super) known: Value,
    /// Where the agent is to work.
    pub(super) directory: Option<PathBuf>,
}

/// A conversation that is open, before the editor hears of it.
pub(super) struct OpenedConversation {
    pub(super) editor_id: Value,
    pub(super) session: String,
    pub(super) result: Value,
    /// What is changed just now.
    pub(super) change: SettingChange,
    /// What is changed after it.
    pub(super) rest: Vec<SettingChange>,
}

impl EditorProxy {
    pub(super) fn add_servers(&mut self, id: &Value, params: &mut Value) -> Result<(), RpcError> {
        let Some(fields) = params.as_object_mut() else {
            return Err(RpcError::new(
                INVALID_PARAMS,
                "the parameters are no object",
            ));
        };
        if self.opening.len() >= MAX_OPEN {
            return Err(RpcError::new(
                INVALID_PARAMS,
                "too many conversations begin at once",
            ));
        }
        // Some adapters take permissions from here.
        fields.remove("_meta");
        let servers = fields.entry("mcpServers").or_insert_with(|| json!([]));
        if let Some(servers) = servers.as_array_mut() {
            servers.extend(self.servers.clone());
        }
        let opening = OpeningConversation {
            known: fields.get("sessionId").cloned().unwrap_or_default(),
            directory: fields.get("cwd").and_then(Value::as_str).map(PathBuf::from),
        };
        if let Some(directory) = &opening.directory {
            let real = directory.canonicalize();
            let checked = self.project.check(real.as_ref().unwrap_or(directory));
            checked.map_err(|error| RpcError::new(INVALID_PARAMS, error.to_string()))?;
        }
        self.opening.insert(id.to_string(), opening);
        Ok(())
    }

    pub(super) fn check_mode(&self, mode: &str) -> Result<(), RpcError> {
        match self.desk.modes.asks(mode) {
            true => Ok(()),
            false => {
                let why = format!("under PVP the agent has to ask, and in `{mode}` it does not");
                Err(RpcError::new(INVALID_PARAMS, why))
            }
        }
    }

    /// Refuses options that are modes by another name.
    pub(super) fn check_option(&self, params: &Value) -> Result<(), RpcError> {
        let option = params["configId"].as_str().unwrap_or_default();
        match (modes::decides(option, ""), &params["value"]) {
            (true, Value::String(value)) => self.check_mode(value),
            (true, Value::Bool(true)) => self.check_mode(&format!("allow all ({option})")),
            (true | false, _) => Ok(()),
        }
    }

    /// Whether an update is about what was said before, in a conversation that is being loaded.
    pub(super) fn is_replayed(&self, params: &Value) -> bool {
        let mut opening = self.opening.values();
        opening.any(|opening| opening.known == params["sessionId"])
    }

    /// Passes on that a conversation is open, once the agent asks in it.
    pub(super) fn on_opened(
        &mut self,
        editor_id: Value,
        opening: &OpeningConversation,
        outcome: Result<Value, RpcError>,
    ) {
        let result = match outcome {
            Ok(result) => result,
            Err(error) => {
                self.to_editor.respond(editor_id, Err(error));
                return;
            }
        };
        let session = result["sessionId"].as_str().or(opening.known.as_str());
        let session = session.unwrap_or_default().to_owned();
        let directory = opening.directory.as_deref();
        let known = self.desk.open_conversation(&session, directory, &result);
        if let Err(error) = known {
            let error = RpcError::new(INVALID_PARAMS, error.to_string());
            self.to_editor.respond(editor_id, Err(error));
            return;
        }
        match modes::needed_changes(&result) {
            Ok(changes) => self.change(editor_id, session, result, changes),
            Err(_) => {
                let error = RpcError::new(INVALID_PARAMS, no_asking_mode());
                self.to_editor.respond(editor_id, Err(error));
            }
        }
    }

    /// Makes the changes that a conversation needs, one after the other, and lets the editor have it.
    pub(super) fn change(
        &mut self,
        editor_id: Value,
        session: String,
        result: Value,
        mut changes: Vec<SettingChange>,
    ) {
        if changes.is_empty() {
            self.to_editor.respond(editor_id, Ok(result));
            return;
        }
        let change = changes.remove(0);
        let (method, params) = change.request(&session);
        let id = self.ask_agent(method, params);
        let opened = OpenedConversation {
            editor_id,
            session,
            result,
            change,
            rest: changes,
        };
        self.changing.insert(id.to_string(), opened);
    }

    pub(super) fn on_changed(
        &mut self,
        opened: OpenedConversation,
        outcome: Result<Value, RpcError>,
    ) {
        if outcome.is_err() {
            let error = RpcError::new(INVALID_PARAMS, no_asking_mode());
            self.to_editor.respond(opened.editor_id, Err(error));
            return;
        }
        let mut result = opened.result;
        opened.change.note_in(&mut result);
        self.change(opened.editor_id, opened.session, result, opened.rest);
    }
}

fn no_asking_mode() -> &'static str {
    "under PVP the agent has to ask, and it has no mode in which it does; change its own settings"
}
