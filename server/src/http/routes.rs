//! The table of routes, each with its documentation, so that neither exists without the other.

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use pvp_protocol::ParticipantKind;

use super::extractors::{NoParameters, QueryParameter, QueryParameters};
use super::{
    archives, chain, commands, commit_context, contents, decisions, devices, gates, invites,
    messages, notifications, openapi, proposals, send, sessions, transcript, vote_link,
};
use crate::admission;
use crate::directory::SessionDirectory;

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteAccess {
    Anyone,
    /// Whoever has a token; anyone on an open server.
    Token,
    /// Whoever has a token, even on an open server.
    TokenRequired,
    Admin,
    /// Whoever has the secret of a vote link.
    VoteLink,
}

/// The body of a successful response.
#[derive(Debug, Clone, Copy)]
pub(super) enum ResponseBody {
    /// JSON of this type in the schema.
    Schema(&'static str),
    /// JSON of a type that is not in the schema.
    Json,
    Text,
    Empty,
}

/// One route of the HTTP API.
pub(super) struct ApiRoute {
    /// The HTTP method, in lower case.
    pub(super) method: &'static str,
    /// The path, with its parameters in braces.
    pub(super) path: &'static str,
    /// One line of documentation.
    pub(super) summary: &'static str,
    /// Who may use it, for the documentation; the handler checks it.
    pub(super) access: RouteAccess,
    /// The query parameters it takes.
    pub(super) parameters: &'static [QueryParameter],
    /// The type of the request's body in the schema; `None` if it takes no body.
    pub(super) body: Option<&'static str>,
    /// The status of a successful response.
    pub(super) status: u16,
    /// The body of a successful response.
    pub(super) response: ResponseBody,
    /// What axum calls.
    pub(super) handler: MethodRouter<Arc<SessionDirectory>>,
}

impl ApiRoute {
    fn get(
        path: &'static str,
        summary: &'static str,
        handler: MethodRouter<Arc<SessionDirectory>>,
    ) -> Self {
        Self {
            method: "get",
            path,
            summary,
            access: RouteAccess::Token,
            parameters: &[],
            body: None,
            status: 200,
            response: ResponseBody::Json,
            handler,
        }
    }

    fn post(
        path: &'static str,
        summary: &'static str,
        handler: MethodRouter<Arc<SessionDirectory>>,
    ) -> Self {
        Self {
            method: "post",
            access: RouteAccess::TokenRequired,
            ..Self::get(path, summary, handler)
        }
    }

    fn with_query<T: QueryParameters>(mut self) -> Self {
        self.parameters = T::ALL;
        self
    }

    fn with_body(mut self, body: &'static str) -> Self {
        self.body = Some(body);
        self
    }

    fn returns(mut self, schema: &'static str) -> Self {
        self.response = ResponseBody::Schema(schema);
        self
    }

    fn returns_status(mut self, status: u16, answer: ResponseBody) -> Self {
        (self.status, self.response) = (status, answer);
        self
    }

    fn public(mut self) -> Self {
        self.access = RouteAccess::Anyone;
        self
    }

    fn with_method(mut self, method: &'static str) -> Self {
        (self.method, self.access) = (method, RouteAccess::TokenRequired);
        self
    }

    fn for_vote_links(mut self) -> Self {
        self.access = RouteAccess::VoteLink;
        self
    }

    fn admin_only(mut self) -> Self {
        self.access = RouteAccess::Admin;
        self
    }
}

const SESSIONS: &str = "/api/sessions";
const KEY: &str = "/api/key";
const SESSION: &str = "/api/sessions/{session}";
const ARCHIVE: &str = "/api/sessions/{session}/archive";
const HEAD: &str = "/api/sessions/{session}/head";
const CHAIN: &str = "/api/sessions/{session}/chain";
const MESSAGES: &str = "/api/sessions/{session}/messages";
const SESSION_GATES: &str = "/api/sessions/{session}/gates";
const GATE: &str = "/api/sessions/{session}/gates/{gate}";
const VOTE: &str = "/api/sessions/{session}/gates/{gate}/vote";
const AMEND: &str = "/api/sessions/{session}/gates/{gate}/amend";
const SESSION_PROPOSALS: &str = "/api/sessions/{session}/proposals";
const DECISION: &str = "/api/sessions/{session}/proposals/{proposal}/decision";
const OUTPUT: &str = "/api/sessions/{session}/outputs/{ref}";
const HISTORY: &str = "/api/sessions/{session}/history";
const COMMIT_CONTEXT: &str = "/api/sessions/{session}/commit-context";
const GATES: &str = "/api/gates";
const PROPOSALS: &str = "/api/proposals";
const ME: &str = "/api/me";
const INVITES: &str = "/api/invites";
const CODES: &str = "/api/codes";
const JOIN: &str = "/api/join";
const DEVICES: &str = "/api/devices";
const DEVICE: &str = "/api/devices/{device}";
const DEVICE_CODES: &str = "/api/device-codes";
const DEVICE_JOIN: &str = "/api/join/device";
const NOTIFICATIONS: &str = "/api/notifications";
const CHANNELS: &str = "/api/notifications/channels";
const CHANNEL: &str = "/api/notifications/channels/{channel}";
const CHANNEL_TEST: &str = "/api/notifications/channels/{channel}/test";
const PUSH_KEY: &str = "/api/push/key";
const PUSH_SUBSCRIPTIONS: &str = "/api/push/subscriptions";
const PUSH_SUBSCRIPTION: &str = "/api/push/subscriptions/{channel}";
const VOTE_LINK: &str = "/api/vote";
const TOKENS: &str = "/api/tokens";
const TOKEN: &str = "/api/tokens/{token}";
const PUBLISHED_MESSAGES: &str = "/sessions/{session}/messages";
const TRANSCRIPT: &str = "/sessions/{session}/transcript";
const CONTENT: &str = "/sessions/{session}/contents/{hash}";

const KNOWN_PATHS: &[&str] = &[
    "/",
    "/ws",
    SESSIONS,
    SESSION,
    ARCHIVE,
    HEAD,
    CHAIN,
    MESSAGES,
    SESSION_GATES,
    GATE,
    VOTE,
    AMEND,
    SESSION_PROPOSALS,
    DECISION,
    OUTPUT,
    HISTORY,
    COMMIT_CONTEXT,
    GATES,
    PROPOSALS,
    ME,
    INVITES,
    CODES,
    JOIN,
    DEVICES,
    DEVICE,
    DEVICE_CODES,
    DEVICE_JOIN,
    NOTIFICATIONS,
    CHANNELS,
    CHANNEL,
    CHANNEL_TEST,
    PUSH_KEY,
    PUSH_SUBSCRIPTIONS,
    PUSH_SUBSCRIPTION,
    VOTE_LINK,
    KEY,
    TOKENS,
    TOKEN,
    PUBLISHED_MESSAGES,
    TRANSCRIPT,
    CONTENT,
    "/health",
    "/healthz",
    "/readyz",
    "/metrics",
    "/openapi.json",
    "/schema.json",
];

/// The path of a route as a static string, which a counter's labels need.
pub(super) fn known_path(path: &str) -> Option<&'static str> {
    KNOWN_PATHS.iter().copied().find(|known| *known == path)
}

/// Every route but the WebSocket.
pub(super) fn all(directory: &SessionDirectory) -> Vec<ApiRoute> {
    let message_body_limit = DefaultBodyLimit::max(admission::max_message_bytes(
        directory,
        ParticipantKind::Agent,
    ));
    vec![
        ApiRoute::get(SESSIONS, "Sessions that the token opens, newest first", get(sessions::list))
            .with_query::<sessions::ListParameters>()
            .returns("SessionList"),
        ApiRoute::post(SESSIONS, "Make a session", post(sessions::create))
            .with_query::<NoParameters>()
            .with_body("CreateSessionRequest")
            .returns("CreatedSession")
            .returns_status(201, ResponseBody::Schema("CreatedSession")),
        ApiRoute::get(SESSION, "A session as it is: people, gates, what runs", get(sessions::get))
            .returns("SessionDetails"),
        ApiRoute {
            method: "delete",
            ..ApiRoute::get(SESSION, "Delete a session that has ended; a signed tombstone remains", delete(archives::delete_session))
        }
        .with_query::<archives::DeleteParameters>()
        .returns("SessionTombstone")
        .admin_only(),
        ApiRoute::get(ARCHIVE, "The whole log of a session that has ended, as `pvp audit verify --export` reads it", get(archives::archive_session))
            .with_query::<NoParameters>()
            .returns_status(200, ResponseBody::Text)
            .admin_only(),
        ApiRoute::get(HEAD, "Where the log of a session ends, by its hash, and the server's key", get(sessions::head))
            .with_query::<sessions::HeadParameters>()
            .returns("SessionHead"),
        ApiRoute::get(CHAIN, "The hash chain of a session and the server's signature on it, for checking them elsewhere", get(chain::read))
            .with_query::<chain::ChainParameters>()
            .returns("ChainPage"),
        ApiRoute::get(MESSAGES, "Messages in order; with `wait`, the next one when it comes", get(messages::read))
            .with_query::<messages::ReadParameters>()
            .returns("MessagePage"),
        ApiRoute::post(
            MESSAGES,
            "Say something: a client message, of which `v`, `id`, `session` and `sender` may be left out",
            post(send::send).layer(message_body_limit),
        )
        .with_body("client")
        .returns("SessionAck"),
        ApiRoute::get(SESSION_GATES, "Open gates of a session", get(gates::list_in_session)).returns("GateList"),
        ApiRoute::get(GATE, "One gate, open or resolved, by its own id, its proposal's or the short id", get(gates::get))
            .returns("GateDetails"),
        ApiRoute::post(VOTE, "Approve or reject", post(gates::vote)).with_body("VoteRequest").returns("GateUpdateResponse"),
        ApiRoute::post(AMEND, "Edit the command; votes are then cast again", post(gates::amend))
            .with_body("EditRequest")
            .returns("GateUpdateResponse"),
        ApiRoute::post(SESSION_PROPOSALS, "Propose a call and wait for the decision; the same request again goes on waiting", post(decisions::propose))
            .with_query::<decisions::DecisionParameters>()
            .with_body("ProposalRequest")
            .returns("ProposalDecision"),
        ApiRoute {
            access: RouteAccess::TokenRequired,
            ..ApiRoute::get(DECISION, "Wait for the decision on a proposal of yours", get(decisions::decision))
        }
        .with_query::<decisions::DecisionParameters>()
        .returns("ProposalDecision"),
        ApiRoute::get(OUTPUT, "What a command printed, by lines", get(commands::read_output))
            .with_query::<commands::OutputParameters>()
            .returns("OutputPage"),
        ApiRoute::get(HISTORY, "Commands of a session, newest first", get(commands::history))
            .with_query::<commands::HistoryParameters>()
            .returns("CommandPage"),
        ApiRoute::get(COMMIT_CONTEXT, "Which decisions may have led to a commit, as git hooks ask", get(commit_context::read))
            .with_query::<commit_context::CommitContextParameters>()
            .returns("SessionCommitContext"),
        ApiRoute::get(GATES, "Open gates of every session that the token opens", get(gates::list_all))
            .with_query::<gates::WatchParameters>()
            .returns("GateList"),
        ApiRoute::get(PROPOSALS, "Proposals that an id, or the end of one, names, in every session that the token opens", get(proposals::find))
            .with_query::<proposals::FindParameters>()
            .returns("NamedProposals"),
        ApiRoute {
            access: RouteAccess::TokenRequired,
            ..ApiRoute::get(ME, "Whose token this is", get(invites::whoami))
        }
        .returns("WhoAmI"),
        ApiRoute::post(INVITES, "Invite a person or an agent", post(invites::create_invite))
            .with_body("InviteRequest")
            .returns_status(201, ResponseBody::Schema("Invitation"))
            .admin_only(),
        ApiRoute::post(CODES, "Make a join code: whoever uses it first gets a token", post(invites::create_join_code))
            .with_body("JoinCodeRequest")
            .returns_status(201, ResponseBody::Schema("CreatedJoinCode"))
            .admin_only(),
        ApiRoute::post(JOIN, "Exchange a join code for a token", post(invites::redeem_join_code))
            .with_body("RedeemCodeRequest")
            .returns_status(201, ResponseBody::Schema("Invitation"))
            .public(),
        ApiRoute::post(DEVICES, "Exchange the token of a link for one of this device, which can be revoked alone", post(devices::create))
            .with_body("DeviceRequest")
            .returns_status(201, ResponseBody::Schema("CreatedDevice")),
        ApiRoute::post(DEVICE_CODES, "Make a link that opens the page on another device of yours, once, within an hour", post(devices::create_code))
            .with_body("DeviceCodeRequest")
            .returns_status(201, ResponseBody::Schema("CreatedDeviceCode")),
        ApiRoute::post(DEVICE_JOIN, "Exchange the code of such a link for the token of this device", post(devices::redeem_code))
            .with_body("RedeemDeviceCodeRequest")
            .returns_status(201, ResponseBody::Schema("CreatedDevice"))
            .public(),
        ApiRoute {
            access: RouteAccess::TokenRequired,
            ..ApiRoute::get(DEVICES, "Your devices", get(devices::list))
        }
        .returns("DeviceList"),
        ApiRoute {
            method: "delete",
            access: RouteAccess::TokenRequired,
            ..ApiRoute::get(DEVICE, "Remove a device of yours: its token is revoked, and no other", delete(devices::remove))
        }
        .returns_status(204, ResponseBody::Empty),
        ApiRoute {
            access: RouteAccess::TokenRequired,
            ..ApiRoute::get(TOKENS, "Every token, without its secret, and the join codes that can still be used", get(invites::list_tokens))
        }
        .returns("TokenList")
        .admin_only(),
        ApiRoute {
            method: "delete",
            ..ApiRoute::get(TOKEN, "Revoke a token or a join code by its id", delete(invites::revoke_token))
        }
        .returns_status(204, ResponseBody::Empty)
        .admin_only(),
        ApiRoute::get(NOTIFICATIONS, "How you are notified, and what you may choose from", get(notifications::read))
            .with_method("get")
            .returns("NotificationSettings"),
        ApiRoute::get(NOTIFICATIONS, "Choose what you are notified of, and when", put(notifications::set_preferences))
            .with_method("put")
            .with_body("NotificationPreferences")
            .returns("NotificationSettings"),
        ApiRoute::post(CHANNELS, "Add a webhook, an ntfy topic, a Slack or Discord webhook or an e-mail address", post(notifications::add_channel))
            .with_body("NewChannelRequest")
            .returns_status(201, ResponseBody::Schema("NotificationChannel")),
        ApiRoute::get(CHANNEL, "Rename a channel of yours, or turn it on or off", patch(notifications::change_channel))
            .with_method("patch")
            .with_body("ChangeChannelRequest")
            .returns("NotificationChannel"),
        ApiRoute::get(CHANNEL, "Remove a channel of yours", delete(notifications::remove_channel))
            .with_method("delete")
            .returns_status(204, ResponseBody::Empty),
        ApiRoute::post(CHANNEL_TEST, "Send a test over a channel of yours, and say whether it arrived", post(notifications::test_channel))
            .returns("ChannelTest"),
        ApiRoute::get(PUSH_KEY, "The key that a browser subscribes with", get(notifications::push_key))
            .with_method("get")
            .returns("PushKey"),
        ApiRoute::post(PUSH_SUBSCRIPTIONS, "Have a browser notified by Web Push", post(notifications::subscribe))
            .with_body("NewPushSubscription")
            .returns_status(201, ResponseBody::Schema("PushSubscriptionCreated")),
        ApiRoute::get(PUSH_SUBSCRIPTION, "Have a browser notified no more", delete(notifications::remove_channel))
            .with_method("delete")
            .returns_status(204, ResponseBody::Empty),
        ApiRoute::get(VOTE_LINK, "The card behind a vote link; votes on nothing", get(vote_link::show))
            .for_vote_links()
            .returns("VoteLinkCard"),
        ApiRoute::post(VOTE_LINK, "Vote with a vote link", post(vote_link::vote))
            .with_body("VoteRequest")
            .for_vote_links()
            .returns("GateUpdateResponse"),
        ApiRoute::get(PUBLISHED_MESSAGES, "The same as below `/api`, where the published protocol has it", get(messages::read))
            .with_query::<messages::ReadParameters>()
            .returns("MessagePage"),
        ApiRoute::post(PUBLISHED_MESSAGES, "The same as below `/api`, where the published protocol has it", post(send::send).layer(message_body_limit))
            .with_body("client")
            .returns("SessionAck"),
        ApiRoute::get(TRANSCRIPT, "The published transcript", get(transcript::read)).with_query::<transcript::TranscriptParameters>(),
        ApiRoute::get(CONTENT, "A long text that a message refers to by its SHA-256", get(contents::read))
            .returns_status(200, ResponseBody::Text),
        ApiRoute::get(KEY, "The server's public key and those before it, to know the server before it is sent a token", get(super::server_keys))
            .with_query::<NoParameters>()
            .returns("PublicKeys")
            .public(),
        ApiRoute::get("/health", "Whether the server is up", get(super::health)).public(),
        ApiRoute::get("/healthz", "The same", get(super::health)).public(),
        ApiRoute::get("/readyz", "Whether the store answers", get(super::ready)).public(),
        ApiRoute::get("/metrics", "Counters for Prometheus", get(super::metrics))
            .returns_status(200, ResponseBody::Text)
            .public(),
        ApiRoute::get("/openapi.json", "This document", get(openapi::document)).public(),
        ApiRoute::get("/schema.json", "JSON Schema of every message", get(super::schema)).public(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_route_has_a_name_for_its_counter() {
        let store = Arc::new(crate::store::memory::MemoryStore::default());
        let config = crate::config::ServerConfig::default();
        let policy = pvp_policy::Policy::built_in();
        let directory = SessionDirectory::new(store, config, policy).await.unwrap();
        for route in all(&directory) {
            assert_eq!(known_path(route.path), Some(route.path));
        }
    }
}
