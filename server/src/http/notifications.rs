//! Routes by which people set how they are notified: preferences, channels, push subscriptions.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Json;
use http::StatusCode;
use pvp_protocol::Refusal;
use pvp_protocol::api::{
    ChangeChannelRequest, ChannelTest, NewChannelRequest, NewPushSubscription, NotificationChannel,
    NotificationPreferences, NotificationSettings, PushKey, PushSubscriptionCreated,
};

use super::RefusalResponse;
use super::extractors::{Caller, JsonBody, NoParameters, StrictQuery};
use crate::directory::SessionDirectory;

/// The name of a channel in the path.
type ChannelPath = Result<Path<String>, PathRejection>;

pub(super) async fn read(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
) -> Result<Json<NotificationSettings>, RefusalResponse> {
    let login = caller.require_login()?;
    Ok(Json(directory.notification_settings(&login).await?))
}

pub(super) async fn set_preferences(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    JsonBody(preferences): JsonBody<NotificationPreferences>,
) -> Result<Json<NotificationSettings>, RefusalResponse> {
    let login = caller.require_login()?;
    let settings = directory.set_notification_preferences(&login, &preferences);
    Ok(Json(settings.await?))
}

pub(super) async fn add_channel(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    JsonBody(request): JsonBody<NewChannelRequest>,
) -> Result<(StatusCode, Json<NotificationChannel>), RefusalResponse> {
    let login = caller.require_login()?;
    let channel = directory.add_channel(&login, &request).await?;
    Ok((StatusCode::CREATED, Json(channel)))
}

pub(super) async fn change_channel(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    channel: ChannelPath,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    JsonBody(change): JsonBody<ChangeChannelRequest>,
) -> Result<Json<NotificationChannel>, RefusalResponse> {
    let (login, channel) = (caller.require_login()?, channel_id(channel)?);
    let changed = directory.change_channel(&login, &channel, &change).await?;
    changed.map(Json).ok_or_else(no_such_channel)
}

pub(super) async fn remove_channel(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    channel: ChannelPath,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
) -> Result<StatusCode, RefusalResponse> {
    let (login, channel) = (caller.require_login()?, channel_id(channel)?);
    match directory.remove_channel(&login, &channel).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(no_such_channel()),
    }
}

pub(super) async fn test_channel(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    channel: ChannelPath,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
) -> Result<Json<ChannelTest>, RefusalResponse> {
    let (login, channel) = (caller.require_login()?, channel_id(channel)?);
    let tested = directory.test_channel(&login, &channel).await?;
    tested.map(Json).ok_or_else(no_such_channel)
}

/// The key is public, but only those who may use it need it.
pub(super) async fn push_key(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
) -> Result<Json<PushKey>, RefusalResponse> {
    caller.require_login()?;
    match directory.notifications.sender.vapid_key() {
        Some(key) => Ok(Json(PushKey { key: key.public() })),
        None => Err(RefusalResponse::not_found(
            "this server sends no push messages",
        )),
    }
}

pub(super) async fn subscribe(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    JsonBody(request): JsonBody<NewPushSubscription>,
) -> Result<(StatusCode, Json<PushSubscriptionCreated>), RefusalResponse> {
    let login = caller.require_login()?;
    let id = directory.add_push_subscription(&login, &request).await?;
    Ok((StatusCode::CREATED, Json(PushSubscriptionCreated { id })))
}

fn channel_id(channel: ChannelPath) -> Result<String, Refusal> {
    let Path(channel) = channel.map_err(|error| Refusal::Malformed(error.body_text()))?;
    Ok(channel)
}

fn no_such_channel() -> RefusalResponse {
    RefusalResponse::not_found(
        "you have no such channel; GET /api/notifications lists those that you have",
    )
}
