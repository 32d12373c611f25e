//! Messages to and from agents: prompts, thinking, responses and interrupts.

use crate::payload::{ClientOrigin, Content};
use crate::{ExtraFields, JsonObject, MessageId, ParticipantId};

wire_enums! {
    /// Why a response ended.
    pub enum FinishReason {
        Complete,
        Interrupted,
        Error,
        MaxTokens,
        ToolUse,
    }

    /// How urgent an interrupt is.
    pub enum InterruptUrgency {
        Pause,
        Stop,
        Emergency,
    }

    /// What an agent did on an interrupt.
    pub enum InterruptAction {
        Paused,
        Stopped,
        Acknowledged,
        Ignored,
    }

    /// A group that may see an agent's thinking.
    pub enum VisibilityGroup {
        All,
        ApproversOnly,
    }
}

/// Who may see an agent's thinking.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "generate", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(untagged)]
pub enum Visibility {
    Group(VisibilityGroup),
    People(Vec<ParticipantId>),
}

wire_structs! {
    /// `prompt.draft`: a prompt that is still being written; ephemeral
    pub struct PromptDraft {
        pub content: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub target_agent: Option<ParticipantId>,
        pub contributors: Vec<ParticipantId>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// How an agent should answer a prompt.
    pub struct PromptConfig {
        /// The sampling temperature; the agent's default if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub temperature: Option<f64>,
        /// The most tokens to answer with; the agent's default if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub max_tokens: Option<u64>,
        /// The only tools the agent may use; all its tools if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub tools_allowed: Option<Vec<String>>,
        /// The model to use; the agent's default if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub model: Option<String>,
        /// Further parameters for the model provider.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "generate", ts(optional, type = "Record<string, unknown>"))]
        pub provider_params: Option<JsonObject>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `prompt.submit`
    pub struct PromptSubmit {
        /// The text of the prompt.
        pub content: String,
        /// The agent that should answer.
        pub target_agent: ParticipantId,
        /// Everyone who wrote part of it.
        pub contributors: Vec<ParticipantId>,
        /// Keys of shared context that the prompt refers to.
        pub context_keys: Vec<String>,
        /// How to answer it; the agent's defaults if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub config: Option<PromptConfig>,
        /// The agent client that the person typed it into, which has it already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub origin: Option<ClientOrigin>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `prompt.amend`
    pub struct PromptAmend {
        pub original_prompt: MessageId,
        pub amendment: String,
        pub reason: String,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `thinking.start`
    pub struct ThinkingStart {
        pub agent: ParticipantId,
        pub prompt_ref: MessageId,
        pub visible_to: Visibility,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `thinking.chunk`, with `ref` naming its start; the latest open one if not given
    pub struct ThinkingChunk {
        pub text: String,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `thinking.end`
    pub struct ThinkingEnd {
        #[serde(skip_serializing_if = "Option::is_none")]
        pub summary: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub duration_ms: Option<u64>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `response.start`
    pub struct ResponseStart {
        pub agent: ParticipantId,
        pub prompt_ref: MessageId,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `response.chunk`, with `ref` naming its start; the latest open one if not given
    pub struct ResponseChunk {
        pub text: String,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// The token usage and cost of a response.
    pub struct UsageStats {
        /// Tokens of the request.
        pub input_tokens: u64,
        /// Tokens of the response, including thinking.
        pub output_tokens: u64,
        /// Tokens spent on thinking, if the provider reports them.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub thinking_tokens: Option<u64>,
        /// The cost in US dollars, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cost_usd: Option<f64>,
        /// The model that answered, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub model: Option<String>,
        /// Milliseconds from request to response, if measured.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub latency_ms: Option<u64>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `response.end`
    pub struct ResponseEnd {
        pub finish_reason: FinishReason,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub usage: Option<UsageStats>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `interrupt.raise`
    pub struct InterruptRaise {
        /// The agent to interrupt; all agents if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub target: Option<ParticipantId>,
        /// How urgent it is.
        pub urgency: InterruptUrgency,
        /// What to tell the agent.
        pub message: String,
        /// Content that the agent should take into account.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub inject_context: Option<Content>,
        /// The same, kept elsewhere.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub inject_context_ref: Option<crate::payload::ContentRef>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `interrupt.acknowledge`
    pub struct InterruptAcknowledge {
        pub interrupt: MessageId,
        pub by: ParticipantId,
        pub action_taken: InterruptAction,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub ignore_reason: Option<String>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }
}
