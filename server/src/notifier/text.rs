//! Puts what happened to a gate into words. Pure.

use data_encoding::BASE64URL_NOPAD;
use pvp_notify::{ChannelMessage, Urgency};
use pvp_protocol::api::{ChannelKind, GateEvent, GateNotification, NotificationEvent};
use pvp_protocol::payload::OpenGate;
use pvp_protocol::token_text::mask_tokens;
use pvp_protocol::{
    Category, Digest, GateTimeoutAction, MessageId, Risk, SessionId, Timestamp, escape_invisible,
};

/// The most bytes of a command in a notification, so that it fits in every kind of message.
const MAX_COMMAND_BYTES: usize = 400;

/// The most bytes of a session's name.
const MAX_NAME_BYTES: usize = 100;

/// How long a push service keeps a message for a gate without a deadline, in seconds.
const MAX_TTL_SECONDS: u64 = 86_400;

/// A gate whose deadline is about to pass may close before a message arrives; it is worth a moment.
const MIN_TTL_SECONDS: u64 = 30;

/// A gate as it is told to somebody.
pub(crate) struct ToldGate<'a> {
    pub(crate) session: &'a SessionId,
    pub(crate) session_name: Option<&'a str>,
    pub(crate) open: &'a OpenGate,
}

/// To whom it is told, and what they want.
pub(crate) struct Addressee<'a> {
    pub(crate) kind: ChannelKind,
    /// Whether it is told to somebody who may vote, and not to everybody who reads a webhook.
    pub(crate) is_voter: bool,
    pub(crate) show_command: bool,
    /// The address of the server, without a slash at its end.
    pub(crate) base_url: &'a str,
    /// The secret of a vote link, if they get one.
    pub(crate) vote_link: Option<&'a str>,
}

/// The message about a gate.
pub(crate) fn message(
    gate: &ToldGate<'_>,
    event: NotificationEvent,
    to: &Addressee<'_>,
    id: String,
    now: Timestamp,
) -> ChannelMessage {
    let (open, request) = (gate.open, &gate.open.request);
    let name = gate.session_name.map(|name| shorten(name, MAX_NAME_BYTES));
    let command = to
        .show_command
        .then(|| shorten(&open.action.command.summary(), MAX_COMMAND_BYTES));
    let notification = GateNotification {
        event: match event {
            NotificationEvent::Opened => GateEvent::Opened,
            NotificationEvent::Escalated => GateEvent::Escalated,
            NotificationEvent::Closing => GateEvent::Closing,
        },
        session: gate.session.clone(),
        gate: open.gate.clone(),
        // Without a salt, it tells whoever guesses the command that they are right.
        digest: to.show_command.then_some(open.assessment.digest),
        category: open.assessment.category,
        risk: open.assessment.risk,
        title: title(open, event, to.is_voter),
        body: body(gate.session, name.as_deref(), open, command.as_deref(), now),
        command,
        deadline: request.deadline,
        url: url(gate.session, &open.gate, to),
        tag: tag(gate.session, &open.gate),
        session_name: name,
    };
    let left = request.deadline.map(|at| at.millis_since(now) / 1000);
    ChannelMessage {
        id,
        urgency: urgency(open, event),
        ttl_seconds: ttl(left),
        link_label: match to.vote_link {
            Some(_) => "Open the card and vote".to_owned(),
            None => "Open the card".to_owned(),
        },
        notification,
    }
}

/// The message that so many gates wait of which somebody was not told one by one, with the most urgent.
pub(crate) fn more_wait_message(
    first: &ToldGate<'_>,
    count: usize,
    to: &Addressee<'_>,
    id: String,
    now: Timestamp,
) -> ChannelMessage {
    let about_first = message(first, NotificationEvent::Opened, to, id, now);
    let title = match count {
        1 => "1 more command waits for your vote".to_owned(),
        count => format!("{count} more commands wait for your vote"),
    };
    ChannelMessage {
        notification: GateNotification {
            event: GateEvent::MoreWait,
            title,
            body: format!("The most urgent:\n{}", about_first.notification.body),
            ..about_first.notification
        },
        ..about_first
    }
}

/// The message that a gate, which this was told about, is closed.
pub(crate) fn closed_message(told: &GateNotification, id: String) -> ChannelMessage {
    ChannelMessage {
        id,
        notification: GateNotification {
            event: GateEvent::Closed,
            title: "A command was decided".to_owned(),
            body: session_line(&told.session, told.session_name.as_deref()),
            command: None,
            deadline: None,
            // A vote link that was in it is of no use any more.
            url: format!("/#session={}&gate={}", told.session, told.gate),
            ..told.clone()
        },
        urgency: Urgency::Low,
        ttl_seconds: 300,
        link_label: "Open the card".to_owned(),
    }
}

/// The message that somebody sends to themselves to see whether it arrives.
pub(crate) fn test_message(kind: ChannelKind, base_url: &str, id: String) -> ChannelMessage {
    let session = SessionId::parse("test").expect("a plain word");
    let gate = MessageId::parse("test").expect("a plain word");
    ChannelMessage {
        id,
        notification: GateNotification {
            event: GateEvent::Test,
            tag: tag(&session, &gate),
            session,
            session_name: None,
            gate,
            digest: None,
            category: Category::Read,
            risk: Risk::Safe,
            title: "This is a test".to_owned(),
            body: "Notifications of commands that wait for your vote arrive here.".to_owned(),
            command: None,
            deadline: None,
            url: match kind {
                ChannelKind::Push => "/".to_owned(),
                ChannelKind::Webhook
                | ChannelKind::Ntfy
                | ChannelKind::Slack
                | ChannelKind::Discord
                | ChannelKind::Email => format!("{base_url}/"),
            },
        },
        urgency: Urgency::Normal,
        ttl_seconds: 300,
        link_label: "Open PVP".to_owned(),
    }
}

/// One line, of which nobody else has written anything.
fn title(open: &OpenGate, event: NotificationEvent, is_voter: bool) -> String {
    let what = match (open.amended_by.is_some(), open.assessment.category) {
        (false, Category::Destructive) => "A destructive command",
        (true, Category::Destructive) => "An edited, destructive command",
        (false, Category::Read | Category::Write | Category::Blocked) => "A command",
        (true, Category::Read | Category::Write | Category::Blocked) => "An edited command",
    };
    let vote = match is_voter {
        true => "your vote",
        false => "a vote",
    };
    match event {
        NotificationEvent::Opened => format!("{what} waits for {vote}"),
        NotificationEvent::Escalated => format!("{what} was escalated and waits for {vote}"),
        NotificationEvent::Closing => format!("{what} still waits for {vote}, and time is short"),
    }
}

fn body(
    session: &SessionId,
    name: Option<&str>,
    open: &OpenGate,
    command: Option<&str>,
    now: Timestamp,
) -> String {
    let mut lines = vec![session_line(session, name)];
    let (category, risk) = (open.assessment.category, open.assessment.risk);
    lines.push(format!(
        "{category}, {risk} risk, proposed by {}",
        open.proposer
    ));
    if let Some(deadline) = open.request.deadline {
        let left = duration((deadline.millis_since(now) + 500) / 1000);
        let then = match open.request.on_timeout {
            GateTimeoutAction::Escalate if !open.escalated => "it goes to the admins",
            GateTimeoutAction::Escalate | GateTimeoutAction::Reject => "it is rejected",
            GateTimeoutAction::AutoApprove => "it is approved",
        };
        lines.push(format!("In {left}, {then}"));
    }
    lines.extend(command.map(str::to_owned));
    lines.join("\n")
}

fn session_line(session: &SessionId, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("Session {name} ({session})"),
        None => format!("Session {session}"),
    }
}

/// Rounded, because a moment has passed since the gate opened.
fn duration(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..=119 => (seconds, "second"),
        120..=7199 => ((seconds + 30) / 60, "minute"),
        _ => ((seconds + 1800) / 3600, "hour"),
    };
    match count {
        1 => format!("1 {unit}"),
        count => format!("{count} {unit}s"),
    }
}

/// Where the card is. A browser is given the way from the server that it subscribed at.
fn url(session: &SessionId, gate: &MessageId, to: &Addressee<'_>) -> String {
    let fragment = match to.vote_link {
        Some(secret) => format!("vote={secret}"),
        None => format!("session={session}&gate={gate}"),
    };
    match to.kind {
        ChannelKind::Push => format!("/#{fragment}"),
        ChannelKind::Webhook
        | ChannelKind::Ntfy
        | ChannelKind::Slack
        | ChannelKind::Discord
        | ChannelKind::Email => format!("{}/#{fragment}", to.base_url),
    }
}

/// Names a gate in 32 characters, which is what push services take.
fn tag(session: &SessionId, gate: &MessageId) -> String {
    let digest = Digest::of(&[session.as_str().as_bytes(), gate.as_str().as_bytes()]);
    BASE64URL_NOPAD.encode(&digest.as_bytes()[..24])
}

fn urgency(open: &OpenGate, event: NotificationEvent) -> Urgency {
    let is_short = open.request.deadline.is_some();
    match (event, open.assessment.category) {
        (NotificationEvent::Escalated | NotificationEvent::Closing, _)
        | (_, Category::Destructive | Category::Blocked) => Urgency::High,
        (NotificationEvent::Opened, Category::Read | Category::Write) if is_short => Urgency::High,
        (NotificationEvent::Opened, Category::Read | Category::Write) => Urgency::Normal,
    }
}

fn ttl(left: Option<u64>) -> u32 {
    let seconds = left.unwrap_or(MAX_TTL_SECONDS);
    let seconds = seconds.clamp(MIN_TTL_SECONDS, MAX_TTL_SECONDS);
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

/// Text from others as one visible line of at most so many bytes.
fn shorten(text: &str, max_bytes: usize) -> String {
    // What is escaped is longer, so that much more need not be looked at.
    let mut text = text[..text.floor_char_boundary(max_bytes * 4)].to_owned();
    mask_tokens(&mut text);
    let text = text.replace('\n', "\\n").replace('\t', "\\t");
    let text = escape_invisible(&text);
    if text.len() <= max_bytes {
        return text;
    }
    let kept = &text[..text.floor_char_boundary(max_bytes - '…'.len_utf8())];
    format!("{kept}…")
}

#[cfg(test)]
mod tests;
