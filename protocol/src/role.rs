//! The published roles, and the capabilities that they imply.

use std::collections::BTreeSet;

wire_enums! {
    /// A participant's role in a session; a participant may have several.
    pub enum Role {
        Driver,
        Navigator,
        Adversary,
        Observer,
        Approver,
        Admin,
    }

    /// One thing a participant may do.
    pub enum Capability {
        Prompt,
        Approve,
        Interrupt,
        Fork,
        AddContext,
        ManageParticipants,
        EndSession,
        /// Run one's own commands with `shell.exec` (an extension).
        Exec,
    }

    /// A person or a program.
    pub enum ParticipantKind {
        Human,
        Agent,
    }

    /// How a participant is connected.
    pub enum Transport {
        Websocket,
        Mcp,
        Http,
        Stdio,
    }
}

impl Role {
    /// What this role may do (the published table, and `exec` for driver and admin).
    pub fn capabilities(self) -> &'static [Capability] {
        use Capability::{
            AddContext, Approve, EndSession, Exec, Fork, Interrupt, ManageParticipants, Prompt,
        };
        match self {
            Role::Driver => &[Prompt, Interrupt, Fork, AddContext, Exec],
            Role::Navigator => &[Approve, Interrupt, Fork, AddContext],
            Role::Adversary => &[Prompt, Approve, Interrupt, Fork, AddContext],
            Role::Observer => &[],
            Role::Approver => &[Approve, Interrupt],
            Role::Admin => &[
                Prompt,
                Approve,
                Interrupt,
                Fork,
                AddContext,
                ManageParticipants,
                EndSession,
                Exec,
            ],
        }
    }
}

impl std::str::FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Role::ALL
            .iter()
            .copied()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| {
                let allowed: Vec<_> = Role::ALL.iter().map(|role| role.as_str()).collect();
                format!("`{text}` is not a role; use one of {}", allowed.join(", "))
            })
    }
}

/// What the holder of these roles may do. Agents never approve, whatever they hold.
pub fn capabilities_of<'a>(
    kind: ParticipantKind,
    roles: impl IntoIterator<Item = &'a Role>,
    explicit: impl IntoIterator<Item = &'a Capability>,
) -> BTreeSet<Capability> {
    let mut capabilities: BTreeSet<_> = roles
        .into_iter()
        .flat_map(|role| role.capabilities())
        .chain(explicit)
        .copied()
        .collect();
    if kind == ParticipantKind::Agent {
        capabilities.remove(&Capability::Approve);
    }
    capabilities
}
