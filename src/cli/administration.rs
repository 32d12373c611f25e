//! Finds out how people are invited and tokens managed: through an administrator's link, or through
//! the data directory of a server on this machine.

use std::path::Path;

use pvp_client::ApiClient;
use pvp_protocol::{ParticipantKind, SessionId};

use super::links::{self, LinkArguments};
use super::local_server::LocalServer;

/// How a server is administered.
pub(super) enum Administration {
    /// Through the server, with a link.
    Link(ApiClient),
    /// Through its data directory.
    Data {
        server: LocalServer,
        /// The session of the link that is remembered for this directory, if the data directory was
        /// found by itself.
        session: Option<SessionId>,
    },
}

impl Administration {
    /// The data directory or the link that is given; otherwise the server that was started in this
    /// directory, unless the remembered link leads to another one.
    pub(super) fn find(arguments: &LinkArguments, data: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(data) = data {
            return Ok(Self::Data {
                server: LocalServer::in_directory(data)?,
                session: None,
            });
        }
        if let Some(link) = arguments.given_link()? {
            return Ok(Self::Link(ApiClient::new(link)));
        }
        let Some(server) = LocalServer::started_here()? else {
            return Ok(Self::Link(arguments.api_client()?));
        };
        match links::find_saved_link(&[ParticipantKind::Human])? {
            Some((link, _)) if !server.is_reached_by(&link) => Ok(Self::Link(ApiClient::new(link))),
            saved => Ok(Self::Data {
                server,
                session: saved.and_then(|(link, _)| link.session().cloned()),
            }),
        }
    }
}
