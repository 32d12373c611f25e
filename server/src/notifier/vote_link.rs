//! Vote links: secrets that vote on one version of one command, for one person, and do nothing else.
//!
//! A link looks like a token, so that whatever masks tokens masks it too, but it is none: it is found
//! only here, and nothing else takes it.

use std::sync::Arc;

use pvp_protocol::{Digest, MessageId, ParticipantId, Refusal, SessionId, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use super::recipient::{ChannelState, PersonalChannel};
use crate::admission;
use crate::directory::SessionDirectory;
use crate::store::VoteLinkRow;
use crate::token::{self, Login, TokenError};

/// How long a link is good at most; gates without a deadline may wait longer.
pub(super) const MAX_LIFE_SECONDS: u64 = 7 * 86_400;

/// What a link is bound to, beside its gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct VoteLinkTerms {
    /// The version of the command.
    digest: Digest,
    /// Who votes.
    participant: ParticipantId,
    /// The token whose right to vote it is.
    token: String,
    /// The channel that it was sent over.
    #[serde(default)]
    channel: String,
}

/// A vote link that is good at the moment.
pub(crate) struct VoteLink {
    pub(crate) session: SessionId,
    pub(crate) gate: MessageId,
    /// The version of the command that it votes on.
    pub(crate) digest: Digest,
    /// The person who votes, as if with their own token.
    pub(crate) login: Login,
    pub(crate) session_name: Option<String>,
}

/// Makes a link: the row to store, which has only its hash, and the only copy of its secret.
pub(super) fn create(
    session: &SessionId,
    gate: &MessageId,
    digest: Digest,
    channel: &PersonalChannel,
    now: Timestamp,
) -> (VoteLinkRow, String) {
    let terms = VoteLinkTerms {
        digest,
        participant: channel.claims.participant.clone(),
        token: channel.token.clone(),
        channel: channel.id.clone(),
    };
    let (id, hash, text) = token::create_secret();
    let row = VoteLinkRow {
        id,
        hash,
        session: session.clone(),
        gate: gate.clone(),
        data: serde_json::to_string(&terms).expect("the terms are plain data"),
        created_at: now,
    };
    (row, text)
}

/// Whether messages over this channel have vote links: the operator allows it, the person wants it,
/// and only they read what is sent there.
pub(super) fn is_wanted(directory: &SessionDirectory, channel: &PersonalChannel) -> bool {
    directory.config.notifications.vote_links
        && channel.preferences.vote_links
        && channel.target.is_personal()
}

/// The link with this secret, if its command still waits as it was and its person may still vote.
pub(crate) async fn find(
    directory: &Arc<SessionDirectory>,
    text: &str,
) -> Result<VoteLink, Refusal> {
    let now = pvp_clock::now();
    let (row, terms) = find_row(directory, text, now).await?;
    check_channel(directory, &terms).await?;
    let (store, live_tokens) = (directory.store.as_ref(), &directory.live_tokens);
    let login = token::login_with(store, live_tokens, &terms.token, now).await;
    let login = login.map_err(|error| match error {
        TokenError::Unknown | TokenError::Expired | TokenError::Revoked => dead_link(),
        TokenError::Store(error) => error.into(),
    })?;
    let claims = login.claims.clone();
    if claims.participant != terms.participant || !claims.allows_session(&row.session) {
        return Err(dead_link());
    }
    let (gate, digest) = (row.gate.clone(), terms.digest);
    let session_name = directory.query(&row.session, move |session| {
        let (proposal, gate) = session.open_gate(&gate)?;
        let approvers = session.approvers(gate, &proposal.proposer);
        let is_good = proposal.assessment.digest == digest
            && admission::may_vote(session, gate, &approvers, &claims);
        is_good.then(|| session.name().map(str::to_owned))
    });
    let session_name = session_name
        .await
        .ok_or_else(crate::directory::log_unreadable)?;
    Ok(VoteLink {
        session_name: session_name.ok_or_else(dead_link)?,
        session: row.session,
        gate: row.gate,
        digest,
        login,
    })
}

/// A link is good as long as its channel is, and would still be sent over it.
async fn check_channel(directory: &SessionDirectory, terms: &VoteLinkTerms) -> Result<(), Refusal> {
    let store = directory.store.as_ref();
    let row = store.find_channel(&terms.channel).await?;
    let row = row.ok_or_else(dead_link)?;
    match ChannelState::read(store, &row).await? {
        ChannelState::Usable(channel)
            if channel.token == terms.token && is_wanted(directory, &channel) =>
        {
            Ok(())
        }
        ChannelState::Usable(_) | ChannelState::Off | ChannelState::Ended => Err(dead_link()),
    }
}

async fn find_row(
    directory: &Arc<SessionDirectory>,
    text: &str,
    now: Timestamp,
) -> Result<(VoteLinkRow, VoteLinkTerms), Refusal> {
    let (id, secret) = token::parse_secret(text).ok_or_else(dead_link)?;
    let row = directory.store.find_vote_link(id).await?;
    let row = row.ok_or_else(dead_link)?;
    let hash: [u8; 32] = Sha256::digest(secret).into();
    let is_old = row.created_at.plus_seconds(MAX_LIFE_SECONDS) <= now;
    if !bool::from(hash.ct_eq(&row.hash)) || is_old {
        return Err(dead_link());
    }
    let terms = serde_json::from_str(&row.data);
    let terms = terms.map_err(|error| Refusal::ReadFailed(format!("vote link: {error}")))?;
    Ok((row, terms))
}

/// One refusal for all reasons, so that a guess tells nothing.
fn dead_link() -> Refusal {
    Refusal::Unauthorized(
        "this vote link is not valid: the command was decided or edited, or you may no longer vote on it; open the card with your own link"
            .to_owned(),
    )
}
