//! What an open gate waits for, for whoever proposed it.

use pvp_client::View;
use pvp_client::view::GateCard;

/// People that are named; the others are counted.
const MAX_NAMES: usize = 5;

/// The votes of an open gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateProgress {
    /// Which votes it waits for, in words.
    pub quorum: String,
    /// How many approvals count so far.
    pub received: u32,
    /// How many it needs.
    pub required: u32,
    /// The names of people who have approved.
    pub approved: Vec<String>,
    /// The names of people who may still approve.
    pub undecided: Vec<String>,
}

impl GateProgress {
    pub(crate) fn new(card: &GateCard, view: &View) -> Self {
        let name = |id| view.display_name(id).to_owned();
        Self {
            quorum: card.quorum_words.clone(),
            received: card.received,
            required: card.required,
            approved: card.votes.keys().map(name).collect(),
            undecided: card.undecided.iter().map(name).collect(),
        }
    }
}

impl std::fmt::Display for GateProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "waiting for {} (", self.quorum)?;
        if !self.approved.is_empty() {
            write!(f, "{} approved; ", listed(&self.approved))?;
        }
        match self.undecided.is_empty() {
            true => f.write_str("nobody else may approve now)")?,
            false => write!(f, "{} may approve)", listed(&self.undecided))?,
        }
        if self.required > 1 {
            write!(f, ", {} of {}", self.received, self.required)?;
        }
        Ok(())
    }
}

fn listed(names: &[String]) -> String {
    let mut text = names[..names.len().min(MAX_NAMES)].join(", ");
    if names.len() > MAX_NAMES {
        text.push_str(&format!(" and {} more", names.len() - MAX_NAMES));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(required: u32, approved: &[&str], undecided: &[&str]) -> String {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        GateProgress {
            quorum: "some approvals".to_owned(),
            received: u32::try_from(approved.len()).unwrap(),
            required,
            approved: names(approved),
            undecided: names(undecided),
        }
        .to_string()
    }

    #[test]
    fn it_says_who_is_asked_and_how_many_have_approved() {
        assert_eq!(
            progress(1, &[], &["ann", "bob"]),
            "waiting for some approvals (ann, bob may approve)"
        );
        assert_eq!(
            progress(2, &["ann"], &["bob", "cem"]),
            "waiting for some approvals (ann approved; bob, cem may approve), 1 of 2"
        );
        assert_eq!(
            progress(1, &[], &[]),
            "waiting for some approvals (nobody else may approve now)"
        );
        let many = ["a", "b", "c", "d", "e", "f", "g"];
        assert_eq!(
            progress(1, &[], &many),
            "waiting for some approvals (a, b, c, d, e and 2 more may approve)"
        );
    }
}
