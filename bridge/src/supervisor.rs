//! A bridge's place in a session: has a client's calls decided, and reports how they ended.
//!
//! The types carry the order of things. A call is [proposed](Supervisor::propose), which gives a
//! [`PendingCall`]; waiting for its decision gives an [`AllowedCall`] or a [`Denial`]; only an
//! allowed call can report output and a result. A pending call that is dropped is withdrawn, and an
//! allowed call that is dropped without a result is reported as unknown.

pub(crate) mod agent_inputs;
mod allowed_call;
mod denial;
mod pending_call;
mod unreported;

use std::path::PathBuf;
use std::sync::Arc;

use pvp_agent::agent::Agent;
use pvp_agent::proposer::{ClientCall, PersonRequest, ProposeError, Proposer};
use pvp_client::{ConnectError, ConnectOptions, Connection, Link};
use pvp_protocol::payload::{
    ClientOrigin, Degree, ExecutorInfo, FileContent, InterruptAcknowledge, InterruptAction,
    InterruptUrgency,
};
use pvp_protocol::{Digest, ExtraFields, JsonObject, MessageId, ParticipantId, SessionId};
use tokio::sync::mpsc;

pub use allowed_call::{AllowedCall, CallReport};
pub use denial::{Denial, DenialKind};
pub use pending_call::{CallDecision, PendingCall};

use unreported::UnreportedCalls;

use crate::leases::LeaseRenewal;
use crate::reach::{self, CallReach};
use crate::translation::{CallPlace, TranslatedCall};

/// A client under supervision.
#[derive(Debug, Clone)]
pub struct SupervisedClient {
    /// Its name, such as `codex`.
    pub name: String,
    /// Its version, if it is known.
    pub version: Option<String>,
    /// The directory that it works in, as an absolute path without links.
    pub workspace: PathBuf,
    /// How sure it is that what is approved is what it runs.
    pub degree: Degree,
}

impl SupervisedClient {
    /// The client as the origin of what our executor runs for it.
    pub(crate) fn origin(&self) -> ClientOrigin {
        ClientOrigin {
            client: self.name.clone(),
            version: self.version.clone(),
            ..ClientOrigin::default()
        }
    }
}

/// One call as the client makes it.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// The client's own id of its conversation.
    pub conversation: String,
    /// The client's own id of the call; the same call is decided once.
    pub call_id: String,
    /// The subagent that makes it; `None` if the agent itself does.
    pub subagent: Option<String>,
    /// The call in the words of this protocol.
    pub call: TranslatedCall,
    /// The contents of the files that the call binds.
    pub file_contents: Vec<FileContent>,
    /// Whether people must be asked, even if the policy would let it run.
    pub must_ask: bool,
}

/// A bridge in a session. Clones share one connection; dropping the last one ends it.
#[derive(Clone)]
pub struct Supervisor {
    client: Arc<SupervisedClient>,
    proposer: Proposer,
    leases: LeaseRenewal,
    unreported: UnreportedCalls,
}

impl Supervisor {
    /// Joins a session for a client. The receiver gets what people ask of the agent: prompts, and
    /// interrupts, which the caller [acknowledges](Self::acknowledge) when it has acted on them.
    pub async fn connect(
        link: Link,
        client: SupervisedClient,
    ) -> Result<(Self, mpsc::Receiver<PersonRequest>), ConnectError> {
        let options = connect_options(&client);
        Self::connect_with(link, options, client).await
    }

    /// Like [`connect`](Self::connect), with options of the caller's; the executor is announced as
    /// in the options.
    pub async fn connect_with(
        link: Link,
        options: ConnectOptions,
        client: SupervisedClient,
    ) -> Result<(Self, mpsc::Receiver<PersonRequest>), ConnectError> {
        let (proposer, requests) = Proposer::connect_with_requests(link, options).await?;
        Ok((Self::with_proposer(proposer, client), requests))
    }

    /// Supervises a client over the connection of an agent that is in the session already.
    pub fn with_proposer(proposer: Proposer, client: SupervisedClient) -> Self {
        Self {
            client: Arc::new(client),
            leases: LeaseRenewal::keep(proposer.clone()),
            unreported: UnreportedCalls::default(),
            proposer,
        }
    }

    /// Supervises a client over the connection of an agent, whose executor runs what the client
    /// leaves to it. The agent must leave it to its caller to answer interrupts. Once the agent is
    /// dropped, nothing more is decided.
    pub fn over_agent(
        agent: &mut Agent,
        client: SupervisedClient,
    ) -> (Self, mpsc::Receiver<PersonRequest>) {
        let requests = agent_inputs::person_requests(agent.take_inputs());
        (
            Self::with_proposer(agent.proposer().clone(), client),
            requests,
        )
    }

    /// The client under supervision.
    pub fn client(&self) -> &SupervisedClient {
        &self.client
    }

    /// Says that the client of a call is still there; an error says that the server is not.
    pub async fn renew(&self, call: &MessageId) -> Result<(), ProposeError> {
        self.proposer.renew(vec![call.clone()]).await
    }

    pub fn participant(&self) -> &ParticipantId {
        self.proposer.participant()
    }

    pub fn session(&self) -> &SessionId {
        self.proposer.session()
    }

    /// The connection, for sending other messages.
    pub fn connection(&self) -> &Connection {
        self.proposer.connection()
    }

    /// Waits until the session is over for this participant.
    pub fn stopped(&self) -> impl Future<Output = Option<String>> + Send + 'static {
        self.proposer.stopped()
    }

    /// Where a call is made that is made in the client's own directory.
    pub fn place(&self) -> CallPlace {
        CallPlace {
            workspace: self.client.workspace.clone(),
            cwd: self.client.workspace.clone(),
        }
    }

    /// Proposes a call. Whatever goes wrong is a denial: nothing runs because of an error.
    pub async fn propose(&self, request: CallRequest) -> Result<PendingCall, Denial> {
        let requires_approval = match reach::check(&request.call, &self.client.workspace) {
            CallReach::AsShown => request.must_ask,
            CallReach::Ask => true,
            CallReach::Refused(why) => return Err(Denial::failed(&why)),
        };
        let id = proposal_id(&self.client.name, &request.conversation, &request.call_id);
        let call = ClientCall {
            id,
            tool_name: request.call.tool_name.clone(),
            category: request.call.category,
            arguments: request.call.arguments.clone(),
            purpose: request.call.purpose.clone(),
            requires_approval,
            file_contents: request.file_contents,
            degree: self.client.degree,
            origin: ClientOrigin {
                client: self.client.name.clone(),
                version: self.client.version.clone(),
                session: Some(request.conversation),
                call: Some(request.call_id),
                subagent: request.subagent,
                // Nothing runs until this has answered.
                fails_open: false,
            },
        };
        let handle = self.proposer.propose_client_call(call).await;
        let handle = handle.map_err(Denial::from)?;
        Ok(PendingCall::new(self, handle, request.call))
    }

    /// Acknowledges an interrupt that was acted on.
    pub async fn acknowledge(&self, interrupt: &MessageId, action: InterruptAction) {
        acknowledge(&self.proposer, interrupt, action).await;
    }

    /// Waits until the session has been told how the calls ended that are over, as long as that takes
    /// no longer than it should.
    pub async fn settle(&self) {
        if !self.unreported.settle().await {
            tracing::warn!("a result is not in the record");
        }
    }

    /// Leaves the session, which withdraws what waits and closes what runs as unknown.
    pub async fn leave(self, why: &str) -> Result<(), ProposeError> {
        self.settle().await;
        self.proposer.leave(why).await
    }
}

/// What a bridge does about an interrupt that it heeds.
pub(crate) fn heeded(urgency: InterruptUrgency) -> InterruptAction {
    match urgency {
        InterruptUrgency::Pause => InterruptAction::Paused,
        InterruptUrgency::Stop | InterruptUrgency::Emergency => InterruptAction::Stopped,
    }
}

/// Says what was done about an interrupt.
pub(crate) async fn acknowledge(
    proposer: &Proposer,
    interrupt: &MessageId,
    action: InterruptAction,
) {
    let acknowledge = InterruptAcknowledge {
        interrupt: interrupt.clone(),
        by: proposer.participant().clone(),
        action_taken: action,
        ignore_reason: None,
        extra: ExtraFields::new(),
    };
    if let Err(error) = proposer.connection().send_and_wait(acknowledge).await {
        tracing::warn!(%error, "an interrupt was not acknowledged");
    }
}

/// The id of the proposal of a call: the same call always has the same one.
pub fn proposal_id(client: &str, conversation: &str, call_id: &str) -> MessageId {
    let parts = [client, conversation, call_id].map(str::as_bytes);
    let digest = Digest::of(&[b"pvp.client-call.v1", parts[0], parts[1], parts[2]]).to_string();
    let hex: String = digest.chars().filter(char::is_ascii_hexdigit).collect();
    MessageId::parse(&format!("call-{}", &hex[..32])).expect("hex is a plain word")
}

/// How a bridge joins a session for a client.
pub fn connect_options(client: &SupervisedClient) -> ConnectOptions {
    ConnectOptions {
        executor: Some(executor_info(client)),
        metadata: Some(metadata(client)),
        ..ConnectOptions::default()
    }
}

/// What a bridge announces about its client: it confines nothing. Whoever cannot be given an edited
/// call does not run it, and is told what was approved.
fn executor_info(client: &SupervisedClient) -> ExecutorInfo {
    ExecutorInfo {
        profiles: Vec::new(),
        trials: false,
        shell_exec: false,
        edits: true,
        working_directory: client.workspace.to_str().map(str::to_owned),
        runner: Vec::new(),
        shell: None,
        read_roots: false,
    }
}

fn metadata(client: &SupervisedClient) -> JsonObject {
    let mut metadata = JsonObject::new();
    metadata.insert("client".to_owned(), client.name.clone().into());
    if let Some(version) = &client.version {
        metadata.insert("client_version".to_owned(), version.clone().into());
    }
    metadata
}
