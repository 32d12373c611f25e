//! `pvp notify`: how a person is notified of what waits for their vote.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use pvp_client::{ApiClient, narrate, now};
use pvp_protocol::SessionId;
use pvp_protocol::api::{
    ChannelKind, NewChannelRequest, NotificationChannel, NotificationEvent,
    NotificationPreferences, NotificationSettings, QuietHours,
};

use super::links::LinkArguments;
use super::tokens::align;
use super::{one_line, print_json, print_line};

/// The most bytes of a target or a secret that is read from a file.
const MAX_INPUT_BYTES: u64 = 4096;

#[derive(Args)]
pub(crate) struct NotifyArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Option<NotifyCommand>,
}

#[derive(Subcommand)]
enum NotifyCommand {
    /// List your channels, and what you are notified of
    List,
    /// Add a channel
    Add(AddArguments),
    /// Remove a channel
    Remove {
        /// The id of the channel, as `pvp notify list` prints it
        id: String,
    },
    /// Send a test over a channel, and say whether it arrived
    Test {
        /// The id of the channel, as `pvp notify list` prints it
        id: String,
    },
    /// Show or change what you are notified of, and when
    Settings(NotifySettingsArguments),
}

/// The kinds of channels that can be added here. A browser adds itself, on the page.
#[derive(Clone, Copy, ValueEnum)]
enum NewChannelKind {
    Webhook,
    Ntfy,
    Slack,
    Discord,
    Email,
}

#[derive(Args)]
struct AddArguments {
    /// The kind of channel
    kind: NewChannelKind,
    /// The address of the webhook, of the ntfy topic or for e-mail; `-` reads it from standard input,
    /// which keeps it out of the shell's history
    target: String,
    /// A name for the channel [default: its kind]
    #[arg(long)]
    label: Option<String>,
    /// A file with the signing secret of a webhook, or with the access token of an ntfy topic
    /// [default: a webhook gets a random secret, which is printed once]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

#[derive(Args)]
struct NotifySettingsArguments {
    /// What you are notified of: opened, escalated, closing, or none
    #[arg(long, value_name = "EVENTS", value_delimiter = ',')]
    events: Option<Vec<EventName>>,
    /// The sessions that you are notified of, or `all` that you may vote in
    #[arg(long, value_name = "SESSIONS", value_delimiter = ',')]
    sessions: Option<Vec<String>>,
    /// Hours in which you are not notified, such as 22:00-07:00, or `none`
    #[arg(long, value_name = "FROM-TO")]
    quiet: Option<String>,
    /// The time zone of the quiet hours, such as Europe/Berlin [default: that of this machine]
    #[arg(long, value_name = "ZONE", requires = "quiet")]
    time_zone: Option<String>,
    /// Whether notifications contain the command
    #[arg(long, value_name = "true|false")]
    show_command: Option<bool>,
    /// Whether notifications contain a link that votes in your name
    #[arg(long, value_name = "true|false")]
    vote_links: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EventName {
    Opened,
    Escalated,
    Closing,
    None,
}

pub(crate) fn run(arguments: &NotifyArguments) -> anyhow::Result<ExitCode> {
    let (api, json) = (arguments.link.api_client()?, arguments.json);
    match &arguments.command {
        None | Some(NotifyCommand::List) => print_settings(&api.notification_settings()?, json)?,
        Some(NotifyCommand::Add(new)) => print_added(&add(&api, new)?, json)?,
        Some(NotifyCommand::Remove { id }) => {
            api.remove_channel(id)?;
            print_line(format!("removed {id}"))?;
        }
        Some(NotifyCommand::Test { id }) => return test(&api, id, json),
        Some(NotifyCommand::Settings(changes)) => {
            print_settings(&change_settings(&api, changes)?, json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn add(api: &ApiClient, new: &AddArguments) -> anyhow::Result<NotificationChannel> {
    let kind = match new.kind {
        NewChannelKind::Webhook => ChannelKind::Webhook,
        NewChannelKind::Ntfy => ChannelKind::Ntfy,
        NewChannelKind::Slack => ChannelKind::Slack,
        NewChannelKind::Discord => ChannelKind::Discord,
        NewChannelKind::Email => ChannelKind::Email,
    };
    let target = match new.target.as_str() {
        "-" => read_line(&mut std::io::stdin().lock()).context("reading standard input")?,
        target => target.to_owned(),
    };
    let secret = new.secret_file.as_deref().map(read_file).transpose()?;
    Ok(api.add_channel(&NewChannelRequest {
        kind,
        label: new.label.clone().unwrap_or_else(|| kind.to_string()),
        target,
        secret,
    })?)
}

fn read_file(path: &Path) -> anyhow::Result<String> {
    let mut file = std::fs::File::open(path)
        .with_context(|| format!("reading the secret in {}", path.display()))?;
    read_line(&mut file).with_context(|| format!("reading the secret in {}", path.display()))
}

fn read_line(input: &mut impl Read) -> anyhow::Result<String> {
    let mut text = String::new();
    input.take(MAX_INPUT_BYTES).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

fn print_added(channel: &NotificationChannel, json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(serde_json::to_string(channel)?);
    }
    let (kind, id, target) = (channel.kind, &channel.id, one_line(&channel.target));
    print_line(format!(
        "added {kind} {id} to {target}; try it: pvp notify test {id}"
    ))?;
    match &channel.secret {
        Some(secret) => print_line(format!(
            "its signing secret, shown only this once: {}",
            one_line(secret)
        )),
        None => Ok(()),
    }
}

fn test(api: &ApiClient, id: &str, json: bool) -> anyhow::Result<ExitCode> {
    let tested = api.test_channel(id)?;
    match (json, &tested.error) {
        (true, _) => print_json(serde_json::to_string(&tested)?)?,
        (false, None) => print_line("it arrived")?,
        (false, Some(error)) => bail!("it did not arrive: {error}"),
    }
    Ok(match tested.delivered {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Changes what was given, and leaves the rest as it is.
fn change_settings(
    api: &ApiClient,
    changes: &NotifySettingsArguments,
) -> anyhow::Result<NotificationSettings> {
    let settings = api.notification_settings()?;
    let mut preferences = NotificationPreferences {
        events: settings.events.clone(),
        sessions: settings.sessions.clone(),
        quiet_hours: settings.quiet_hours.clone(),
        show_command: changes.show_command.unwrap_or(settings.show_command),
        vote_links: changes.vote_links.unwrap_or(settings.vote_links),
    };
    if let Some(events) = &changes.events {
        preferences.events = parse_events(events)?;
    }
    if let Some(sessions) = &changes.sessions {
        preferences.sessions = parse_sessions(sessions)?;
    }
    if let Some(hours) = &changes.quiet {
        preferences.quiet_hours = parse_quiet_hours(hours, changes.time_zone.as_deref())?;
    }
    let is_same = preferences.events == settings.events
        && preferences.sessions == settings.sessions
        && preferences.quiet_hours == settings.quiet_hours
        && preferences.show_command == settings.show_command
        && preferences.vote_links == settings.vote_links;
    match is_same {
        true => Ok(settings),
        false => Ok(api.set_notification_preferences(&preferences)?),
    }
}

fn parse_events(names: &[EventName]) -> anyhow::Result<BTreeSet<NotificationEvent>> {
    if names.contains(&EventName::None) && names.len() > 1 {
        bail!("--events is `none`, or names events");
    }
    let event = |name: &EventName| match name {
        EventName::Opened => Some(NotificationEvent::Opened),
        EventName::Escalated => Some(NotificationEvent::Escalated),
        EventName::Closing => Some(NotificationEvent::Closing),
        EventName::None => None,
    };
    Ok(names.iter().filter_map(event).collect())
}

fn parse_sessions(names: &[String]) -> anyhow::Result<Option<BTreeSet<SessionId>>> {
    if let [all] = names
        && all == "all"
    {
        return Ok(None);
    }
    let parse = |name: &String| SessionId::parse(name).map_err(anyhow::Error::from);
    let sessions: anyhow::Result<_> = names.iter().map(parse).collect();
    Ok(Some(sessions.context("--sessions")?))
}

fn parse_quiet_hours(text: &str, zone: Option<&str>) -> anyhow::Result<Option<QuietHours>> {
    if text == "none" {
        return Ok(None);
    }
    let (from, to) = text
        .split_once('-')
        .context("--quiet is hours such as 22:00-07:00, or `none`")?;
    let time_zone = match zone {
        Some(zone) => zone.to_owned(),
        None => local_time_zone()
            .context("the time zone of this machine is not known; give --time-zone")?,
    };
    Ok(Some(QuietHours {
        from: from.trim().to_owned(),
        to: to.trim().to_owned(),
        time_zone,
    }))
}

/// The name of this machine's time zone, as its settings have it.
fn local_time_zone() -> Option<String> {
    let variable = std::env::var("TZ").ok().filter(|zone| zone.contains('/'));
    let linked = || {
        let target = std::fs::canonicalize("/etc/localtime").ok()?;
        let (_, name) = target.to_str()?.split_once("/zoneinfo/")?;
        Some(name.to_owned())
    };
    variable.or_else(linked)
}

fn print_settings(settings: &NotificationSettings, json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(serde_json::to_string(settings)?);
    }
    if settings.channels.is_empty() {
        print_line("you have no channels; add one with `pvp notify add`, or open the page")?;
    } else {
        let header = ["ID", "KIND", "LABEL", "TARGET", "STATE"];
        let mut rows = vec![header.map(str::to_owned)];
        rows.extend(settings.channels.iter().map(channel_row));
        align(&rows).into_iter().try_for_each(print_line)?;
    }
    for line in preference_lines(settings) {
        print_line(line)?;
    }
    Ok(())
}

fn channel_row(channel: &NotificationChannel) -> [String; 5] {
    let delivered = || match channel.last_delivery {
        Some(at) => format!(
            "delivered {} ago",
            narrate::duration(now().millis_since(at))
        ),
        None => "not used yet".to_owned(),
    };
    let state = match (channel.enabled, &channel.last_error) {
        (false, _) => "off".to_owned(),
        (true, Some(error)) => format!("failed: {}", one_line(error)),
        (true, None) => delivered(),
    };
    [
        channel.id.clone(),
        channel.kind.to_string(),
        one_line(&channel.label),
        one_line(&channel.target),
        state,
    ]
}

fn preference_lines(settings: &NotificationSettings) -> Vec<String> {
    let events: Vec<_> = settings.events.iter().map(|event| event.as_str()).collect();
    let events = match events.as_slice() {
        [] => "nothing".to_owned(),
        events => events.join(", "),
    };
    let sessions = match &settings.sessions {
        None => "all that you may vote in".to_owned(),
        Some(sessions) if sessions.is_empty() => "none".to_owned(),
        Some(sessions) => {
            let names: Vec<_> = sessions.iter().map(SessionId::as_str).collect();
            names.join(", ")
        }
    };
    let quiet = match &settings.quiet_hours {
        None => "none".to_owned(),
        Some(hours) => one_line(&format!("{}-{} {}", hours.from, hours.to, hours.time_zone)),
    };
    let kinds: Vec<_> = settings.kinds.iter().map(|kind| kind.as_str()).collect();
    vec![
        format!("events:        {events}"),
        format!("sessions:      {sessions}"),
        format!("quiet hours:   {quiet}"),
        format!("show command:  {}", settings.show_command),
        format!("vote links:    {}", vote_links_text(settings)),
        format!("allowed kinds: {}", kinds.join(", ")),
    ]
}

fn vote_links_text(settings: &NotificationSettings) -> &'static str {
    match (settings.vote_links, settings.vote_links_allowed) {
        (true, true) => "true",
        (true, false) => "true, but the operator of the server does not allow them",
        (false, _) => "false",
    }
}
