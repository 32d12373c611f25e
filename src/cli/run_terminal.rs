//! Starts an agent client: directly on this terminal, or in one of its own, where the person can
//! answer what waits.

use std::io::{IsTerminal, stdin, stdout};
use std::process::ExitStatus;
use std::str::FromStr;

use anyhow::Context;
use clap::Args;
use pvp_client::{ConnectOptions, Link};
use pvp_tui::client_terminal::{
    AnswerKey, ClientTerminal, ClientTerminalOptions, PersonAtTerminal,
};
use rustix::process::Pid;
use tokio::process::{Child, Command};

use super::run::wait_for;
use super::supervision::Supervision;
use super::tui;

#[derive(Args, Clone)]
pub(super) struct AnswerArguments {
    /// The key that shows what waits over the client's screen, to answer it there: ctrl+ and a
    /// letter, \ or ]; `none` runs the client directly on this terminal
    #[arg(
        long,
        value_name = "KEY",
        env = "PVP_ANSWER_KEY",
        default_value = "ctrl+]"
    )]
    answer_key: AnswerKeyChoice,
}

/// The key that shows what waits, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AnswerKeyChoice(Option<AnswerKey>);

impl FromStr for AnswerKeyChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            key => Ok(Self(Some(key.parse()?))),
        }
    }
}

impl AnswerArguments {
    /// How the person at this terminal answers; `None` if there is no terminal, nobody who could
    /// answer, or no wish to. Says which key it is where the client's status is made from.
    pub(super) fn plan(
        &self,
        supervision: &mut Supervision,
    ) -> anyhow::Result<Option<ClientTerminalOptions>> {
        let settings = &mut supervision.settings;
        let (Some(key), Some(person)) = (self.answer_key.0, &settings.person) else {
            return Ok(None);
        };
        if !can_show_cards() {
            return Ok(None);
        }
        let link =
            Link::parse(&person.link).context("the link that is saved for this directory")?;
        let options = ConnectOptions {
            session: Some(settings.session.clone()),
            // What waits comes with the welcome.
            history: Some(0),
            record_check: super::reported_record_check(),
            ..ConnectOptions::default()
        };
        settings.answer_key = Some(key.to_string());
        supervision.notices.push(format!(
            "press {key} in the client to see and answer what waits; --answer-key chooses another key"
        ));
        Ok(Some(ClientTerminalOptions {
            key,
            config: tui::load_config(None)?,
            person: PersonAtTerminal { link, options },
            agent: supervision.settings.participant.clone(),
        }))
    }
}

/// Whether there is a terminal on which something can be shown over something else.
fn can_show_cards() -> bool {
    let kind = std::env::var_os("TERM").unwrap_or_default();
    let is_simple = kind.is_empty() || kind == "dumb";
    stdin().is_terminal() && stdout().is_terminal() && !is_simple
}

/// A client that runs.
pub(super) enum StartedClient {
    OnThisTerminal(Child),
    InItsOwn(Box<ClientTerminal>),
}

impl StartedClient {
    pub(super) async fn start(
        mut command: Command,
        answers: Option<ClientTerminalOptions>,
    ) -> anyhow::Result<Self> {
        match answers {
            None => Ok(Self::OnThisTerminal(command.spawn()?)),
            Some(options) => {
                let started = ClientTerminal::start(command.as_std(), options).await?;
                Ok(Self::InItsOwn(Box::new(started)))
            }
        }
    }

    /// The client's process.
    pub(super) fn pid(&self) -> Option<Pid> {
        match self {
            Self::OnThisTerminal(child) => Pid::from_raw(i32::try_from(child.id()?).ok()?),
            Self::InItsOwn(terminal) => Some(terminal.client_pid()),
        }
    }

    /// Stays with the client until it ends.
    pub(super) async fn wait(self) -> anyhow::Result<ExitStatus> {
        match self {
            Self::OnThisTerminal(child) => wait_for(child).await,
            Self::InItsOwn(terminal) => terminal.run().await,
        }
    }
}
