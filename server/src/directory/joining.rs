//! Makes join codes and exchanges them for tokens, and lists both.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use pvp_protocol::api::{
    CreatedJoinCode, Invitation, JoinCodeRequest, RedeemCodeRequest, TokenList, TokenListItem,
};
use pvp_protocol::{JoinCode, Refusal, SessionId};

use super::SessionDirectory;
use crate::invite::{self, Inviter};
use crate::join::{self, JoinCodeTerms};
use crate::store::{JoinCodeRow, StoreError};
use crate::token;

/// How often it is looked whether uses of tokens are to be written.
const USES_CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl SessionDirectory {
    /// Creates a join code.
    pub(crate) async fn create_join_code(
        &self,
        request: JoinCodeRequest,
        inviter: &Inviter<'_>,
    ) -> Result<CreatedJoinCode, Refusal> {
        let now = pvp_clock::now();
        let (row, created) = join::create_join_code(request, inviter, &self.server_address(), now)?;
        let (limit, forget_before) = (join::outstanding_limit(inviter), join::forget_before(now));
        let stored = self.store.insert_join_code(row, limit, forget_before);
        match stored.await {
            Ok(true) => Ok(created),
            Ok(false) => Err(join::too_many_codes(limit)),
            Err(error) => Err(Refusal::WriteFailed(error.to_string())),
        }
    }

    /// Exchanges a join code for a token of a new participant.
    pub(crate) async fn redeem_join_code(
        &self,
        request: RedeemCodeRequest,
        address: IpAddr,
    ) -> Result<Invitation, Refusal> {
        self.count_failed_joins(address, self.try_redeem(request))
            .await
    }

    /// Slows down whoever tries wrong codes.
    pub(super) async fn count_failed_joins<T>(
        &self,
        address: IpAddr,
        redeeming: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let now = pvp_clock::now();
        let redeemed = redeeming.await;
        // A good code is accepted from any address: many people share one, behind a router or a
        // proxy, and a guess is never a good code.
        if let Err(Refusal::Unauthorized(_) | Refusal::Malformed(_)) = &redeemed {
            self.failed_joins.check(address, now)?;
            self.failed_joins.record(address, now);
        }
        redeemed
    }

    async fn try_redeem(&self, request: RedeemCodeRequest) -> Result<Invitation, Refusal> {
        let row = self.find_join_code(&request.code).await?;
        let now = pvp_clock::now();
        if let Some(problem) = join::problem_of(&row, now) {
            return Err(problem);
        }
        let terms = JoinCodeTerms::from_row(&row)?;
        self.check_maker(&terms).await?;
        let inviter = Inviter::JoinCode(&terms, row.created_at);
        let invite = terms.invite_request(request.name);
        let (token, invitation) =
            invite::create_invitation(invite, &inviter, &self.server_address(), now)?;
        let token_id = token.id.clone();
        let redeemed = self.store.redeem_join_code(&row.id, token, now).await;
        match redeemed.map_err(|error| Refusal::WriteFailed(error.to_string()))? {
            true => {
                let participant = &invitation.participant;
                tracing::info!(%participant, token = token_id, code = row.id, "somebody joined with a code");
                Ok(invitation)
            }
            // Somebody else was faster.
            false => {
                let row = self.find_join_code(&request.code).await?;
                Err(join::problem_of(&row, now).unwrap_or_else(join::unknown_code))
            }
        }
    }

    async fn find_join_code(&self, text: &str) -> Result<JoinCodeRow, Refusal> {
        let code = JoinCode::parse(text).map_err(|error| Refusal::Malformed(error.to_string()))?;
        let (id, hash) = join::id_and_hash(&code);
        let row = self.store.find_join_code(&id).await?;
        let row = row.filter(|row| join::matches(row, &hash));
        row.ok_or_else(join::unknown_code)
    }

    /// Refuses a code whose maker's token has ended since.
    async fn check_maker(&self, terms: &JoinCodeTerms) -> Result<(), Refusal> {
        let Some(token_id) = &terms.made_with else {
            return Ok(());
        };
        match token::recheck(self.store.as_ref(), token_id, pvp_clock::now()).await {
            Ok(()) => Ok(()),
            Err(token::TokenError::Store(error)) => Err(error.into()),
            Err(
                token::TokenError::Unknown
                | token::TokenError::Expired
                | token::TokenError::Revoked,
            ) => Err(Refusal::Unauthorized(
                "whoever made this join code may no longer invite people; ask for another"
                    .to_owned(),
            )),
        }
    }

    /// The tokens, and the codes that can still be used; only those of one session if it is given.
    pub(crate) async fn list_tokens(
        &self,
        session: Option<&SessionId>,
    ) -> Result<TokenList, StoreError> {
        let now = pvp_clock::now();
        let is_visible = |bound: Option<&SessionId>| session.is_none() || bound == session;
        let mut tokens: Vec<TokenListItem> = Vec::new();
        for row in self.store.list_tokens().await? {
            let mut item = token::list_item(&row, now)?;
            item.last_used = item.last_used.max(self.token_uses.find(&row.id));
            tokens.push(item);
        }
        tokens.retain(|token| is_visible(token.session.as_ref()));
        let mut codes = Vec::new();
        for row in self.store.outstanding_join_codes(now).await? {
            codes.push(join::list_item(&row)?);
        }
        codes.retain(|code| is_visible(code.session.as_ref()));
        Ok(TokenList { tokens, codes })
    }

    /// Writes when tokens were last used, each once in a while, and when the server stops.
    pub(crate) async fn write_token_uses(self: Arc<Self>) {
        let mut shutdown = self.shutdown_signal();
        loop {
            let stopped = tokio::select! {
                _ = shutdown.wait_for(|stopping| *stopping) => true,
                () = tokio::time::sleep(USES_CHECK_INTERVAL) => false,
            };
            let uses = match stopped {
                true => self.token_uses.unwritten(),
                false => self.token_uses.due(pvp_clock::now()),
            };
            if !uses.is_empty() {
                match self.store.record_token_uses(uses.clone()).await {
                    Ok(()) => self.token_uses.record_written(&uses),
                    // They are tried again, and nobody waits for them.
                    Err(error) => {
                        tracing::debug!(%error, "could not write when tokens were last used");
                    }
                }
            }
            if stopped {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pvp_policy::Policy;
    use pvp_protocol::Role;

    use super::*;
    use crate::config::ServerConfig;
    use crate::store::Store;
    use crate::store::memory::MemoryStore;

    async fn directory() -> (Arc<SessionDirectory>, Arc<MemoryStore>) {
        let store = Arc::new(MemoryStore::default());
        let (config, policy) = (ServerConfig::default(), Policy::built_in());
        let directory = SessionDirectory::new(store.clone(), config, policy);
        (directory.await.unwrap(), store)
    }

    fn request() -> JoinCodeRequest {
        JoinCodeRequest {
            roles: [Role::Approver].into(),
            session: None,
            code_seconds: None,
            expires_seconds: None,
        }
    }

    fn join_as(code: &str, name: &str) -> RedeemCodeRequest {
        RedeemCodeRequest {
            code: code.to_owned(),
            name: name.to_owned(),
        }
    }

    #[tokio::test]
    async fn of_many_who_use_a_code_at_once_one_gets_a_token() {
        let (directory, store) = directory().await;
        let created = directory.create_join_code(request(), &Inviter::Operator);
        let code = created.await.unwrap().code;
        let attempts = (0..20_u8).map(|number| {
            let (directory, code) = (directory.clone(), code.clone());
            let address = IpAddr::from([192, 0, 2, number]);
            tokio::spawn(async move {
                let request = join_as(&code, "ann");
                directory.redeem_join_code(request, address).await.is_ok()
            })
        });
        let mut succeeded = 0;
        for attempt in attempts.collect::<Vec<_>>() {
            succeeded += u32::from(attempt.await.unwrap());
        }
        assert_eq!(succeeded, 1);
        assert_eq!(store.count_tokens().await.unwrap(), 1);
    }

    #[tokio::test]
    async fn guesses_are_limited_and_keep_nobody_with_a_code_out() {
        let (directory, _) = directory().await;
        let created = directory.create_join_code(request(), &Inviter::Operator);
        let code = created.await.unwrap().code;
        let [ann, eve] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse().unwrap());
        let redeem = async |request, address| directory.redeem_join_code(request, address).await;
        assert!(redeem(join_as(&code, "a\nb"), ann).await.is_err());
        let guess = "00000-00000-00000-00000";
        loop {
            let refused = redeem(join_as(guess, "eve"), eve).await.unwrap_err();
            if matches!(refused, Refusal::TooMany { .. }) {
                break;
            }
        }
        // Somebody who shares the address of whoever guesses.
        let joined = redeem(join_as(&code, "ann"), eve).await.unwrap();
        assert!(joined.link.contains("/#token=pvp_"), "{}", joined.link);
    }

    #[tokio::test]
    async fn only_so_many_codes_wait_to_be_used() {
        let (directory, _) = directory().await;
        let create = async || {
            let created = directory.create_join_code(request(), &Inviter::Operator);
            created.await
        };
        for _ in 0..join::outstanding_limit(&Inviter::Operator) {
            create().await.unwrap();
        }
        let refused = create().await.unwrap_err();
        assert!(matches!(refused, Refusal::TooMany { .. }), "{refused}");
        let first = directory.list_tokens(None).await.unwrap().codes[0]
            .id
            .clone();
        assert!(directory.revoke_token(&first).await.unwrap());
        assert!(create().await.is_ok());
    }
}
