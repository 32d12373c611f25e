//! The calls by which a person sets how they are notified.

use pvp_protocol::api::{
    ChannelTest, NewChannelRequest, NotificationChannel, NotificationPreferences,
    NotificationSettings,
};
use reqwest::Method;

use super::{ApiClient, ApiError};

/// How long a test may take: the server waits for the receiver.
const TEST_TIMEOUT_SECONDS: u64 = 60;

impl ApiClient {
    /// How the caller is notified, and what they may choose from.
    pub fn notification_settings(&self) -> Result<NotificationSettings, ApiError> {
        self.get("/api/notifications", &[])
    }

    pub fn set_notification_preferences(
        &self,
        preferences: &NotificationPreferences,
    ) -> Result<NotificationSettings, ApiError> {
        self.send_body(Method::PUT, "/api/notifications", preferences)
    }

    pub fn add_channel(
        &self,
        request: &NewChannelRequest,
    ) -> Result<NotificationChannel, ApiError> {
        self.post("/api/notifications/channels", request)
    }

    pub fn remove_channel(&self, id: &str) -> Result<(), ApiError> {
        let path = self.channel_path(id)?;
        let request = self.request(Method::DELETE, &path, &[])?;
        self.send_without_answer(request.timeout(self.response_timeout))
    }

    /// Sends a test over a channel, and says whether it arrived.
    pub fn test_channel(&self, id: &str) -> Result<ChannelTest, ApiError> {
        let path = format!("{}/test", self.channel_path(id)?);
        let request = self.request(Method::POST, &path, &[])?;
        let timeout = std::time::Duration::from_secs(TEST_TIMEOUT_SECONDS);
        self.send_request(request.timeout(timeout))
    }

    fn channel_path(&self, id: &str) -> Result<String, ApiError> {
        self.check_plain_id(id, "channel")?;
        Ok(format!("/api/notifications/channels/{id}"))
    }
}
