//! The devices of people: each has a token of its own, which ends with that of the link it came from.

use std::net::IpAddr;

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

    /// Exchanges a device code for the token of a device.
    pub(crate) async fn redeem_device_code(
        &self,
        request: RedeemDeviceCodeRequest,
        address: IpAddr,
    ) -> Result<CreatedDevice, Refusal> {
        self.count_failed_joins(address, self.try_device_code(request))
            .await
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
