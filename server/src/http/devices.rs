//! Routes for the devices of a person: exchanging a link's token for one of a device, listing, removing.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::response::Json;
use http::StatusCode;
use pvp_protocol::Refusal;
use pvp_protocol::api::{
    CreatedDevice, CreatedDeviceCode, DeviceCodeRequest, DeviceList, DeviceRequest,
    RedeemDeviceCodeRequest,
};

use super::RefusalResponse;
use super::extractors::{Caller, JsonBody, NoParameters, StrictQuery};
use super::invites::address_of;
use crate::directory::{ConnectionSlot, SessionDirectory};

pub(super) async fn create(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    JsonBody(request): JsonBody<DeviceRequest>,
) -> Result<(StatusCode, Json<CreatedDevice>), RefusalResponse> {
    let login = caller.require_login()?;
    let created = directory.create_device(request.name, &login).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

pub(super) async fn create_code(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    JsonBody(request): JsonBody<DeviceCodeRequest>,
) -> Result<(StatusCode, Json<CreatedDeviceCode>), RefusalResponse> {
    let login = caller.require_login()?;
    let created = directory.create_device_code(request, &login)?;
    Ok((StatusCode::CREATED, Json(created)))
}

/// Anyone may ask; the code is what counts.
pub(super) async fn redeem_code(
    State(directory): State<Arc<SessionDirectory>>,
    slot: Option<Extension<Arc<ConnectionSlot>>>,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    JsonBody(request): JsonBody<RedeemDeviceCodeRequest>,
) -> Result<(StatusCode, Json<CreatedDevice>), RefusalResponse> {
    let address = address_of(slot);
    let created = directory.redeem_device_code(request, address).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

pub(super) async fn list(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
) -> Result<Json<DeviceList>, RefusalResponse> {
    let login = caller.require_login()?;
    let listed = directory.list_devices(&login).await;
    Ok(Json(listed.map_err(Refusal::from)?))
}

pub(super) async fn remove(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    device: Result<Path<String>, PathRejection>,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
) -> Result<StatusCode, RefusalResponse> {
    let login = caller.require_login()?;
    let Path(device) = device.map_err(|error| Refusal::Malformed(error.body_text()))?;
    match directory.remove_device(&device, &login).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(RefusalResponse::not_found(
            "you have no such device; GET /api/devices lists those that you have",
        )),
    }
}
