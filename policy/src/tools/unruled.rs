//! What is said of a call that no rule names.

use pvp_protocol::{Category, Risk};

use super::command_lines::is_runner;
use super::kind::CallKind;
use super::patch::{PatchChange, PatchedFile};
use super::{JudgedCall, shown};
use crate::verdict::CommandVerdict;

/// How many files of a patch are named in the reason.
const MAX_NAMED_FILES: usize = 3;

impl JudgedCall<'_> {
    pub(super) fn unruled_verdict(&self) -> CommandVerdict {
        let write = CommandVerdict::write;
        match &self.kind {
            CallKind::Fetch => write(Risk::Medium, "client.fetch", &self.fetch_reason()),
            CallKind::WebSearch => {
                let reason = "asks a search engine, which sees the words";
                write(Risk::Low, "client.web-search", reason)
            }
            CallKind::Subagent(agent) => {
                let agent = agent.map(|name| format!(" (`{}`)", shown(name)));
                let reason = format!(
                    "starts a subagent{}; each call that it makes is judged by itself",
                    agent.unwrap_or_default()
                );
                write(Risk::Low, "client.subagent", &reason)
            }
            CallKind::Stdin { .. } => CommandVerdict::new(
                Category::Read,
                Risk::Safe,
                "client.poll",
                "shows what a running command has printed",
            ),
            CallKind::Mcp { server, tool } => {
                let (server, tool) = (shown(server), shown(tool));
                let reason = format!("calls `{tool}` of the MCP server `{server}`");
                write(Risk::Medium, "tool.mcp", &reason)
            }
            CallKind::Patch(Some(files)) => write(Risk::Low, "client.patch", &patch_reason(files)),
            CallKind::Other if is_runner(self.name) => {
                let reason = "runs a command in a form that PVP does not know";
                write(Risk::Medium, "tool.unknown", reason)
            }
            CallKind::File(_)
            | CallKind::ClientRead(_)
            | CallKind::ClientWrite
            | CallKind::Patch(None)
            | CallKind::Other => {
                let reason = format!("nothing is known about the tool `{}`", self.name);
                write(Risk::Medium, "tool.unknown", &reason)
            }
        }
    }

    fn fetch_reason(&self) -> String {
        let hosts = self.addresses.iter().flat_map(|address| &address.hosts);
        let mut hosts: Vec<String> = hosts.map(|host| format!("`{}`", shown(host))).collect();
        hosts.sort_unstable();
        hosts.dedup();
        match (hosts.is_empty(), self.more_addresses) {
            (true, _) => "fetches from an address that PVP cannot read".to_owned(),
            (false, false) => format!("fetches from {}", hosts.join(", ")),
            (false, true) => format!("fetches from {}, and perhaps others", hosts.join(", ")),
        }
    }
}

fn patch_reason(files: &[PatchedFile<'_>]) -> String {
    let list = |change: PatchChange| {
        let paths = files.iter().filter(|file| file.change == change);
        let paths: Vec<String> = paths
            .map(|file| format!("`{}`", shown(file.path)))
            .collect();
        match paths.get(MAX_NAMED_FILES..) {
            None | Some([]) => paths.join(", "),
            Some(others) => {
                let named = paths[..MAX_NAMED_FILES].join(", ");
                format!("{named} and {} more", others.len())
            }
        }
    };
    let (changed, deleted) = (list(PatchChange::Changed), list(PatchChange::Deleted));
    match (changed.is_empty(), deleted.is_empty()) {
        (false, true) => format!("changes {changed}"),
        (true, _) => format!("deletes {deleted}"),
        (false, false) => format!("changes {changed}; deletes {deleted}"),
    }
}
