//! Ends what uses a token when it is revoked or expires.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pvp_protocol::{ParticipantId, ParticipantKind, Refusal, SessionId, Timestamp};

use super::SessionDirectory;
use crate::live_tokens::{self, EndedToken};
use crate::store::{StoreError, TokenRow};
use crate::task::SessionCommand;
use crate::token::{self, TokenClaims};

/// How often the store is asked for tokens that have expired, or that another process revoked.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// How many tokens one participant may make for others or as links of their own in a day, because
/// each is looked at when others end.
const MAX_INVITATIONS_PER_DAY: usize = 500;

/// How many devices may be added with one link in a day, also if they were removed since.
const MAX_DEVICES_PER_DAY: usize = 100;

impl SessionDirectory {
    /// Revokes a token and those that its holder made with it, and ends whatever uses them, or
    /// revokes a join code; false if there is none, or it was revoked before.
    pub(crate) async fn revoke_token(&self, id: &str) -> Result<bool, StoreError> {
        let now = pvp_clock::now();
        if !self.store.revoke_token(id, now).await? {
            return self.store.revoke_join_code(id, now).await;
        }
        let mut revoked = Vec::new();
        for id in token::with_descendants(&self.store.list_tokens().await?, id) {
            self.store.revoke_token(&id, now).await?;
            revoked.extend(self.store.find_token(&id).await?);
        }
        self.end_tokens(&revoked, now).await?;
        Ok(true)
    }

    /// Ends the tokens that expire or are revoked by another process, as long as the server runs.
    pub(crate) async fn end_expired_tokens(self: Arc<Self>) {
        let mut handled = None;
        let mut interval = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            interval.tick().await;
            if let Err(error) = self.sweep_tokens(&mut handled).await {
                tracing::warn!(%error, "could not look up tokens");
            }
        }
    }

    /// Ends the tokens that have ended and are not among those that were handled before. At the
    /// start nobody uses a token, and each session asks for itself when it is loaded.
    async fn sweep_tokens(&self, handled: &mut Option<BTreeSet<String>>) -> Result<(), StoreError> {
        let now = pvp_clock::now();
        if let Some(handled) = handled
            && self.store.count_ended_tokens(now).await? == handled.len() as u64
        {
            // A token that has ended stays, and stays ended.
            return Ok(());
        }
        let ended = self.store.ended_tokens(now).await?;
        if let Some(handled) = handled {
            let mut new = Vec::new();
            for id in ended.difference(handled) {
                new.extend(self.store.find_token(id).await?);
            }
            if !new.is_empty() {
                self.end_tokens(&new, now).await?;
            }
        }
        *handled = Some(ended);
        Ok(())
    }

    async fn end_tokens(&self, ended: &[TokenRow], now: Timestamp) -> Result<(), StoreError> {
        for row in ended {
            // First, so that nothing that is decided after the sessions were told can use it.
            if let Some((_, end)) = row.end_before(now) {
                self.live_tokens.end(&row.id, end);
            }
        }
        let all = self.store.list_tokens().await?;
        let all = live_tokens::with_claims(&all);
        let mut by_participant: HashMap<&ParticipantId, Vec<_>> = HashMap::new();
        for (row, claims) in &all {
            let theirs = by_participant.entry(&claims.participant).or_default();
            theirs.push((*row, claims));
        }
        let mut told = BTreeSet::new();
        for row in ended {
            let (Ok(claims), Some((_, end))) = (TokenClaims::from_row(row), row.end_before(now))
            else {
                continue;
            };
            // What is left is the same for all tokens of one participant that end together.
            let is_person = claims.kind == ParticipantKind::Human;
            let same = (
                claims.participant.clone(),
                claims.session.clone(),
                is_person,
            );
            if !told.insert(same) {
                continue;
            }
            let theirs = by_participant
                .get(&claims.participant)
                .map_or(&[][..], Vec::as_slice);
            let loaded = self.sessions.iter().map(|entry| entry.key().clone());
            let sessions: Vec<SessionId> = match &claims.session {
                Some(session) => vec![session.clone()],
                None => loaded.collect(),
            };
            for session in sessions {
                let ended = EndedToken {
                    claims: claims.clone(),
                    remaining: live_tokens::remaining_ceiling(
                        theirs.iter().copied(),
                        &claims,
                        &session,
                        now,
                    ),
                    end,
                };
                self.send_if_loaded(&session, SessionCommand::TokenEnded(Box::new(ended)))
                    .await;
            }
        }
        self.notify_voters_changed();
        Ok(())
    }

    /// Whether somebody has, or had, a token as this participant.
    pub(crate) async fn is_known_participant(
        &self,
        participant: &ParticipantId,
    ) -> Result<bool, Refusal> {
        let tokens = self.store.list_tokens().await?;
        let tokens = live_tokens::with_claims(&tokens);
        Ok(tokens
            .iter()
            .any(|(_, claims)| claims.participant == *participant))
    }

    /// Refuses somebody who has made very many tokens of late. Devices are not among them: whoever
    /// has stolen a link that may only watch could use up what its person needs to invite others.
    pub(crate) async fn check_invitations_by(
        &self,
        inviter: &ParticipantId,
    ) -> Result<(), Refusal> {
        let made = self.count_made_in_a_day(|claims| {
            let for_themselves = claims.made_with.is_some() && claims.participant == *inviter;
            let is_theirs = for_themselves || claims.invited_by.as_ref() == Some(inviter);
            claims.device.is_none() && is_theirs
        });
        let what = "invitations by one person in a day";
        check_below(made.await?, MAX_INVITATIONS_PER_DAY, what)
    }

    /// Refuses a link with which very many devices were added of late.
    pub(crate) async fn check_devices_made_with(&self, link: &str) -> Result<(), Refusal> {
        let made = self.count_made_in_a_day(|claims| {
            claims.device.is_some() && claims.made_with.as_deref() == Some(link)
        });
        let what = "devices with one link in a day";
        check_below(made.await?, MAX_DEVICES_PER_DAY, what)
    }

    /// How many tokens with such claims were made in the last day.
    async fn count_made_in_a_day(
        &self,
        is_counted: impl Fn(&TokenClaims) -> bool,
    ) -> Result<usize, Refusal> {
        let since = pvp_clock::now().minus_seconds(86_400);
        let mut tokens = self.store.list_tokens().await?;
        tokens.retain(|row| row.created_at > since);
        let made = live_tokens::with_claims(&tokens);
        Ok(made.iter().filter(|(_, claims)| is_counted(claims)).count())
    }

    /// The tokens that ended while nobody looked after a session: those of participants whose
    /// approvals, with the time of their earliest, are still counted.
    pub(crate) async fn tokens_ended_since(
        &self,
        session: &SessionId,
        voters: &HashMap<ParticipantId, Timestamp>,
    ) -> Result<Vec<EndedToken>, StoreError> {
        if voters.is_empty() || self.config.open {
            return Ok(Vec::new());
        }
        let all = self.store.list_tokens().await?;
        let all = live_tokens::with_claims(&all);
        Ok(live_tokens::ended_since(
            &all,
            voters,
            session,
            pvp_clock::now(),
        ))
    }
}

fn check_below(count: usize, limit: usize, what: &'static str) -> Result<(), Refusal> {
    if count < limit {
        return Ok(());
    }
    let limit = limit as u64;
    Err(Refusal::TooMany { what, limit })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pvp_policy::Policy;
    use pvp_protocol::{ParticipantId, ParticipantKind, Role};

    use super::{MAX_DEVICES_PER_DAY, MAX_INVITATIONS_PER_DAY, SessionDirectory, token};
    use crate::config::ServerConfig;
    use crate::store::Store;
    use crate::store::memory::MemoryStore;
    use crate::token::TokenClaims;

    struct TokenFixture {
        store: Arc<MemoryStore>,
        directory: Arc<SessionDirectory>,
    }

    impl TokenFixture {
        async fn new() -> Self {
            let store = Arc::new(MemoryStore::default());
            let (config, policy) = (ServerConfig::default(), Policy::built_in());
            let directory = SessionDirectory::new(store.clone(), config, policy);
            let directory = directory.await.unwrap();
            Self { store, directory }
        }

        /// Stores a token that was made so many days ago; returns its id.
        async fn store(&self, claims: &TokenClaims, days: u64) -> String {
            let made_at = pvp_clock::now().minus_seconds(days * 86_400);
            let (row, _) = token::create_token(claims, made_at, None);
            let id = row.id.clone();
            self.store.insert_token(row).await.unwrap();
            id
        }
    }

    /// What the link of somebody says whom this participant has invited.
    fn invited_by(by: &ParticipantId) -> TokenClaims {
        TokenClaims {
            participant: token::new_participant_id("puppet"),
            name: "puppet".to_owned(),
            kind: ParticipantKind::Human,
            roles: [Role::Observer].into(),
            capabilities: Default::default(),
            session: None,
            invited_by: Some(by.clone()),
            invited_at: None,
            made_with: None,
            device: None,
        }
    }

    #[tokio::test]
    async fn one_person_makes_only_so_many_tokens_in_a_day() {
        let fixture = TokenFixture::new().await;
        let directory = &fixture.directory;
        let mallory = ParticipantId::parse("mallory").unwrap();
        let bob = ParticipantId::parse("bob").unwrap();
        for _ in 0..MAX_INVITATIONS_PER_DAY - 1 {
            fixture.store(&invited_by(&mallory), 0).await;
        }
        fixture.store(&invited_by(&mallory), 2).await;
        fixture.store(&invited_by(&bob), 0).await;
        assert!(directory.check_invitations_by(&mallory).await.is_ok());
        fixture.store(&invited_by(&mallory), 0).await;
        let refused = directory.check_invitations_by(&mallory).await.unwrap_err();
        assert!(refused.to_string().contains("in a day"), "{refused}");
        assert!(directory.check_invitations_by(&bob).await.is_ok());
    }

    #[tokio::test]
    async fn the_devices_of_one_link_use_up_neither_invitations_nor_the_devices_of_another() {
        let fixture = TokenFixture::new().await;
        let directory = &fixture.directory;
        let ann = ParticipantId::parse("ann").unwrap();
        let link = invited_by(&ann);
        let (stolen, other) = (fixture.store(&link, 0).await, fixture.store(&link, 0).await);
        let device = TokenClaims {
            made_with: Some(stolen.clone()),
            device: Some("phone".to_owned()),
            ..link.clone()
        };
        for _ in 0..MAX_DEVICES_PER_DAY - 1 {
            fixture.store(&device, 0).await;
        }
        fixture.store(&device, 2).await;
        assert!(directory.check_devices_made_with(&stolen).await.is_ok());
        // Also those that were removed count, or adding and removing would have no end.
        let last = fixture.store(&device, 0).await;
        assert!(directory.revoke_token(&last).await.unwrap());
        let refused = directory.check_devices_made_with(&stolen).await;
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains("devices with one link in a day"),
            "{refused}"
        );
        assert!(directory.check_devices_made_with(&other).await.is_ok());

        for _ in 0..MAX_INVITATIONS_PER_DAY {
            fixture.store(&device, 0).await;
        }
        let person = &link.participant;
        assert!(directory.check_invitations_by(person).await.is_ok());
        assert!(directory.check_invitations_by(&ann).await.is_ok());
    }
}
