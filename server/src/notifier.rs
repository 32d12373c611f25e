//! Notifies people of the gates that they may vote on, outside of the session.
//!
//! Sessions only say that their gates have changed. A task of its own looks at them (`watcher`), decides
//! what is due (`plan`) and hands it to the queue of `pvp-notify`, whose deliveries look again whether
//! there is a reason for them (`gate_delivery`).

mod channel;
mod fair_order;
mod gate_delivery;
mod notice_book;
mod plan;
mod rate;
mod recipient;
mod settings;
mod text;
mod vote_link;
mod watcher;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use data_encoding::BASE64URL_NOPAD;
use parking_lot::Mutex;
use pvp_notify::{
    AddressPolicy, AddressSource, ChannelSender, ChannelTarget, CountDelivery, DeliveryError,
    DeliveryQueue, MailRelay, MailRelayConfig, QueueLimits, VapidKey, WebPoster,
};
use pvp_protocol::api::NewChannelRequest;
use pvp_protocol::{Digest, SessionId};
use tokio::sync::Notify;

use crate::config::{HookConfig, NotificationConfig, ServerConfig, SmtpConfig};
use crate::directory::SessionDirectory;
use crate::origin;
use crate::store::{ChannelGroup, Hash};
use notice_book::NoticeBook;
use plan::Wishes;
use rate::{Rate, RateLimit};
use recipient::OperatorHook;

pub(crate) use vote_link::{VoteLink, find as find_vote_link};
pub(crate) use watcher::run;

/// How many sessions are remembered as changed; with more, all are looked at.
const MAX_CHANGED_SESSIONS: usize = 4096;

/// How long deliveries that are under way may take when the server stops.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(2);

/// Tests that one person may make: 5 at once, and then one a minute.
const TEST_RATE: Rate = Rate {
    burst: 5,
    millis_each: 60_000,
};

/// Channels that one person may add: 40 at once, and then one every 10 seconds.
const ADDITION_RATE: Rate = Rate {
    burst: 40,
    millis_each: 10_000,
};

/// What notifies people.
pub(crate) struct Notifications {
    /// Sends over every kind of channel.
    pub(crate) sender: ChannelSender,
    /// What is on its way.
    queue: DeliveryQueue,
    /// The webhooks of the operator, once their secrets were read.
    hooks: OnceLock<Vec<Arc<OperatorHook>>>,
    /// What was told and what is on its way.
    book: Mutex<NoticeBook>,
    /// What the watcher has not looked at yet.
    changes: Mutex<Changes>,
    /// Wakes the watcher.
    changed: Notify,
    /// The tests that people make.
    tests: Mutex<RateLimit>,
    /// The channels that people add.
    additions: Mutex<RateLimit>,
}

/// What has changed since the watcher last looked.
#[derive(Default)]
struct Changes {
    /// Sessions whose gates have changed.
    sessions: BTreeSet<SessionId>,
    /// Too many to name.
    all_sessions: bool,
    /// Channels, preferences or tokens have changed.
    recipients: bool,
    /// Sessions in which something that was due was not told after all.
    to_recheck: BTreeSet<SessionId>,
}

impl Notifications {
    pub(crate) fn new(config: &NotificationConfig, count: CountDelivery) -> Self {
        Self {
            sender: ChannelSender::new(WebPoster::default(), config.address_policy()),
            queue: DeliveryQueue::new(QueueLimits::default(), count),
            hooks: OnceLock::new(),
            book: Mutex::default(),
            changes: Mutex::default(),
            changed: Notify::new(),
            tests: Mutex::new(RateLimit::new(TEST_RATE)),
            additions: Mutex::new(RateLimit::new(ADDITION_RATE)),
        }
    }

    /// Reads the key for push messages, which is made if there is none, and the operator's secrets.
    pub(crate) async fn open(&self, config: &ServerConfig) -> anyhow::Result<()> {
        let settings = &config.notifications;
        let public_url = config.public_url.as_ref();
        let own_address = public_url.filter(|url| url.starts_with("https://"));
        let contact = settings.contact.as_ref().or(own_address).cloned();
        let key = VapidKey::load_or_create(config.data_directory(), contact).await?;
        self.sender.set_vapid_key(key);
        if let Some(smtp) = &settings.smtp {
            let authority = public_url.and_then(|url| origin::authority_of(url));
            let relay = open_relay(smtp, authority.as_deref().map_or("localhost", host_of));
            self.sender
                .set_relay(relay.await.context("the setting `smtp`")?);
        }
        let mut hooks = Vec::new();
        for hook in &settings.hooks {
            hooks.push(Arc::new(open_hook(hook).await?));
        }
        // Opened once; a second time would change nothing.
        let _ = self.hooks.set(hooks);
        Ok(())
    }

    fn hooks(&self) -> &[Arc<OperatorHook>] {
        self.hooks.get().map_or(&[], Vec::as_slice)
    }

    /// The gates of a session have changed.
    pub(crate) fn gates_changed_in(&self, session: &SessionId) {
        let mut changes = self.changes.lock();
        if changes.sessions.len() >= MAX_CHANGED_SESSIONS {
            (changes.sessions, changes.all_sessions) = (BTreeSet::new(), true);
        }
        if !changes.all_sessions && !changes.sessions.contains(session) {
            changes.sessions.insert(session.clone());
        }
        drop(changes);
        self.changed.notify_one();
    }

    /// Something that was due in a session was not told: it is looked at again after a while, and so
    /// is who may be told.
    fn recheck(&self, session: &SessionId) {
        let mut changes = self.changes.lock();
        if changes.to_recheck.len() < MAX_CHANGED_SESSIONS {
            changes.to_recheck.insert(session.clone());
        } else {
            changes.recipients = true;
        }
        drop(changes);
        self.changed.notify_one();
    }

    /// Who may be told something, or what they want, has changed.
    pub(crate) fn recipients_changed(&self) {
        self.changes.lock().recipients = true;
        self.changed.notify_one();
    }

    async fn wait_for_changes(&self) {
        self.changed.notified().await;
    }

    fn take_changes(&self) -> Changes {
        std::mem::take(&mut self.changes.lock())
    }

    /// Removes a browser whose push service says that it is gone.
    async fn remove_if_gone(
        &self,
        directory: &SessionDirectory,
        channel: &str,
        error: &DeliveryError,
    ) {
        let DeliveryError::Gone(_) = error else {
            return;
        };
        let store = &directory.store;
        match store.find_channel(channel).await {
            Ok(Some(row)) if row.group == ChannelGroup::Push => {}
            Ok(_) | Err(_) => return,
        }
        match store.delete_channel(channel).await {
            Ok(_) => self.recipients_changed(),
            Err(error) => tracing::warn!(%error, "could not remove a push subscription"),
        }
    }

    async fn shut_down(&self) {
        self.queue.shut_down(SHUTDOWN_PATIENCE).await;
    }
}

/// The name of a message, the same for every attempt at it.
fn message_id(key: &Hash) -> String {
    format!("msg_{}", BASE64URL_NOPAD.encode(&key[..18]))
}

async fn open_relay(smtp: &SmtpConfig, hello: &str) -> anyhow::Result<MailRelay> {
    let credentials = match (&smtp.username, &smtp.password_file) {
        (Some(user), Some(file)) => Some((user.clone(), read_secret(file).await?)),
        _ => None,
    };
    Ok(MailRelay::new(MailRelayConfig {
        host: smtp.host.clone(),
        port: smtp.port,
        security: smtp.security.into(),
        credentials,
        from: smtp.from.clone(),
        domains: smtp
            .domains
            .iter()
            .map(|domain| domain.to_lowercase())
            .collect(),
        hello: hello.to_owned(),
    })?)
}

/// The host of an authority, without its port and without the brackets of an IPv6 address.
fn host_of(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

async fn open_hook(hook: &HookConfig) -> anyhow::Result<OperatorHook> {
    let secret = match &hook.secret_file {
        Some(file) => Some(read_secret(file).await?),
        None => None,
    };
    let request = NewChannelRequest {
        kind: hook.kind,
        label: String::new(),
        target: hook.url.clone(),
        secret,
    };
    let policy = AddressPolicy::default();
    let target = ChannelTarget::parse(&request, AddressSource::Operator, &policy, None);
    let url = Digest::of(&[hook.url.as_bytes()]);
    Ok(OperatorHook {
        id: format!("hook-{}", BASE64URL_NOPAD.encode(&url.as_bytes()[..9])),
        target: target.context("one of the `hooks` of the notifications")?,
        wishes: Wishes {
            events: hook.events.clone(),
            sessions: None,
            quiet: None,
        },
        show_command: hook.show_command,
    })
}

/// A secret in a file of its own, without the line feed at its end.
async fn read_secret(file: &Path) -> anyhow::Result<String> {
    let text = tokio::fs::read_to_string(file).await;
    let text = text.with_context(|| format!("reading the secret in {}", file.display()))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_calls_itself_by_its_host_in_mail() {
        assert_eq!(host_of("pvp.example.com:8443"), "pvp.example.com");
        assert_eq!(host_of("pvp.example.com"), "pvp.example.com");
        assert_eq!(host_of("[2001:db8::1]:8443"), "2001:db8::1");
        assert_eq!(host_of("[2001:db8::1]"), "2001:db8::1");
    }
}
