use pvp_protocol::Command;
use serde_json::Value;

use super::*;

const WELCOME: &str = include_str!("../../../../protocol/tests/golden/server/session.welcome.json");

/// Ten minutes before the deadline of the gate.
fn now() -> Timestamp {
    Timestamp::parse("2026-03-14T09:26:20Z").unwrap()
}

fn open_gate() -> OpenGate {
    let welcome: Value = serde_json::from_str(WELCOME).unwrap();
    let gate: OpenGate = serde_json::from_value(welcome["payload"]["gates"][0].clone()).unwrap();
    OpenGate {
        amended_by: None,
        ..gate
    }
}

fn told(
    open: &OpenGate,
    event: NotificationEvent,
    change: impl FnOnce(&mut Addressee<'_>),
) -> ChannelMessage {
    let session = SessionId::parse("owl").unwrap();
    let gate = ToldGate {
        session: &session,
        session_name: Some("Night shift"),
        open,
    };
    let mut to = Addressee {
        kind: ChannelKind::Webhook,
        is_voter: true,
        show_command: false,
        base_url: "https://pvp.example.com",
        vote_link: None,
    };
    change(&mut to);
    message(&gate, event, &to, "msg_1".to_owned(), now())
}

#[test]
fn a_message_says_what_waits_and_until_when_but_not_the_command() {
    let message = told(&open_gate(), NotificationEvent::Opened, |_| {});
    let notification = &message.notification;
    assert_eq!(notification.title, "A command waits for your vote");
    assert_eq!(
        notification.body,
        "Session Night shift (owl)\nwrite, medium risk, proposed by coder\nIn 10 minutes, it goes to the admins"
    );
    assert_eq!(notification.command, None);
    let gate = "01990c7a-4e00-7000-8000-000000000013";
    let url = format!("https://pvp.example.com/#session=owl&gate={gate}");
    assert_eq!(notification.url, url);
    assert_eq!((message.ttl_seconds, message.urgency), (600, Urgency::High));
    let all = serde_json::to_string(notification).unwrap();
    for secret in [
        "git",
        "Round",
        "rounding",
        "/srv/shop",
        "DEPLOY_KEY",
        "deploy.sh",
    ] {
        assert!(!all.contains(secret), "{secret} is in {all}");
    }
}

#[test]
fn the_command_is_there_for_those_who_want_it() {
    let message = told(&open_gate(), NotificationEvent::Opened, |to| {
        to.show_command = true;
    });
    let command = "git add -A && git commit -m 'Round half up'";
    assert_eq!(message.notification.command.as_deref(), Some(command));
    assert!(message.notification.body.ends_with(&format!("\n{command}")));
}

#[test]
fn titles_say_what_happened_and_nobody_else_writes_them() {
    let mut open = open_gate();
    let title = |open: &OpenGate, event, is_voter| {
        told(open, event, |to| to.is_voter = is_voter)
            .notification
            .title
    };
    use NotificationEvent::{Closing, Escalated, Opened};
    assert_eq!(title(&open, Opened, false), "A command waits for a vote");
    open.amended_by = Some(open.proposer.clone());
    assert_eq!(
        title(&open, Opened, true),
        "An edited command waits for your vote"
    );
    open.assessment.category = Category::Destructive;
    assert_eq!(
        title(&open, Escalated, true),
        "An edited, destructive command was escalated and waits for your vote"
    );
    open.amended_by = None;
    assert_eq!(
        title(&open, Closing, true),
        "A destructive command still waits for your vote, and time is short"
    );
}

#[test]
fn a_browser_gets_the_way_from_its_own_server_and_a_vote_link_replaces_the_card() {
    let open = open_gate();
    let url = |kind, vote_link| {
        let message = told(&open, NotificationEvent::Opened, |to| {
            (to.kind, to.vote_link) = (kind, vote_link);
        });
        (message.notification.url, message.link_label)
    };
    let (card, label) = url(ChannelKind::Push, None);
    assert_eq!(card, format!("/#session=owl&gate={}", open.gate));
    assert_eq!(label, "Open the card");
    let (vote, label) = url(ChannelKind::Email, Some("pvp_x_y"));
    assert_eq!(vote, "https://pvp.example.com/#vote=pvp_x_y");
    assert_eq!(label, "Open the card and vote");
}

#[test]
fn hostile_text_stays_on_its_line_and_is_bounded() {
    let mut open = open_gate();
    open.action.command = Command::Shell {
        line: format!(
            "echo \u{202e}\u{1b}[2K\nIn 1 second, it is rejected {}",
            "é".repeat(5000)
        ),
    };
    let message = told(&open, NotificationEvent::Opened, |to| {
        to.show_command = true
    });
    let command = message.notification.command.as_deref().unwrap();
    assert!(
        command.starts_with(r"echo \u{202e}\u{1b}[2K\nIn 1 second"),
        "{command}"
    );
    assert!(
        command.ends_with('…') && command.len() <= 400,
        "{}",
        command.len()
    );
    assert_eq!(message.notification.body.lines().count(), 4);
}

#[test]
fn the_largest_message_fits_in_a_push() {
    let mut open = open_gate();
    open.action.command = Command::Shell {
        line: "\"\\".repeat(5000),
    };
    let session = SessionId::parse(&"s".repeat(128)).unwrap();
    open.gate = MessageId::parse(&"g".repeat(128)).unwrap();
    open.proposer = pvp_protocol::ParticipantId::parse(&"p".repeat(128)).unwrap();
    let gate = ToldGate {
        session: &session,
        session_name: Some(&"\"".repeat(1000)),
        open: &open,
    };
    let to = Addressee {
        kind: ChannelKind::Push,
        is_voter: true,
        show_command: true,
        base_url: "",
        vote_link: None,
    };
    let id = "msg_1".to_owned();
    let message = message(&gate, NotificationEvent::Closing, &to, id, now());
    let bytes = serde_json::to_vec(&message.notification).unwrap().len();
    assert!(bytes <= 3993, "{bytes} bytes");
}

#[test]
fn what_happens_at_the_deadline_is_said_as_it_is() {
    let mut open = open_gate();
    let mut last_line = |on_timeout, escalated, seconds: u64| {
        open.request.on_timeout = on_timeout;
        open.escalated = escalated;
        open.request.deadline = Some(now().plus_seconds(seconds));
        let message = told(&open, NotificationEvent::Opened, |_| {});
        message.notification.body.lines().last().unwrap().to_owned()
    };
    use GateTimeoutAction::{AutoApprove, Escalate, Reject};
    assert_eq!(last_line(Reject, false, 1), "In 1 second, it is rejected");
    assert_eq!(
        last_line(Reject, false, 299),
        "In 5 minutes, it is rejected"
    );
    assert_eq!(
        last_line(Reject, false, 119),
        "In 119 seconds, it is rejected"
    );
    assert_eq!(
        last_line(AutoApprove, false, 120),
        "In 2 minutes, it is approved"
    );
    assert_eq!(
        last_line(Escalate, false, 7200),
        "In 2 hours, it goes to the admins"
    );
    assert_eq!(
        last_line(Escalate, true, 60),
        "In 60 seconds, it is rejected"
    );
    open.request.deadline = None;
    let message = told(&open, NotificationEvent::Opened, |_| {});
    assert_eq!(message.notification.body.lines().count(), 2);
    assert_eq!(
        (message.ttl_seconds, message.urgency),
        (86_400, Urgency::Normal)
    );
}

#[test]
fn every_notification_of_a_gate_has_the_same_tag_and_no_other_gate_has_it() {
    let open = open_gate();
    let tag = |open: &OpenGate, event| told(open, event, |_| {}).notification.tag;
    let first = tag(&open, NotificationEvent::Opened);
    assert_eq!(tag(&open, NotificationEvent::Closing), first);
    assert_eq!(first.len(), 32);
    let mut other = open.clone();
    other.gate = MessageId::parse("another").unwrap();
    assert_ne!(tag(&other, NotificationEvent::Opened), first);
    let closed = closed_message(
        &told(&open, NotificationEvent::Opened, |to| {
            to.vote_link = Some("secret")
        })
        .notification,
        "msg_2".to_owned(),
    );
    assert_eq!(closed.notification.tag, first);
    assert!(
        !serde_json::to_string(&closed.notification)
            .unwrap()
            .contains("secret")
    );
}

#[test]
fn the_digest_is_told_only_with_the_command() {
    let open = open_gate();
    let digest = |show_command| {
        let message = told(&open, NotificationEvent::Opened, |to| {
            to.show_command = show_command;
        });
        message.notification.digest
    };
    assert_eq!(digest(false), None);
    assert_eq!(digest(true), Some(open.assessment.digest));
}

#[test]
fn what_is_summed_up_leads_to_the_most_urgent() {
    let open = open_gate();
    let session = SessionId::parse("owl").unwrap();
    let first = ToldGate {
        session: &session,
        session_name: None,
        open: &open,
    };
    let to = Addressee {
        kind: ChannelKind::Webhook,
        is_voter: true,
        show_command: false,
        base_url: "https://pvp.example.com",
        vote_link: None,
    };
    let message = |count| more_wait_message(&first, count, &to, "msg_1".to_owned(), now());
    let twelve = message(12).notification;
    assert_eq!(twelve.event, GateEvent::MoreWait);
    assert_eq!(twelve.title, "12 more commands wait for your vote");
    assert!(twelve.body.starts_with("The most urgent:\nSession owl\n"));
    assert!(twelve.url.contains("gate="), "{}", twelve.url);
    let one = message(1).notification.title;
    assert_eq!(one, "1 more command waits for your vote");
}
