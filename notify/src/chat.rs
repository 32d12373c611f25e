//! Incoming webhooks of Slack and Discord, and of services that take the same.
//!
//! Whatever others have written is shown as code, where neither service, nor Mattermost or Rocket.Chat
//! in Slack's place, finds mentions, links or other markup.

use pvp_protocol::api::GateNotification;
use serde_json::{Value, json};

use crate::message::ChannelMessage;

/// What a Slack webhook takes.
pub(crate) fn slack_body(message: &ChannelMessage) -> Value {
    let (url, label) = (&message.notification.url, &message.link_label);
    let text = slack_escape(&text(&message.notification, "*"));
    let text = format!("{text}\n<{}|{}>", slack_escape(url), slack_escape(label));
    // Only what is marked as a link becomes one, nobody is called by their name, nothing is fetched.
    json!({
        "text": text, "parse": "none", "link_names": false,
        "unfurl_links": false, "unfurl_media": false,
    })
}

/// What a Discord webhook takes.
pub(crate) fn discord_body(message: &ChannelMessage) -> Value {
    let (url, label) = (&message.notification.url, &message.link_label);
    let content = format!("{}\n[{label}](<{url}>)", text(&message.notification, "**"));
    json!({ "content": content, "username": "PVP", "allowed_mentions": { "parse": [] } })
}

/// The title, which is the server's own, and below it what others may have written, as code.
fn text(notification: &GateNotification, bold: &str) -> String {
    let mut text = format!("{bold}{}{bold}", notification.title);
    for line in notification
        .body
        .lines()
        .filter(|line| !line.trim().is_empty())
    {
        // A grave accent of another kind cannot end the code.
        text += &format!("\n`{}`", line.replace('`', "\u{2cb}"));
    }
    text
}

/// Escapes the three characters that mean something to Slack.
fn slack_escape(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_message;

    const HOSTILE: &str = "echo `<!channel> @everyone <@U1> <https://evil.example|the card> [card](https://evil.example)` &amp;";

    #[test]
    fn slack_gets_hostile_text_as_inert_code() {
        let mut message = test_message();
        message.notification.body = format!("session night\n\n{HOSTILE}");
        let body = slack_body(&message);
        assert_eq!(
            body["text"],
            "*A command waits*\n`session night`\n`echo \u{2cb}&lt;!channel&gt; @everyone &lt;@U1&gt; \
             &lt;https://evil.example|the card&gt; [card](https://evil.example)\u{2cb} &amp;amp;`\n\
             <https://pvp.example.com/#session=night&amp;gate=g1|Open the card>"
        );
        assert_eq!(body["parse"], "none");
        assert_eq!(body["link_names"], false);
    }

    #[test]
    fn discord_gets_hostile_text_as_inert_code_and_calls_nobody() {
        let mut message = test_message();
        message.notification.body = HOSTILE.to_owned();
        let body = discord_body(&message);
        assert_eq!(
            body["content"],
            "**A command waits**\n`echo \u{2cb}<!channel> @everyone <@U1> \
             <https://evil.example|the card> [card](https://evil.example)\u{2cb} &amp;`\n\
             [Open the card](<https://pvp.example.com/#session=night&gate=g1>)"
        );
        assert_eq!(body["allowed_mentions"], json!({ "parse": [] }));
    }
}
