//! Every route with what its document says, so that neither can be without the other.

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::routing::{MethodRouter, delete, get, post};

use super::asking::{NoParameters, Parameter, Parameters};
use super::{gates, invites, messages, openapi, outputs, sessions, transcript};
use crate::house::House;

/// Who may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Anyone,
    /// A token; none where the server is open.
    Token,
    /// A token, even where the server is open.
    OwnToken,
    Admin,
}

/// What a good answer carries.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    /// JSON of a type in the schema.
    Schema(&'static str),
    /// JSON of a type that only this document describes.
    Json,
    Text,
    Nothing,
}

/// One thing that can be asked over HTTP.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    pub(super) access: Access,
    pub(super) parameters: &'static [Parameter],
    /// The type of the body, in the schema.
    pub(super) body: Option<&'static str>,
    pub(super) status: u16,
    pub(super) answer: Answer,
    pub(super) handler: MethodRouter<Arc<House>>,
}

impl Route {
    fn get(path: &'static str, summary: &'static str, handler: MethodRouter<Arc<House>>) -> Self {
        Self {
            method: "get",
            path,
            summary,
            access: Access::Token,
            parameters: &[],
            body: None,
            status: 200,
            answer: Answer::Json,
            handler,
        }
    }

    fn post(path: &'static str, summary: &'static str, handler: MethodRouter<Arc<House>>) -> Self {
        Self {
            method: "post",
            access: Access::OwnToken,
            ..Self::get(path, summary, handler)
        }
    }

    fn takes<T: Parameters>(mut self) -> Self {
        self.parameters = T::ALL;
        self
    }

    fn reads(mut self, body: &'static str) -> Self {
        self.body = Some(body);
        self
    }

    fn gives(mut self, schema: &'static str) -> Self {
        self.answer = Answer::Schema(schema);
        self
    }

    fn answers(mut self, status: u16, answer: Answer) -> Self {
        (self.status, self.answer) = (status, answer);
        self
    }

    fn for_all(mut self) -> Self {
        self.access = Access::Anyone;
        self
    }

    fn for_admins(mut self) -> Self {
        self.access = Access::Admin;
        self
    }
}

const SESSIONS: &str = "/api/sessions";
const SESSION: &str = "/api/sessions/{session}";
const MESSAGES: &str = "/api/sessions/{session}/messages";
const SESSION_GATES: &str = "/api/sessions/{session}/gates";
const GATE: &str = "/api/sessions/{session}/gates/{gate}";
const VOTE: &str = "/api/sessions/{session}/gates/{gate}/vote";
const AMEND: &str = "/api/sessions/{session}/gates/{gate}/amend";
const OUTPUT: &str = "/api/sessions/{session}/outputs/{ref}";
const HISTORY: &str = "/api/sessions/{session}/history";
const GATES: &str = "/api/gates";
const ME: &str = "/api/me";
const INVITES: &str = "/api/invites";
const TOKEN: &str = "/api/tokens/{token}";
const TRANSCRIPT: &str = "/sessions/{session}/transcript";

const PATHS: &[&str] = &[
    "/",
    "/ws",
    SESSIONS,
    SESSION,
    MESSAGES,
    SESSION_GATES,
    GATE,
    VOTE,
    AMEND,
    OUTPUT,
    HISTORY,
    GATES,
    ME,
    INVITES,
    TOKEN,
    TRANSCRIPT,
    "/health",
    "/healthz",
    "/readyz",
    "/metrics",
    "/openapi.json",
    "/schema.json",
];

/// The path of a route for a counter that keeps it for ever.
pub(super) fn name(path: &str) -> Option<&'static str> {
    PATHS.iter().copied().find(|known| *known == path)
}

/// Every route but the socket.
pub(super) fn all(house: &House) -> Vec<Route> {
    let whole_message = DefaultBodyLimit::max(house.settings.limits.message_bytes);
    vec![
        Route::get(SESSIONS, "Sessions that the token opens, newest first", get(sessions::list))
            .takes::<sessions::ListParameters>()
            .gives("SessionList"),
        Route::post(SESSIONS, "Make a session", post(sessions::create))
            .takes::<NoParameters>()
            .reads("NewSession")
            .gives("SessionMade")
            .answers(201, Answer::Schema("SessionMade")),
        Route::get(SESSION, "A session as it is: people, gates, what runs", get(sessions::state))
            .gives("SessionState"),
        Route::get(MESSAGES, "Messages in order; with `wait`, the next one when it comes", get(messages::read))
            .takes::<messages::ReadParameters>()
            .gives("MessagePage"),
        Route::post(
            MESSAGES,
            "Say something: a client message, of which `v`, `id`, `session` and `sender` may be left out",
            post(messages::send).layer(whole_message),
        )
        .reads("client")
        .gives("SessionAck"),
        Route::get(SESSION_GATES, "Open gates of a session", get(gates::of_session)).gives("GateList"),
        Route::get(GATE, "One gate, open or resolved, by its own id or its proposal's", get(gates::one))
            .gives("GateState"),
        Route::post(VOTE, "Approve or reject", post(gates::vote)).reads("Ballot").gives("GateAnswer"),
        Route::post(AMEND, "Edit the command; votes are then cast again", post(gates::edit))
            .reads("Edit")
            .gives("GateAnswer"),
        Route::get(OUTPUT, "What a command printed, by lines", get(outputs::read))
            .takes::<outputs::OutputParameters>()
            .gives("OutputPage"),
        Route::get(HISTORY, "Commands of a session, newest first", get(outputs::history))
            .takes::<outputs::HistoryParameters>()
            .gives("CommandPage"),
        Route::get(GATES, "Open gates of every session that the token opens", get(gates::everywhere))
            .takes::<gates::WatchParameters>()
            .gives("GateList"),
        Route {
            access: Access::OwnToken,
            ..Route::get(ME, "Whose token this is", get(invites::me))
        }
        .gives("Me"),
        Route::post(INVITES, "Invite a person or an agent", post(invites::invite))
            .reads("Invite")
            .answers(201, Answer::Schema("Invitation"))
            .for_admins(),
        Route {
            method: "delete",
            ..Route::get(TOKEN, "Revoke a token by its id", delete(invites::revoke))
        }
        .answers(204, Answer::Nothing)
        .for_admins(),
        Route::get(TRANSCRIPT, "The published transcript", get(transcript::read)).takes::<transcript::Wanted>(),
        Route::get("/health", "Whether the server is up", get(super::health)).for_all(),
        Route::get("/healthz", "The same", get(super::health)).for_all(),
        Route::get("/readyz", "Whether the store answers", get(super::ready)).for_all(),
        Route::get("/metrics", "Counters for Prometheus", get(super::metrics))
            .answers(200, Answer::Text)
            .for_all(),
        Route::get("/openapi.json", "This document", get(openapi::document)).for_all(),
        Route::get("/schema.json", "JSON Schema of every message", get(super::schema)).for_all(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_has_a_name_for_its_counter() {
        let dir = tempfile::tempdir().unwrap();
        let store = crate::store::Store::open(dir.path()).unwrap();
        let config = crate::config::Config::default();
        let policy = pvp_policy::Policy::built_in();
        let house = House::new(store, config, policy).unwrap();
        for route in all(&house) {
            assert_eq!(name(route.path), Some(route.path));
        }
    }
}
