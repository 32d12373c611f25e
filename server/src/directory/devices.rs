//! The devices of people: each has a token of its own, which ends with that of the link it came from.

use std::net::IpAddr;
use std::sync::Arc;

use pvp_protocol::api::{
    CreatedDevice, CreatedDeviceCode, DeviceCodeRequest, DeviceList, DeviceListItem,
    RedeemDeviceCodeRequest,
};
use pvp_protocol::{JoinCode, ParticipantKind, Refusal};

use super::SessionDirectory;
use crate::admission;
use crate::invite;
use crate::live_tokens;
use crate::store::{StoreError, TokenRow};
use crate::token::{self, Login, TokenClaims};

/// How many devices one participant may have at a time that were added with the same link.
const MAX_DEVICES: usize = 20;

impl SessionDirectory {
    /// Exchanges the token of a link for one of a device. It allows the same, no more and no longer.
    pub(crate) async fn create_device(
        &self,
        name: String,
        login: &Login,
    ) -> Result<CreatedDevice, Refusal> {
        check_may_have_devices(&login.claims)?;
        invite::check_name(&name)?;
        // The semaphore is never closed.
        let _permit = self.device_permit.acquire().await.ok();
        self.check_devices_made_with(&login.token_id).await?;
        let devices = self.devices_of(login).await?;
        let same_link = devices
            .iter()
            .filter(|(_, _, claims)| claims.made_with.as_ref() == Some(&login.token_id));
        if same_link.count() >= MAX_DEVICES {
            return Err(Refusal::InvalidState(format!(
                "you have {MAX_DEVICES} devices with this link, which is the most; remove one that you no longer use, on the page or with DELETE /api/devices/ID"
            )));
        }
        let claims = TokenClaims {
            invited_at: Some(login.claims.invited_at.unwrap_or(login.created_at)),
            made_with: Some(login.token_id.clone()),
            device: Some(name.clone()),
            ..login.claims.clone()
        };
        let (row, token) = token::create_token(&claims, pvp_clock::now(), login.expires_at);
        let created = CreatedDevice {
            token,
            id: row.id.clone(),
            participant: claims.participant,
            participant_name: claims.name,
            name,
            roles: claims.roles,
            session: claims.session,
            expires: row.expires_at,
        };
        let stored = self.store.insert_token(row).await;
        stored.map_err(|error| Refusal::WriteFailed(error.to_string()))?;
        tracing::info!(participant = %created.participant, token = created.id, "somebody added a device");
        Ok(created)
    }

    /// Makes a link that opens the page on another device of the caller's, once.
    pub(crate) fn create_device_code(
        &self,
        request: DeviceCodeRequest,
        login: &Login,
    ) -> Result<CreatedDeviceCode, Refusal> {
        check_may_have_devices(&login.claims)?;
        let session = request.session.or_else(|| login.claims.session.clone());
        if let Some(session) = &session {
            admission::check_session(Some(login), session)?;
        }
        let (code, expires) = self.device_codes.create(login, pvp_clock::now())?;
        let parameters = match session {
            Some(session) => format!("device={code}&session={session}"),
            None => format!("device={code}"),
        };
        Ok(CreatedDeviceCode {
            link: self.server_address().link(&parameters),
            expires,
        })
    }

    /// Exchanges a device code for the token of a device. The exchange is finished also if nobody
    /// waits for it any more: a code is used up only by a device that it made.
    pub(crate) async fn redeem_device_code(
        self: &Arc<Self>,
        request: RedeemDeviceCodeRequest,
        address: IpAddr,
    ) -> Result<CreatedDevice, Refusal> {
        let directory = self.clone();
        let exchange = tokio::spawn(async move {
            let exchange = directory.try_device_code(request);
            directory.count_failed_joins(address, exchange).await
        });
        // It is never aborted, so that it can only have panicked.
        exchange.await.unwrap_or(Err(Refusal::HandlingFailed))
    }

    async fn try_device_code(
        &self,
        request: RedeemDeviceCodeRequest,
    ) -> Result<CreatedDevice, Refusal> {
        let code = JoinCode::parse(&request.code);
        let code = code.map_err(|error| Refusal::Malformed(error.to_string()))?;
        invite::check_name(&request.name)?;
        let waiting = self.device_codes.take(&code, pvp_clock::now())?;
        let token_id = &waiting.login.token_id;
        let created = match token::recheck(self.store.as_ref(), token_id, pvp_clock::now()).await {
            Ok(()) => self.create_device(request.name, &waiting.login).await,
            Err(token::TokenError::Store(error)) => Err(error.into()),
            Err(error) => return Err(Refusal::Unauthorized(error.to_string())),
        };
        if created.is_err() {
            self.device_codes.put_back(&code, waiting);
        }
        created
    }

    /// The devices of the caller.
    pub(crate) async fn list_devices(&self, login: &Login) -> Result<DeviceList, StoreError> {
        let devices = self.devices_of(login).await?;
        let devices = devices.into_iter().map(|(row, name, _)| DeviceListItem {
            last_used: row.used_at.max(self.token_uses.find(&row.id)),
            this_device: row.id == login.token_id,
            id: row.id,
            name,
            created: row.created_at,
            expires: row.expires_at,
        });
        Ok(DeviceList {
            devices: devices.collect(),
        })
    }

    /// Removes a device of the caller; false if they have none of this id.
    pub(crate) async fn remove_device(&self, id: &str, login: &Login) -> Result<bool, Refusal> {
        let devices = self.devices_of(login).await?;
        let device = devices.into_iter().find(|(row, ..)| row.id == id);
        let Some((_, name, claims)) = device else {
            return Ok(false);
        };
        // Whoever was given a link that allows little must not log out where more is allowed.
        if !login.claims.covers(&claims) {
            return Err(Refusal::Unauthorized(format!(
                "`{name}` may do more than your token allows; remove it there, or with a link that allows as much"
            )));
        }
        let removed = self.revoke_token(id).await;
        removed.map_err(|error| Refusal::WriteFailed(error.to_string()))
    }

    /// The devices of a token's holder whose tokens are valid, oldest first, with their names.
    async fn devices_of(
        &self,
        login: &Login,
    ) -> Result<Vec<(TokenRow, String, TokenClaims)>, StoreError> {
        let (now, tokens) = (pvp_clock::now(), self.store.list_tokens().await?);
        let theirs = live_tokens::with_claims(&tokens);
        let theirs = theirs.into_iter().filter_map(|(row, claims)| {
            let is_theirs = claims.participant == login.claims.participant;
            let name = claims.device.clone().filter(|_| is_theirs)?;
            let is_valid = row.end_before(now).is_none();
            is_valid.then(|| (row.clone(), name, claims))
        });
        Ok(theirs.collect())
    }
}

fn check_may_have_devices(claims: &TokenClaims) -> Result<(), Refusal> {
    let problem = match (claims.kind, &claims.device) {
        (ParticipantKind::Agent, _) => "agents have no devices; use the token as it is",
        (ParticipantKind::Human, Some(_)) => {
            "this is the token of a device, which makes no others; use the link that it came from, with `pvp open`"
        }
        (ParticipantKind::Human, None) => return Ok(()),
    };
    Err(Refusal::Unauthorized(problem.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use pvp_policy::Policy;
    use pvp_protocol::Role;

    use super::*;
    use crate::config::ServerConfig;
    use crate::store::Store;
    use crate::store::memory::MemoryStore;

    struct DeviceFixture {
        directory: Arc<SessionDirectory>,
        store: Arc<MemoryStore>,
        login: Login,
        code: JoinCode,
    }

    impl DeviceFixture {
        /// A person with a device code.
        async fn new() -> Self {
            let store = Arc::new(MemoryStore::default());
            let (config, policy) = (ServerConfig::default(), Policy::built_in());
            let directory = SessionDirectory::new(store.clone(), config, policy).await;
            let directory = directory.unwrap();
            let claims = TokenClaims {
                participant: token::new_participant_id("ann"),
                name: "ann".to_owned(),
                kind: ParticipantKind::Human,
                roles: [Role::Approver].into(),
                capabilities: Default::default(),
                session: None,
                invited_by: None,
                invited_at: None,
                made_with: None,
                device: None,
            };
            let now = pvp_clock::now();
            let (row, text) = token::create_token(&claims, now, None);
            store.insert_token(row).await.unwrap();
            let login = token::verify(store.as_ref(), &directory.live_tokens, &text, now);
            let login = login.await.unwrap();
            let (code, _) = directory.device_codes.create(&login, now).unwrap();
            Self {
                directory,
                store,
                login,
                code,
            }
        }

        async fn redeem(&self) -> Result<CreatedDevice, Refusal> {
            let request = RedeemDeviceCodeRequest {
                code: self.code.to_string(),
                name: "phone".to_owned(),
            };
            let address = IpAddr::from([192, 0, 2, 1]);
            self.directory.redeem_device_code(request, address).await
        }

        /// Asks for a device, and is gone before there is an answer. Returns when the code was taken,
        /// and what keeps the exchange from going on.
        async fn redeem_and_leave(&self) -> tokio::sync::SemaphorePermit<'_> {
            let permit = self.directory.device_permit.acquire().await.unwrap();
            let mut redeeming = Box::pin(self.redeem());
            while self.directory.device_codes.count() > 0 {
                assert!((&mut redeeming).now_or_never().is_none());
                tokio::task::yield_now().await;
            }
            permit
        }

        async fn devices(&self) -> usize {
            let listed = self.directory.list_devices(&self.login).await;
            listed.unwrap().devices.len()
        }
    }

    /// Lets the other tasks run until this is so.
    async fn until(mut is_so: impl AsyncFnMut() -> bool) {
        let waiting = async {
            while !is_so().await {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
        waited.expect("it comes about");
    }

    #[tokio::test]
    async fn a_code_of_somebody_who_is_gone_is_used_up_by_the_device_that_it_makes() {
        let fixture = DeviceFixture::new().await;
        drop(fixture.redeem_and_leave().await);
        until(async || fixture.devices().await == 1).await;
        assert!(matches!(
            fixture.redeem().await,
            Err(Refusal::Unauthorized(_))
        ));
        assert_eq!(fixture.devices().await, 1);
    }

    #[tokio::test]
    async fn a_code_of_somebody_who_is_gone_works_again_if_it_made_no_device() {
        let fixture = DeviceFixture::new().await;
        let permit = fixture.redeem_and_leave().await;
        fixture.store.set_read_fault(Some("the disk is gone"));
        drop(permit);
        until(async || fixture.directory.device_codes.count() == 1).await;
        fixture.store.set_read_fault(None);
        assert!(fixture.redeem().await.is_ok());
        assert_eq!(fixture.devices().await, 1);
    }
}
