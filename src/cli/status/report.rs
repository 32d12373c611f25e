//! The text that `pvp` alone prints, for each state that this directory can be in.

use pvp_client::narrate;
use pvp_protocol::api::{GateListItem, SessionListItem, WhoAmI};
use pvp_protocol::{ParticipantKind, Role};

use crate::cli::one_line;

/// Sessions that are listed by name.
const MAX_NAMED_SESSIONS: usize = 5;

/// What is known about this directory.
pub(super) struct Report {
    /// How to call this program.
    pub(super) pvp: String,
    /// Whether there is a command `join`.
    pub(super) has_join: bool,
    /// Whether a server that was started in this directory has left its data.
    pub(super) has_data_here: bool,
    /// Whether a link for an agent is saved.
    pub(super) has_agent_link: bool,
    pub(super) server: ServerState,
}

/// What is known about the server.
pub(super) enum ServerState {
    /// No link is saved.
    Unknown,
    /// The saved link cannot be read.
    UnusableLink(String),
    Unreachable {
        base: String,
        why: String,
    },
    /// The server answers, but not to this link.
    Refused {
        base: String,
        why: String,
    },
    Running {
        base: String,
        me: WhoAmI,
        /// The open ones.
        sessions: Vec<SessionListItem>,
        gates: Vec<GateListItem>,
    },
}

/// A command to suggest, and what it does.
type Suggestion = (String, &'static str);

impl Report {
    pub(super) fn text(&self) -> String {
        let (mut lines, mut next) = self.state();
        next.push(suggest("--help", "all commands"));
        let width = next
            .iter()
            .map(|(command, _)| command.chars().count())
            .max();
        let width = width.unwrap_or_default();
        lines.push(String::new());
        lines.extend(
            next.iter()
                .map(|(command, what)| format!("  {} {command:<width$}  {what}", self.pvp)),
        );
        lines.join("\n")
    }

    fn state(&self) -> (Vec<String>, Vec<Suggestion>) {
        match &self.server {
            ServerState::Unknown => (
                vec!["This directory is not connected to a server.".to_owned()],
                self.first_steps(),
            ),
            ServerState::UnusableLink(why) => (
                vec![format!(
                    "The link for this directory cannot be used: {}.",
                    one_line(why)
                )],
                vec![
                    suggest("logout", "forget the link"),
                    suggest("login", "save another link"),
                ],
            ),
            ServerState::Unreachable { base, why } => (
                vec![format!(
                    "Server    {base} is not reachable: {}",
                    one_line(why)
                )],
                self.steps_without_server(),
            ),
            ServerState::Refused { base, why } => (
                vec![
                    format!("Server    {base}"),
                    format!(
                        "          it does not accept the saved link: {}",
                        one_line(why)
                    ),
                ],
                vec![
                    suggest(
                        "login",
                        "save a new link; ask whoever runs the server for one",
                    ),
                    suggest("logout", "forget the link"),
                ],
            ),
            ServerState::Running {
                base,
                me,
                sessions,
                gates,
            } => {
                let waiting = Waiting::new(me, gates);
                let lines = vec![
                    format!("You       {}", identity(me)),
                    format!("Server    {base}"),
                    format!("Sessions  {}", session_names(sessions)),
                    format!("Waiting   {}", waiting.text()),
                ];
                (lines, self.next_steps(me, sessions, &waiting))
            }
        }
    }

    fn first_steps(&self) -> Vec<Suggestion> {
        let join = match self.has_join {
            true => suggest("join CODE", "join a session that somebody shared with you"),
            false => suggest("login", "paste a link that somebody sent you"),
        };
        vec![
            suggest("demo", "see how it works, with a scripted agent"),
            suggest("up", "start a server with a session for this directory"),
            join,
        ]
    }

    fn steps_without_server(&self) -> Vec<Suggestion> {
        match self.has_data_here {
            true => vec![
                suggest("up", "start the server of this directory again"),
                suggest("login", "save another link"),
            ],
            false => vec![
                suggest("login", "save another link"),
                suggest("up", "start a server with a session for this directory"),
            ],
        }
    }

    fn next_steps(
        &self,
        me: &WhoAmI,
        sessions: &[SessionListItem],
        waiting: &Waiting,
    ) -> Vec<Suggestion> {
        if me.kind == ParticipantKind::Agent {
            return vec![
                suggest("agent --model MODEL", "join as the agent"),
                suggest("login", "save a link for yourself"),
            ];
        }
        if let Some(handle) = &waiting.first_for_me {
            return vec![
                suggest("gates", "list what is waiting"),
                suggest(&format!("show {handle}"), "read the first one"),
                suggest("tui", "decide on one screen"),
            ];
        }
        let prompts = me.roles.contains(&Role::Driver) || me.roles.contains(&Role::Admin);
        let mut next = Vec::new();
        if sessions.is_empty() {
            if me.session.is_none() && prompts {
                next.push(suggest("create", "make a session"));
            }
            next.push(suggest("sessions --all", "list sessions that have ended"));
            return next;
        }
        if self.has_agent_link {
            next.push(suggest("agent --model MODEL", "start an agent here"));
        }
        next.push(suggest("tui", "watch and decide on one screen"));
        if prompts {
            next.push(suggest("send 'TEXT'", "ask the agent something"));
        }
        next.push(suggest("gates --watch", "wait for the next decision"));
        next
    }
}

fn suggest(command: &str, what: &'static str) -> Suggestion {
    (command.to_owned(), what)
}

fn identity(me: &WhoAmI) -> String {
    let roles: Vec<_> = me.roles.iter().map(|role| role.as_str()).collect();
    let kind = match me.kind {
        ParticipantKind::Human => "",
        ParticipantKind::Agent => "agent, ",
    };
    format!("{} ({kind}{})", one_line(&me.name), roles.join(", "))
}

fn session_names(sessions: &[SessionListItem]) -> String {
    let names = sessions.iter().take(MAX_NAMED_SESSIONS);
    let names: Vec<_> = names.map(|session| session.session.as_str()).collect();
    match (names.as_slice(), sessions.len() - names.len()) {
        ([], _) => "none is open".to_owned(),
        (names, 0) => names.join(", "),
        (names, more) => format!("{} and {more} more", names.join(", ")),
    }
}

/// The commands that wait for a decision.
struct Waiting {
    all: u64,
    for_me: u64,
    /// The handle of the first that waits for this person.
    first_for_me: Option<String>,
}

impl Waiting {
    fn new(me: &WhoAmI, gates: &[GateListItem]) -> Self {
        let undecided = |gate: &&GateListItem| {
            let mut approvals = gate.open.approvals.iter();
            gate.may_vote && approvals.all(|approval| approval.participant != me.participant)
        };
        let mut mine = gates.iter().filter(undecided);
        let first_for_me = mine.next().map(|gate| gate.open.handle());
        Self {
            all: gates.len() as u64,
            for_me: u64::from(first_for_me.is_some()) + mine.count() as u64,
            first_for_me,
        }
    }

    fn text(&self) -> String {
        let commands = narrate::pluralize(self.all, "command");
        match (self.all, self.for_me) {
            (0, _) => "nothing".to_owned(),
            (_, 0) => format!("{commands}, none of them for you"),
            (1, _) => "1 command, for you to decide".to_owned(),
            (all, mine) if all == mine => format!("{commands}, for you to decide"),
            (_, mine) => format!("{commands}, {mine} of them for you to decide"),
        }
    }
}
