//! Follows which directories beside the workspace the session lets reads see, and decides which of
//! them this executor accepts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pvp_policy::check_read_root;
use pvp_protocol::payload::{PolicyAllow, PolicyRevoke, SessionConfigUpdate, SessionWelcome};
use pvp_protocol::{MessageId, Timestamp};

use super::ExecutorSettings;
use crate::private_paths::private_paths;

/// The read roots of a session, as its log tells them.
#[derive(Debug, Default)]
pub(super) struct ReadRoots {
    configured: Vec<String>,
    /// By the id of the allow rule, with its end.
    allowed: BTreeMap<MessageId, (String, Timestamp)>,
}

/// A read root that this executor accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AcceptedReadRoot {
    /// The path as the session names it.
    pub(super) name: String,
    /// The same without symbolic links.
    pub(super) directory: PathBuf,
}

impl ReadRoots {
    pub(super) fn on_welcome(&mut self, welcome: &SessionWelcome) {
        self.configured = welcome.config.read_roots.clone();
        let rules = welcome.rules.iter();
        self.allowed = rules
            .filter_map(|rule| {
                let root = rule.read_root.clone()?;
                Some((rule.rule.clone(), (root, rule.expires_at)))
            })
            .collect();
    }

    pub(super) fn on_allow(&mut self, rule: &MessageId, allow: &PolicyAllow) {
        if let Some(root) = &allow.read_root {
            let rule_end = (root.clone(), allow.expires_at);
            self.allowed.insert(rule.clone(), rule_end);
        }
    }

    pub(super) fn on_revoke(&mut self, revoke: &PolicyRevoke) {
        self.allowed.remove(&revoke.rule);
    }

    pub(super) fn on_config_update(&mut self, update: &SessionConfigUpdate) {
        if let Some(read_roots) = &update.changes.read_roots {
            self.configured = read_roots.clone();
        }
    }

    /// Those that hold now and that this executor accepts.
    pub(super) fn accepted(
        &mut self,
        settings: &ExecutorSettings,
        now: Timestamp,
    ) -> Vec<AcceptedReadRoot> {
        self.allowed.retain(|_, (_, expires_at)| *expires_at > now);
        if !settings.accept_read_roots {
            return Vec::new();
        }
        let allowed = self.allowed.values().map(|(root, _)| root);
        let roots = self.configured.iter().chain(allowed);
        let mut accepted = Vec::new();
        for name in roots {
            match accept(name, settings) {
                Ok(directory) => {
                    let name = name.clone();
                    accepted.push(AcceptedReadRoot { name, directory });
                }
                Err(why) => tracing::warn!(root = name, why, "does not accept a read root"),
            }
        }
        accepted
    }
}

/// The directory of a read root without symbolic links, or why reads must not see it.
fn accept(name: &str, settings: &ExecutorSettings) -> Result<PathBuf, String> {
    check_read_root(name).map_err(|problem| problem.to_string())?;
    let directory = Path::new(name).canonicalize();
    let directory = directory.map_err(|error| error.to_string())?;
    if !directory.is_dir() {
        return Err("it is not a directory".to_owned());
    }
    // It may be a link to what could not be named.
    let path = directory.to_str().ok_or("its name is not valid UTF-8")?;
    check_read_root(path).map_err(|problem| problem.to_string())?;
    if home_directory().is_some_and(|home| home.starts_with(&directory)) {
        return Err("it contains the whole home directory".to_owned());
    }
    let workspace = settings.workspace.canonicalize().ok();
    let in_workspace = |path: &Path| workspace.as_ref().is_some_and(|it| path.starts_with(it));
    for private in private_paths(settings) {
        let Ok(private) = private.canonicalize() else {
            continue;
        };
        // What is private in the workspace is hidden from reads anyway.
        let holds_it = private.starts_with(&directory) && !in_workspace(&private);
        if holds_it || directory.starts_with(&private) {
            return Err("links, keys or journals are kept there".to_owned());
        }
    }
    Ok(directory)
}

fn home_directory() -> Option<PathBuf> {
    std::env::home_dir()?.canonicalize().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Machine {
        directory: tempfile::TempDir,
        settings: ExecutorSettings,
    }

    impl Machine {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let at = |name: &str| directory.path().canonicalize().unwrap().join(name);
            for name in ["work", "state/journal", "data/sets"] {
                std::fs::create_dir_all(at(name)).unwrap();
            }
            std::fs::write(at("file"), "").unwrap();
            let settings = ExecutorSettings::new(at("work"), at("state"));
            Self {
                directory,
                settings,
            }
        }

        fn path(&self, name: &str) -> String {
            let directory = self.directory.path().canonicalize().unwrap();
            directory.join(name).to_str().unwrap().to_owned()
        }
    }

    fn allow(root: &str, expires_at: Timestamp) -> PolicyAllow {
        serde_json::from_value(json!({ "read_root": root, "expires_at": expires_at })).unwrap()
    }

    #[test]
    fn a_root_is_accepted_unless_it_shows_what_is_private() {
        let machine = Machine::new();
        let accepts = |root: &str| accept(root, &machine.settings);
        let sets = machine.path("data/sets");
        assert_eq!(accepts(&sets), Ok(PathBuf::from(&sets)));
        for refused in [
            machine.path("state"),
            machine.path("state/journal"),
            machine.path("missing"),
            machine.path("file"),
            machine.path(""),
            "/".to_owned(),
            "/proc".to_owned(),
            "data".to_owned(),
        ] {
            assert!(accepts(&refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_link_counts_as_what_it_leads_to() {
        let machine = Machine::new();
        let link = |to: &str, name: &str| {
            let link = machine.path(name);
            std::os::unix::fs::symlink(to, &link).unwrap();
            accept(&link, &machine.settings)
        };
        let sets = machine.path("data/sets");
        assert_eq!(link(&sets, "innocent"), Ok(PathBuf::from(sets)));
        for to in ["/", "/proc", "/etc/ssl/private", &machine.path("state")] {
            let name = format!("link{}", to.len());
            assert!(link(to, &name).is_err(), "{to}");
        }
    }

    #[test]
    fn a_root_holds_until_its_rule_expires_or_is_revoked() {
        let machine = Machine::new();
        let (one, two) = (machine.path("data"), machine.path("data/sets"));
        let now = Timestamp::from_millis(1_700_000_000_000);
        let id = |text: &str| MessageId::parse(text).unwrap();
        let mut read_roots = ReadRoots::default();
        let names = |read_roots: &mut ReadRoots, at| -> Vec<String> {
            let accepted = read_roots.accepted(&machine.settings, at);
            accepted.into_iter().map(|root| root.name).collect()
        };
        read_roots.on_allow(&id("r1"), &allow(&one, now.plus_seconds(60)));
        read_roots.on_allow(&id("r2"), &allow(&two, now.plus_seconds(90)));
        assert_eq!(names(&mut read_roots, now), [one.clone(), two.clone()]);
        let later = now.plus_seconds(60);
        assert_eq!(names(&mut read_roots, later), std::slice::from_ref(&two));
        let revoke = serde_json::from_value(json!({ "rule": "r2" })).unwrap();
        read_roots.on_revoke(&revoke);
        assert_eq!(names(&mut read_roots, now), Vec::<String>::new());
        let update = json!({ "changes": { "read_roots": [one] }, "reason": "x" });
        read_roots.on_config_update(&serde_json::from_value(update).unwrap());
        assert_eq!(names(&mut read_roots, now), std::slice::from_ref(&one));
        let closed = ExecutorSettings {
            accept_read_roots: false,
            ..machine.settings.clone()
        };
        assert_eq!(read_roots.accepted(&closed, now), []);
    }
}
