//! Reads the stored logs with `pvp audit` and checks that they are intact.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::run_pvp;

/// Asserts that a data directory is intact and returns the report of `pvp audit verify`.
pub fn assert_intact(data: &Path) -> Value {
    let data = data.to_str().unwrap();
    let (good, output, problem) = run_pvp(&["audit", "verify", "--json", "--data", data]);
    assert!(good, "{output} {problem}");
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(report["intact"], true, "{report}");
    report
}

/// Asserts that a data directory is intact and the last entry of every session is signed.
pub fn assert_checkpointed(data: &Path) {
    let report = assert_intact(data);
    for session in report["sessions"].as_array().unwrap() {
        assert_eq!(session["sealed"], session["entries"], "{session}");
    }
}

/// The entries of every session; asserts that sequence numbers have no gap and no repeat.
pub fn export_logs(data: &Path) -> BTreeMap<String, Vec<Value>> {
    let data = data.to_str().unwrap();
    let (good, lines, problem) = run_pvp(&["audit", "export", "--data", data]);
    assert!(good, "{problem}");
    let mut logs: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in lines.lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        if line["entry"].is_object() {
            let session = line["session"].as_str().unwrap().to_owned();
            let log = logs.entry(session).or_default();
            log.push(line["entry"].take());
            let place = Some(log.len() as u64);
            assert_eq!(log.last().unwrap()["seq"].as_u64(), place, "gap or repeat");
        }
    }
    logs
}

/// The entries of one session.
pub fn export_log(data: &Path, session: &str) -> Vec<Value> {
    export_logs(data).remove(session).unwrap_or_default()
}

/// An entry as everyone receives it: without the fields that only the executor's copy has.
pub fn public_copy(entry: &Value) -> Value {
    let mut entry = entry.clone();
    let grant = entry.pointer_mut("/payload/grant");
    if let Some(grant) = grant.and_then(Value::as_object_mut) {
        grant.remove("nonce");
        grant.remove("secret_env");
    }
    entry
}

/// The log entries among these messages, as everyone receives them.
pub fn log_entries(messages: &[Value]) -> Vec<Value> {
    let kept = messages.iter().filter(|message| message["seq"].is_u64());
    kept.map(public_copy).collect()
}

/// The type of an entry.
pub fn message_type(entry: &Value) -> &str {
    entry["type"].as_str().unwrap()
}
