//! How people name a proposal on the command line, and how the one that they mean is found.
//!
//! An agent chooses the ids of its proposals, so it can make one that ends like another that a person
//! has read. A name that fits more than one proposal, even a closed one, is therefore never guessed.

use anyhow::bail;
use pvp_client::{ApiClient, ApiError};
use pvp_protocol::api::{GateListItem, NamedProposal};
use pvp_protocol::{EDITED_HANDLE_DIGEST_LENGTH, MessageId, SHORT_ID_LENGTH, SessionId};

use super::history::status_text;

/// The fewest characters of a digest that a handle may have.
const MIN_DIGEST_CHARS: usize = 4;

/// The most proposals that an error lists.
const MAX_LISTED: usize = 5;

/// A proposal as a person types it: its short id, more of it, its whole id or that of its gate, and
/// perhaps `@` and the beginning of the digest that was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CommandHandle<'a> {
    id: &'a str,
    digest: Option<&'a str>,
}

impl<'a> CommandHandle<'a> {
    pub(super) fn parse(text: &'a str) -> anyhow::Result<Self> {
        let (id, digest) = match text.split_once('@') {
            Some((id, digest)) => (id, Some(digest)),
            None => (text, None),
        };
        let is_id_char = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
        if id.is_empty() || !id.chars().all(is_id_char) {
            bail!("`{text}` is not the id of a command; `pvp gates` and `pvp history` print ids");
        }
        let is_digest = |digest: &str| {
            digest.len() >= MIN_DIGEST_CHARS && digest.bytes().all(|b| b.is_ascii_hexdigit())
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            bail!("after `@` comes the beginning of the digest, as `pvp gates` prints it");
        }
        Ok(Self { id, digest })
    }

    /// The one proposal that it names, in this session or in all that the link opens.
    pub(super) fn find(
        &self,
        api: &ApiClient,
        session: Option<&SessionId>,
    ) -> anyhow::Result<NamedProposal> {
        let mut found = api.find_proposals(self.id, session)?;
        match (found.proposals.len(), found.more) {
            (1, false) => Ok(found.proposals.remove(0)),
            (0, _) => bail!("{}", self.not_found(session)),
            (_, _) => bail!("{}", self.ambiguous(&found.proposals)),
        }
    }

    /// The gate at which the proposal that it names waits, as it may be voted on: it is as the digest
    /// says, and without one it is as it was proposed.
    pub(super) fn find_open_gate(
        &self,
        api: &ApiClient,
        session: Option<&SessionId>,
    ) -> anyhow::Result<GateListItem> {
        let found = self.find(api, session)?;
        let short = found.tool_proposal.short();
        let gate = match api.gate(&found.session, &found.tool_proposal) {
            Ok(details) => details.open,
            // It never waited at a gate.
            Err(ApiError::Refused { .. }) if found.gate.is_none() => None,
            Err(error) => return Err(error.into()),
        };
        let Some(gate) = gate else {
            let state = status_text(found.status);
            bail!("{short} is not waiting for a decision: it is {state}; see `pvp show {short}`");
        };
        self.check_version(&gate)?;
        Ok(gate)
    }

    fn check_version(&self, gate: &GateListItem) -> anyhow::Result<()> {
        let (open, short) = (&gate.open, gate.open.request.action_ref.short());
        let digest = open.assessment.digest.to_string();
        let (fits, needed) = match (self.digest, &open.amended_by) {
            (None, by) => (by.is_none(), 0),
            (Some(shown), by) => {
                let fits = digest.starts_with(&shown.to_ascii_lowercase());
                (fits, by.as_ref().map_or(0, |_| EDITED_HANDLE_DIGEST_LENGTH))
            }
        };
        if fits && self.digest.map_or(0, str::len) >= needed {
            return Ok(());
        }
        match &open.amended_by {
            Some(by) => bail!(
                "{short} was edited by {by}; look at it again with `pvp show {short}`, then use its \
                 new handle, {}",
                open.handle()
            ),
            None => {
                bail!("{short} does not have this digest; look at it again with `pvp show {short}`")
            }
        }
    }

    fn not_found(&self, session: Option<&SessionId>) -> String {
        let place = session.map_or_else(
            || "in any session that your link opens".to_owned(),
            |session| format!("in session {session}"),
        );
        let hint = match self.id.len() < SHORT_ID_LENGTH {
            true => format!(" (an id has at least {SHORT_ID_LENGTH} characters)"),
            false => String::new(),
        };
        format!(
            "there is no command `{}` {place}{hint}; `pvp gates` lists what is waiting, \
             `pvp history` all commands",
            self.id
        )
    }

    /// Says which proposals the name could mean, each by something that names only that one.
    fn ambiguous(&self, found: &[NamedProposal]) -> String {
        let listed = found.iter().take(MAX_LISTED).map(|one| {
            let status = status_text(one.status);
            format!("\n  {}  ({status})", distinct_name(one, found))
        });
        let more = match found.len() > MAX_LISTED {
            true => "\n  …",
            false => "",
        };
        let listed: String = listed.collect();
        format!(
            "`{}` could mean several commands; use one of these:{listed}{more}",
            self.id
        )
    }
}

/// The shortest name of a proposal that none of the others has.
fn distinct_name(one: &NamedProposal, all: &[NamedProposal]) -> String {
    let id = one.tool_proposal.as_str();
    let is_other = |it: &&NamedProposal| {
        (&it.session, &it.tool_proposal) != (&one.session, &one.tool_proposal)
    };
    let names_only_this = |text: &str| {
        let mut others = all.iter().filter(is_other);
        !others.any(|other| names(other, text))
    };
    // An id is ASCII, so every position is the start of a character.
    let ends = (SHORT_ID_LENGTH + 1..=id.len()).map(|length| &id[id.len() - length..]);
    let mut ends = ends.filter(|end| end.starts_with(|c: char| c.is_ascii_alphanumeric()));
    if let Some(end) = ends.find(|end| names_only_this(end)) {
        return end.to_owned();
    }
    let name = match &one.gate {
        // The server chooses the ids of gates.
        Some(gate) if names_only_this(gate.as_str()) => gate.as_str(),
        Some(_) | None => id,
    };
    format!("{name} --session {}", one.session)
}

fn names(proposal: &NamedProposal, text: &str) -> bool {
    let gate = proposal.gate.as_ref();
    proposal.tool_proposal.is_named_by(text) || gate.is_some_and(|it| it.is_named_by(text))
}

/// What lists show for each of these proposals: the short id, or the whole id where two have the
/// same short one.
pub(super) fn list_names<'a>(ids: impl Iterator<Item = &'a MessageId> + Clone) -> Vec<&'a str> {
    let shared = |id: &MessageId| {
        let same = |it: &&MessageId| it.short() == id.short();
        ids.clone().filter(same).take(2).count() > 1
    };
    ids.clone()
        .map(|id| match shared(id) {
            true => id.as_str(),
            false => id.short(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use pvp_protocol::api::CommandStatus;

    use super::*;

    fn proposal(session: &str, id: &str, gate: Option<&str>) -> NamedProposal {
        NamedProposal {
            session: SessionId::parse(session).unwrap(),
            tool_proposal: MessageId::parse(id).unwrap(),
            gate: gate.map(|gate| MessageId::parse(gate).unwrap()),
            seq: 1,
            status: CommandStatus::Waiting,
        }
    }

    #[test]
    fn a_handle_is_an_id_and_perhaps_a_digest() {
        let parse = |text: &'static str| CommandHandle::parse(text).ok();
        let handle = |id, digest| Some(CommandHandle { id, digest });
        assert_eq!(parse("4a3f77@0a1B2c"), handle("4a3f77", Some("0a1B2c")));
        assert_eq!(parse("-7000-4a3f77"), handle("-7000-4a3f77", None));
        assert_eq!(parse("p1"), handle("p1", None));
        for bad in [
            "",
            "@0a1b2c",
            "4a3f77@",
            "4a3f77@xyz",
            "4a3f77@0a",
            "a b",
            "é4a3f77",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_offered_names_only_one() {
        let found = [
            proposal("one", "0190-aa-4a3f77", Some("gate-1")),
            proposal("one", "0190-ba-4a3f77", Some("gate-2")),
            proposal("one", "4a3f77", Some("gate-3")),
            proposal("two", "0190-ba-4a3f77", None),
        ];
        let offered: Vec<_> = found.iter().map(|one| distinct_name(one, &found)).collect();
        assert_eq!(
            offered,
            [
                "aa-4a3f77",
                "gate-2 --session one",
                "gate-3 --session one",
                "0190-ba-4a3f77 --session two"
            ]
        );
    }

    #[test]
    fn a_list_shows_whole_ids_where_short_ones_are_the_same() {
        let ids = ["a-4a3f77", "b-4a3f77", "c-123456"].map(|id| MessageId::parse(id).unwrap());
        assert_eq!(list_names(ids.iter()), ["a-4a3f77", "b-4a3f77", "123456"]);
    }
}
