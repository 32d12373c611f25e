//! What an agent says about its own call: it can make an assessment stricter, never milder.

use pvp_protocol::payload::{CONTENT_REF_FIELD, ContentRef};
use pvp_protocol::{
    Assessment, Category, JsonObject, Risk, SandboxProfile, ToolCategory, ToolKind,
};
use serde::Deserialize;
use serde_json::Value;

/// Tells those who vote that an argument is a reference to a long text, which they have to read
/// elsewhere.
pub(super) fn long_text_note((name, value): (&String, &Value)) -> Option<String> {
    let reference = value.get(CONTENT_REF_FIELD)?;
    let reference = ContentRef::deserialize(reference).ok()?;
    let (bytes, hash) = (reference.size_bytes, reference.hash);
    let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
    Some(format!(
        "`{name}` has {bytes} bytes, too many to show here; read the text with the hash {hash}"
    ))
}

/// Whether the arguments say that the tool is a streaming one, as published agents do.
pub(super) fn is_declared_streaming(arguments: &JsonObject) -> bool {
    arguments.get("streaming") == Some(&true.into())
}

/// Raises an assessment to the agent's own estimate, which never lowers it.
///
/// `low` is the lowest of the published levels and what clients say of a harmless read.
pub(super) fn raise_to_claimed_risk(assessment: &mut Assessment, claim: Risk) {
    if claim <= assessment.risk.max(Risk::Low) {
        return;
    }
    let at_least = match claim {
        Risk::Safe | Risk::Low => Category::Read,
        Risk::Medium => Category::Write,
        Risk::High | Risk::Critical => Category::Destructive,
    };
    let claimed_risk = format!("{claim:?}").to_lowercase();
    assessment.notes.push(format!(
        "raised, because the agent itself calls this {claimed_risk}"
    ));
    assessment.risk = claim;
    assessment.category = assessment.category.max(at_least);
    if assessment.category > Category::Read {
        assessment.profile = SandboxProfile::None;
    }
}

/// Raises an assessment to what the kind of tool may do that the agent states, which never lowers
/// it.
pub(super) fn raise_to_claimed_kind(
    assessment: &mut Assessment,
    kind: ToolKind,
    claimed: ToolCategory,
) {
    if kind == ToolKind::SHELL {
        return;
    }
    let may = match claimed {
        ToolCategory::FileDelete => "deletes files",
        ToolCategory::Deploy => "deploys",
        ToolCategory::Database => "changes a database",
        ToolCategory::SecretAccess => "reads secrets",
        ToolCategory::FileRead
        | ToolCategory::FileWrite
        | ToolCategory::ShellExecute
        | ToolCategory::NetworkRequest
        | ToolCategory::ExternalApi
        | ToolCategory::All => return,
    };
    if assessment.category < Category::Destructive {
        assessment.category = Category::Destructive;
        assessment.risk = assessment.risk.max(Risk::High);
        assessment.profile = SandboxProfile::None;
        let note = format!("raised, because the agent itself says that this {may}");
        assessment.notes.push(note);
    }
}
