//! A log that an earlier build wrote is still intact and understood, and what cannot be understood
//! is refused by its number instead of being dropped.

use pvp_server::store::audit::verify_export;
use pvp_session::{Entry, EntryError, IndexChange, ProposalOutcome, Session};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The demo's session, with a read, an edited and approved write, a rejected and a blocked command,
/// and a person's own. Written once; never regenerate it, or it proves nothing.
const LOG: &str = include_str!("../fixtures/demo-log.jsonl");

#[derive(serde::Deserialize)]
struct ExportedEntry<'a> {
    #[serde(borrow)]
    meta: &'a RawValue,
    #[serde(borrow)]
    entry: &'a RawValue,
}

/// The entries of the log: what is stored beside each, and its envelope.
fn entries() -> Vec<(String, Value)> {
    let lines = LOG.lines().filter(|line| line.contains(r#","entry":"#));
    lines
        .map(|line| {
            let exported: ExportedEntry<'_> = serde_json::from_str(line).unwrap();
            let meta = exported.meta.get().replace("null", "");
            (meta, serde_json::from_str(exported.entry.get()).unwrap())
        })
        .collect()
}

fn replay(entries: &[(String, Value)]) -> Result<(Session, Vec<IndexChange>), EntryError> {
    let id = entries[0].1["session"].as_str().unwrap();
    let mut session = Session::new(pvp_protocol::SessionId::parse(id).unwrap());
    let mut index_changes = Vec::new();
    for (meta, envelope) in entries {
        let entry = Entry::decode(meta.as_bytes(), envelope.to_string().as_bytes())?;
        index_changes.extend(session.replay(&entry)?);
    }
    Ok((session, index_changes))
}

#[test]
fn a_log_of_an_earlier_build_is_intact_and_gives_the_same_state() {
    let report = verify_export(&mut LOG.as_bytes(), &[]).unwrap();
    assert_eq!(report.first_finding(), None);

    let (session, index_changes) = replay(&entries()).unwrap();
    assert_eq!(session.head(), 56);
    assert_eq!(session.name(), Some("The demo"));
    let members: Vec<_> = session.members().map(|(id, _)| id.to_string()).collect();
    assert_eq!(members, ["admin-0ea46807", "demo-agent-7d4ad094"]);
    let outcomes: Vec<_> = index_changes
        .iter()
        .filter_map(|change| match change {
            IndexChange::Closed(proposal) => Some(proposal.closed.unwrap().0),
            IndexChange::Output(_) => None,
        })
        .collect();
    use ProposalOutcome::{Blocked, Finished, Rejected};
    assert_eq!(outcomes, [Finished, Finished, Rejected, Blocked, Finished]);
    assert_eq!(session.open_gates().len(), 0);
}

#[test]
fn an_entry_that_lacks_what_the_state_needs_is_refused_by_its_number() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change, &str); 5] = [
        (
            "tool.propose",
            |it| drop(it.as_object_mut().unwrap().remove("assessment")),
            "it has no assessment",
        ),
        (
            "tool.propose",
            |it| it["arguments"] = json!({"full_command": 7}),
            "`arguments.full_command`",
        ),
        (
            "gate.amend",
            |it| drop(it.as_object_mut().unwrap().remove("assessment")),
            "it has no assessment",
        ),
        (
            "gate.amend",
            |it| it["gate"] = json!("elsewhere"),
            "it edits a gate that is not open",
        ),
        (
            "shell.exec",
            |it| drop(it.as_object_mut().unwrap().remove("executor")),
            "it names no executor",
        ),
    ];
    for (kind, change, why) in changes {
        let mut entries = entries();
        let (_, envelope) = entries
            .iter_mut()
            .find(|(_, it)| it["type"] == kind)
            .unwrap();
        change(&mut envelope["payload"]);
        let seq = envelope["seq"].clone();
        let error = replay(&entries).map(|_| ()).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("entry {seq} cannot be applied: ")),
            "{error}"
        );
        assert!(error.contains(why), "{error}");
    }
}
