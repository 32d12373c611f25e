//! What is sent over a channel: a notification, and how much of a hurry it is in.

use pvp_protocol::api::GateNotification;

/// How much of a hurry a notification is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    Low,
    Normal,
    High,
}

/// A notification on its way to one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct ChannelMessage {
    /// Names this message: the same for every attempt, so that a receiver can tell a repetition.
    pub id: String,
    /// What it says.
    pub notification: GateNotification,
    /// How much of a hurry it is in.
    pub urgency: Urgency,
    /// For how many seconds it is worth keeping for somebody who cannot be reached.
    pub ttl_seconds: u32,
    /// What the link in it does.
    pub link_label: String,
}
