//! Who talks on a connection or in a request, and what they may do at most.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pvp_protocol::payload::SessionJoin;
use pvp_protocol::{ParticipantId, Refusal, Role, Sender, SessionId, VERSION};
use pvp_session::{Ceiling, Identity};

use super::{
    authenticate, check_live, check_may_create, check_session, login_required, recheck,
    token_refusal,
};
use crate::directory::SessionDirectory;
use crate::live_tokens::LiveToken;
use crate::token::{Login, TokenError};

/// For how long a token counts as valid after it was looked up; a revoked one works no longer.
const RECHECK_AFTER: Duration = Duration::from_secs(1);

/// Who talks: the holder of a token or, without one, whoever they first claimed to be.
///
/// Once it is known who it is, it is nobody else.
pub(crate) struct Principal {
    login: Option<Login>,
    /// When the token was last looked up.
    checked_at: Instant,
    /// Without a token, the participant that the first message claimed to be from.
    claimed: Option<ParticipantId>,
    /// The most they may do here; `None` without a token.
    ceiling: Option<Arc<Ceiling>>,
}

/// Who sends a message, and with what authority.
#[derive(Clone)]
pub(crate) struct Speaker {
    pub(crate) participant: ParticipantId,
    /// The most they may do here; `None` without a token.
    pub(crate) ceiling: Option<Arc<Ceiling>>,
    /// The token that they logged in with.
    pub(crate) token: Option<Arc<LiveToken>>,
}

impl Principal {
    pub(crate) fn new(login: Option<Login>) -> Self {
        let ceiling = login.as_ref().map(|login| Arc::new(login.claims.ceiling()));
        Self {
            login,
            checked_at: Instant::now(),
            claimed: None,
            ceiling,
        }
    }

    /// What they say as this participant.
    pub(crate) fn speaker(&self, participant: ParticipantId) -> Speaker {
        Speaker {
            participant,
            ceiling: self.ceiling.clone(),
            token: self.login.as_ref().map(|login| login.live.clone()),
        }
    }

    /// The refusal of the token, if it has ended since the login.
    pub(crate) fn token_ended(&self) -> Option<Refusal> {
        let login = self.login.as_ref()?;
        check_live(login).err()
    }

    /// The verified token; `None` without one.
    pub(crate) fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// Who it is; `None` if there is no token and nothing was claimed.
    pub(crate) fn participant(&self) -> Option<&ParticipantId> {
        let holder = self.login.as_ref().map(|login| &login.claims.participant);
        holder.or(self.claimed.as_ref())
    }

    /// Checks that the token is still valid.
    pub(crate) async fn recheck(
        &mut self,
        directory: &Arc<SessionDirectory>,
    ) -> Result<(), Refusal> {
        let Some(login) = &self.login else {
            return Ok(());
        };
        if login.expires_at.is_some_and(|at| at <= pvp_clock::now()) {
            return Err(token_refusal(TokenError::Expired));
        }
        check_live(login)?;
        if self.checked_at.elapsed() < RECHECK_AFTER {
            return Ok(());
        }
        self.checked_at = Instant::now();
        recheck(directory, login).await
    }

    /// Checks that the token is valid right now, for a message with consequences.
    pub(crate) async fn recheck_now(
        &mut self,
        directory: &Arc<SessionDirectory>,
    ) -> Result<(), Refusal> {
        let Some(login) = &self.login else {
            return Ok(());
        };
        self.checked_at = Instant::now();
        recheck(directory, login).await
    }

    /// The participant who talks, if `sender` names them.
    pub(crate) fn check_sender(&mut self, sender: &Sender) -> Result<ParticipantId, Refusal> {
        let Sender::Participant(named) = sender else {
            return Err(Refusal::Unauthorized(
                "`system` is reserved for the server".to_owned(),
            ));
        };
        match self.participant() {
            Some(actual) => check_same("sender", named, actual)?,
            None => self.claimed = Some(named.clone()),
        }
        Ok(named.clone())
    }

    /// Checks that they may create sessions; on an open server anyone may.
    pub(crate) fn check_may_create(&self, directory: &SessionDirectory) -> Result<(), Refusal> {
        match &self.login {
            Some(login) => check_may_create(login),
            None if directory.config.open => Ok(()),
            None => Err(login_required()),
        }
    }

    /// The identity to join a session with, and the most it may have there. A token in the message
    /// is removed and counts as login.
    pub(crate) async fn authorize_join(
        &mut self,
        directory: &Arc<SessionDirectory>,
        session: &SessionId,
        sender: &Sender,
        join: &mut SessionJoin,
    ) -> Result<Identity, Refusal> {
        if let Some(token) = join.token.take() {
            self.log_in(authenticate(directory, token).await?)?;
        }
        if self.login.is_none() && !directory.config.open {
            return Err(login_required());
        }
        let participant = self.check_sender(sender)?;
        check_session(self.login.as_ref(), session)?;
        if !join.supported_versions.contains(&u32::from(VERSION)) {
            let problem = format!("`supported_versions` must include {VERSION}");
            return Err(Refusal::Malformed(problem));
        }
        check_same("participant.id", &join.participant.id, &participant)?;
        let identity = match &self.login {
            Some(login) => login.identity(),
            None => anonymous_identity(participant, join),
        };
        self.ceiling = identity.ceiling(&join.participant.roles).map(Arc::new);
        Ok(identity)
    }

    fn log_in(&mut self, login: Login) -> Result<(), Refusal> {
        if let Some(actual) = self.participant() {
            check_same("token", &login.claims.participant, actual)?;
        }
        self.ceiling = Some(Arc::new(login.claims.ceiling()));
        self.login = Some(login);
        self.checked_at = Instant::now();
        Ok(())
    }
}

fn check_same(
    field: &'static str,
    named: &ParticipantId,
    actual: &ParticipantId,
) -> Result<(), Refusal> {
    if named == actual {
        return Ok(());
    }
    Err(Refusal::IdentityMismatch {
        field,
        claimed: named.to_string(),
        actual: actual.clone(),
    })
}

/// The identity of a participant without a token: every role, and the capabilities they claim.
fn anonymous_identity(participant: ParticipantId, join: &SessionJoin) -> Identity {
    let claimed: BTreeSet<_> = join
        .participant
        .capabilities
        .iter()
        .flatten()
        .copied()
        .collect();
    Identity {
        participant,
        name: None,
        kind: join.participant.kind,
        roles: Role::ALL.iter().copied().collect(),
        capabilities: claimed,
        invited_by: None,
    }
}
