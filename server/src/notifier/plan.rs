//! Decides what somebody is told about a gate, and when. Pure.

use std::collections::BTreeSet;

use pvp_notify::{QuietHoursError, QuietPeriod};
use pvp_protocol::api::{NotificationEvent, NotificationPreferences};
use pvp_protocol::payload::GateRequest;
use pvp_protocol::{SessionId, Timestamp};

/// What is known about the time of an open gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GateTimes {
    /// Whether only admins decide.
    pub(crate) escalated: bool,
    pub(crate) deadline: Option<Timestamp>,
    /// Seconds from opening, or from the escalation, to the deadline.
    pub(crate) timeout_seconds: u32,
}

impl GateTimes {
    pub(crate) fn of(request: &GateRequest, escalated: bool) -> Self {
        Self {
            escalated,
            deadline: request.deadline,
            timeout_seconds: request.timeout_seconds,
        }
    }

    /// From when on the gate counts as closing. One that is open only briefly counts so in the second
    /// half of its time, or it would be closing as soon as it opens.
    fn closing_at(&self, closing_seconds: u64) -> Option<Timestamp> {
        let lead = closing_seconds.min(u64::from(self.timeout_seconds) / 2);
        Some(self.deadline?.minus_seconds(lead))
    }
}

/// What somebody wants to be told, and when not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wishes {
    pub(crate) events: BTreeSet<NotificationEvent>,
    pub(crate) sessions: Option<BTreeSet<SessionId>>,
    pub(crate) quiet: Option<QuietPeriod>,
}

impl Wishes {
    pub(crate) fn parse(preferences: &NotificationPreferences) -> Result<Self, QuietHoursError> {
        let quiet = preferences.quiet_hours.as_ref();
        Ok(Self {
            events: preferences.events.clone(),
            sessions: preferences.sessions.clone(),
            quiet: quiet.map(QuietPeriod::parse).transpose()?,
        })
    }
}

/// What to tell somebody about a gate now, and when to look at it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Plan {
    pub(crate) tell: Option<NotificationEvent>,
    pub(crate) look_again: Option<Timestamp>,
}

/// Plans what somebody is told about a gate that they may vote on and have not.
pub(crate) fn plan(
    session: &SessionId,
    gate: &GateTimes,
    wishes: &Wishes,
    closing_seconds: u64,
    now: Timestamp,
) -> Plan {
    let wants_session = |wanted: &BTreeSet<SessionId>| wanted.contains(session);
    let is_over = gate.deadline.is_some_and(|deadline| deadline <= now);
    if is_over || !wishes.sessions.as_ref().is_none_or(wants_session) {
        return Plan::default();
    }
    let closing_at = gate.closing_at(closing_seconds);
    let is_closing = closing_at.is_some_and(|at| at <= now);
    let phase = match gate.escalated {
        true => NotificationEvent::Escalated,
        false => NotificationEvent::Opened,
    };
    // Whoever is told that a gate is closing need not be told that it opened.
    let latest = is_closing.then_some(NotificationEvent::Closing);
    let mut due = latest.into_iter().chain([phase]);
    let tell = due.find(|event| wishes.events.contains(event));
    let wants_closing = wishes.events.contains(&NotificationEvent::Closing);
    let quiet_until = wishes.quiet.as_ref().and_then(|quiet| quiet.end_of(now));
    match (tell, quiet_until) {
        (Some(_), Some(end)) => Plan {
            tell: None,
            look_again: Some(end),
        },
        (tell, _) => Plan {
            tell,
            look_again: closing_at.filter(|at| wants_closing && *at > now),
        },
    }
}

#[cfg(test)]
mod tests {
    use pvp_protocol::api::QuietHours;

    use super::*;
    use NotificationEvent::{Closing, Escalated, Opened};

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn session() -> SessionId {
        SessionId::parse("owl").unwrap()
    }

    fn wishes(events: &[NotificationEvent]) -> Wishes {
        Wishes {
            events: events.iter().copied().collect(),
            sessions: None,
            quiet: None,
        }
    }

    /// A gate that opened at second 1000 and times out at second 1300.
    fn gate(escalated: bool) -> GateTimes {
        GateTimes {
            escalated,
            deadline: Some(at(1300)),
            timeout_seconds: 300,
        }
    }

    #[test]
    fn everybody_is_told_the_latest_thing_that_they_want_to_know() {
        let all = wishes(&[Opened, Escalated, Closing]);
        for (gate, wishes, now, tell, look_again) in [
            (gate(false), &all, 1000, Some(Opened), Some(1240)),
            (gate(false), &all, 1239, Some(Opened), Some(1240)),
            (gate(false), &all, 1240, Some(Closing), None),
            (gate(false), &all, 1299, Some(Closing), None),
            (gate(false), &all, 1300, None, None),
            (gate(true), &all, 1000, Some(Escalated), Some(1240)),
            (gate(true), &all, 1240, Some(Closing), None),
            (gate(false), &wishes(&[Opened]), 1000, Some(Opened), None),
            (gate(false), &wishes(&[Opened]), 1299, Some(Opened), None),
            (gate(true), &wishes(&[Opened]), 1000, None, None),
            (gate(false), &wishes(&[Escalated]), 1000, None, None),
            (
                gate(true),
                &wishes(&[Escalated]),
                1250,
                Some(Escalated),
                None,
            ),
            (gate(false), &wishes(&[Closing]), 1000, None, Some(1240)),
            (gate(false), &wishes(&[Closing]), 1240, Some(Closing), None),
            (gate(false), &wishes(&[]), 1240, None, None),
        ] {
            let expected = Plan {
                tell,
                look_again: look_again.map(at),
            };
            let planned = plan(&session(), &gate, wishes, 60, at(now));
            assert_eq!(planned, expected, "{gate:?} {wishes:?} {now}");
        }
    }

    #[test]
    fn a_gate_without_a_deadline_never_closes_and_a_brief_one_closes_in_its_second_half() {
        let all = wishes(&[Opened, Closing]);
        let forever = GateTimes {
            escalated: false,
            deadline: None,
            timeout_seconds: 0,
        };
        let planned = plan(&session(), &forever, &all, 60, at(9_000_000));
        assert_eq!(
            planned,
            Plan {
                tell: Some(Opened),
                look_again: None
            }
        );
        let brief = GateTimes {
            escalated: false,
            deadline: Some(at(1020)),
            timeout_seconds: 20,
        };
        let planned = plan(&session(), &brief, &all, 60, at(1000));
        assert_eq!(
            planned,
            Plan {
                tell: Some(Opened),
                look_again: Some(at(1010))
            }
        );
        let planned = plan(&session(), &brief, &all, 60, at(1010));
        assert_eq!(
            planned,
            Plan {
                tell: Some(Closing),
                look_again: None
            }
        );
    }

    #[test]
    fn in_quiet_hours_nothing_is_told_until_they_end() {
        let hours = QuietHours {
            from: "00:00".to_owned(),
            to: "01:00".to_owned(),
            time_zone: "UTC".to_owned(),
        };
        let quiet = Wishes {
            quiet: Some(QuietPeriod::parse(&hours).unwrap()),
            ..wishes(&[Opened, Closing])
        };
        let open = GateTimes {
            deadline: Some(at(10_000)),
            ..gate(false)
        };
        let planned = |now| plan(&session(), &open, &quiet, 60, at(now));
        assert_eq!(
            planned(1000),
            Plan {
                tell: None,
                look_again: Some(at(3600))
            }
        );
        assert_eq!(
            planned(3600),
            Plan {
                tell: Some(Opened),
                look_again: Some(at(9940))
            }
        );
    }

    #[test]
    fn only_the_chosen_sessions_are_told_of() {
        let chosen = |names: &[&str]| Wishes {
            sessions: Some(
                names
                    .iter()
                    .map(|name| SessionId::parse(name).unwrap())
                    .collect(),
            ),
            ..wishes(&[Opened])
        };
        let told = |wishes: &Wishes| plan(&session(), &gate(false), wishes, 60, at(1000)).tell;
        assert_eq!(told(&chosen(&["owl", "fox"])), Some(Opened));
        assert_eq!(told(&chosen(&["fox"])), None);
        assert_eq!(told(&chosen(&[])), None);
    }
}
