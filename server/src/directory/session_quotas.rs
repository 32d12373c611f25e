//! Limits how many sessions one token makes: in an hour, open at a time, and in all.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pvp_protocol::Refusal;
use tokio::time::Instant;

use super::SessionDirectory;

/// Above this many tokens, those that have not made a session for an hour are forgotten.
const MAX_REMEMBERED: usize = 1024;

/// What each token has made recently, by token id.
#[derive(Default)]
pub(super) struct SessionQuotas(Mutex<HashMap<String, RecentSessions>>);

/// The sessions that one token makes.
struct RecentSessions {
    /// How many more it may make at once; refilled over an hour.
    left: f64,
    /// When that was last refilled.
    filled_at: Instant,
    /// How many it is making at the moment.
    being_made: u64,
}

impl RecentSessions {
    fn refill(&mut self, per_hour: u64) {
        let now = Instant::now();
        let hours = (now - self.filled_at).as_secs_f64() / 3600.0;
        let per_hour = per_hour as f64;
        self.left = (self.left + hours * per_hour).min(per_hour);
        self.filled_at = now;
    }
}

/// A session that a token is making. Unless it is kept, it costs the token nothing.
pub(crate) struct SessionBeingMade {
    directory: Arc<SessionDirectory>,
    token: String,
    kept: bool,
}

impl SessionBeingMade {
    /// The session was made.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }

    fn refuse(&self, quota: &'static str, limit: u64, advice: &'static str) -> Refusal {
        tracing::info!(token = self.token, quota, "refused to make a session");
        Refusal::TokenQuota {
            quota,
            limit,
            advice,
        }
    }
}

impl Drop for SessionBeingMade {
    fn drop(&mut self) {
        let mut quotas = self.directory.session_quotas.0.lock();
        if let Some(recent) = quotas.get_mut(&self.token) {
            recent.being_made -= 1;
            if !self.kept {
                recent.left += 1.0;
            }
        }
    }
}

impl SessionDirectory {
    /// Counts a session that a token is about to make against its quotas.
    pub(crate) async fn begin_making_session(
        self: &Arc<Self>,
        token: &str,
    ) -> Result<SessionBeingMade, Refusal> {
        let config = &self.config;
        let (making, being_made) = self.charge_session(token)?;
        // One that was just written may count twice, so that near the limit one too many is refused
        // rather than one too many made.
        let made = self.store.sessions_made_by(token).await?;
        let limit = config.sessions_per_token;
        if made.stored + being_made > limit {
            let advice = "have an admin delete sessions that you have made";
            return Err(making.refuse("sessions_per_token", limit, advice));
        }
        let limit = config.open_sessions_per_token;
        if made.open + being_made > limit {
            let advice = "end a session that you have made";
            return Err(making.refuse("open_sessions_per_token", limit, advice));
        }
        Ok(making)
    }

    /// Takes one from what a token may make in an hour; says how many it is making.
    fn charge_session(self: &Arc<Self>, token: &str) -> Result<(SessionBeingMade, u64), Refusal> {
        let limit = self.config.sessions_per_hour;
        let mut quotas = self.session_quotas.0.lock();
        if quotas.len() >= MAX_REMEMBERED {
            quotas.retain(|_, recent| {
                recent.being_made > 0 || recent.filled_at.elapsed().as_secs() < 3600
            });
        }
        let recent = quotas
            .entry(token.to_owned())
            .or_insert_with(|| RecentSessions {
                left: f64::INFINITY,
                filled_at: Instant::now(),
                being_made: 0,
            });
        recent.refill(limit);
        if recent.left < 1.0 {
            return Err(Refusal::TokenQuota {
                quota: "sessions_per_hour",
                limit,
                advice: "try again later",
            });
        }
        recent.left -= 1.0;
        recent.being_made += 1;
        let being_made = recent.being_made;
        drop(quotas);
        let making = SessionBeingMade {
            directory: self.clone(),
            token: token.to_owned(),
            kept: false,
        };
        Ok((making, being_made))
    }
}
