//! Talking with an agent: prompts, what it thinks and answers, and interrupting it.

use crate::payload::Content;
use crate::{ExtraFields, JsonObject, MessageId, ParticipantId};

wire_enums! {
    /// Why an answer ended.
    pub enum FinishReason {
        Complete,
        Interrupted,
        Error,
        MaxTokens,
        ToolUse,
    }

    /// How hard to stop.
    pub enum InterruptUrgency {
        Pause,
        Stop,
        Emergency,
    }

    /// What an agent did about an interrupt.
    pub enum InterruptAction {
        Paused,
        Stopped,
        Acknowledged,
        Ignored,
    }

    /// Groups that thinking may be shown to.
    pub enum VisibilityGroup {
        All,
        ApproversOnly,
    }
}

/// Who may see an agent think.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "generate", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(untagged)]
pub enum Visibility {
    Group(VisibilityGroup),
    People(Vec<ParticipantId>),
}

wire_structs! {
    /// `prompt.draft`: never stored
    pub struct PromptDraft {
        pub content: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub target_agent: Option<ParticipantId>,
        pub contributors: Vec<ParticipantId>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// How a prompt wants to be answered.
    pub struct PromptConfig {
        #[serde(skip_serializing_if = "Option::is_none")]
        pub temperature: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub max_tokens: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub tools_allowed: Option<Vec<String>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub model: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "generate", ts(optional, type = "Record<string, unknown>"))]
        pub provider_params: Option<JsonObject>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `prompt.submit`
    pub struct PromptSubmit {
        pub content: String,
        pub target_agent: ParticipantId,
        pub contributors: Vec<ParticipantId>,
        pub context_keys: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub config: Option<PromptConfig>,
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

    /// `thinking.chunk`, with `ref` naming its start when there is doubt
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

    /// `response.chunk`, with `ref` naming its start when there is doubt
    pub struct ResponseChunk {
        pub text: String,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// What an answer cost.
    pub struct UsageStats {
        pub input_tokens: u64,
        pub output_tokens: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub thinking_tokens: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cost_usd: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub model: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub latency_ms: Option<u64>,
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
        /// One agent, or all of them.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub target: Option<ParticipantId>,
        pub urgency: InterruptUrgency,
        pub message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub inject_context: Option<Content>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub inject_context_ref: Option<crate::payload::ContentRef>,
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
