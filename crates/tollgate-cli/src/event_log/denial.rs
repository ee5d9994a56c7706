//! Finds the denial that an operator asks for, and what stood around it: a pure function of a log.
//! The state of the key now is read by `commands/why.rs`.

use serde::Serialize;

use super::{EventLog, Logged};

const DAY_US: u64 = 86_400_000_000;

/// The most microseconds between the two events of one decision: each is written with a time of its own.
const EXCEPTED_WITHIN_US: u64 = 1_000_000;

/// The moment that an operator names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A time in microseconds since the Unix epoch.
    At(u64),
    /// A time of the day, in UTC, in microseconds: of the last day of the log that has it.
    OfDay(u64),
    /// The last denial of the log.
    Last,
}

/// The question of an operator: the names of a key, when, and how exactly.
#[derive(Debug)]
pub(crate) struct Question {
    /// The encoded key, as the application may have named it, and its digest.
    pub(crate) keys: Vec<String>,
    pub(crate) digests: Vec<String>,
    pub(crate) moment: Moment,
    /// The most microseconds between the moment and the denial.
    pub(crate) within_us: u64,
}

/// The answer of the log.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Answer {
    /// The denial that is nearest to the moment. `None` when there is none.
    pub(crate) denial: Option<Logged>,
    /// The moment from which the same check would have been admitted.
    pub(crate) admitted_us: Option<u64>,
    /// The denials of the key around the moment, by limiter and policy.
    pub(crate) denials: Vec<Denials>,
    /// The outage of the limiter at that moment: when it began, and its reason.
    pub(crate) outage: Option<Logged>,
    /// The lockout of the key that led to the denial.
    pub(crate) lockout: Option<Logged>,
    /// The event that says that this quota was that of an exception.
    pub(crate) exception: Option<Logged>,
    /// The last load of other rules before the denial.
    pub(crate) rules: Option<Logged>,
    /// The nearest denials of the key before and after, when there is none around the moment.
    pub(crate) before: Option<Logged>,
    pub(crate) after: Option<Logged>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Denials {
    pub(crate) limiter: String,
    pub(crate) policy: String,
    pub(crate) count: u64,
}

impl Moment {
    /// Reads a time, or a time of the day such as `12:03` or `12:03:11`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split(':').collect();
        let number = |text: &str, most: u64| {
            let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>()
                .ok()
                .filter(|number| is_number && *number <= most)
        };
        let seconds = match parts[..] {
            [hour, minute] => number(hour, 23)
                .zip(number(minute, 59))
                .map(|(hour, minute)| 3_600 * hour + 60 * minute),
            [hour, minute, second] => number(hour, 23)
                .zip(number(minute, 59))
                .zip(number(second, 59))
                .map(|((hour, minute), second)| 3_600 * hour + 60 * minute + second),
            _ => None,
        };
        match seconds {
            Some(seconds) => Ok(Self::OfDay(seconds * 1_000_000)),
            None => tollgate_operator::text::parse_time(text)
                .map(Self::At)
                .ok_or_else(|| {
                    "expected a time such as 12:03, 12:03:11 (UTC) or 2026-01-31T12:03:11Z"
                        .to_owned()
                }),
        }
    }
}

impl Question {
    /// Returns whether an event is one of the key, or one that stands around its denials.
    pub(crate) fn wants(&self, event: &Logged) -> bool {
        let is_of_key = event.key.is_some() || event.key_digest.is_some();
        if is_of_key { self.is_of(event) } else { true }
    }

    /// Returns whether an event is one of the key, or of a key below it.
    fn is_of(&self, event: &Logged) -> bool {
        let of = |key: &String| {
            let is_of = |own: &String| {
                let rest = key.strip_prefix(own.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('>'))
            };
            self.keys.iter().any(is_of)
        };
        event.key.as_ref().is_some_and(of)
            || event
                .key_digest
                .as_ref()
                .is_some_and(|digest| self.digests.contains(digest))
    }

    /// Returns the moment in a log, whose last event is that of `last_us`.
    fn at_us(&self, log: &EventLog) -> Option<u64> {
        match self.moment {
            Moment::At(at_us) => Some(at_us),
            Moment::OfDay(of_day_us) => {
                let day = log.last_us - log.last_us % DAY_US;
                let at_us = day + of_day_us;
                // The log does not reach that time of its last day.
                let is_later = at_us > log.last_us.saturating_add(self.within_us);
                Some(if is_later {
                    at_us.saturating_sub(DAY_US)
                } else {
                    at_us
                })
            }
            Moment::Last => {
                let last = log
                    .events
                    .iter()
                    .rev()
                    .find(|event| self.is_denial(event))?;
                Some(last.at_us)
            }
        }
    }

    fn is_denial(&self, event: &Logged) -> bool {
        event.event == "denied" && self.is_of(event)
    }

    /// Answers from a log whose events are in the order of their times.
    pub(crate) fn answer(&self, log: &EventLog) -> Answer {
        let Some(at_us) = self.at_us(log) else {
            return Answer::default();
        };
        let denials = || log.events.iter().filter(|event| self.is_denial(event));
        let is_near = |event: &&Logged| event.at_us.abs_diff(at_us) <= self.within_us;
        // Of several at the same distance, the one with the longest wait: it is what kept the key out.
        let nearest = denials().filter(is_near).min_by_key(|event| {
            let wait = event.retry_after_ms.unwrap_or(u64::MAX);
            (event.at_us.abs_diff(at_us), std::cmp::Reverse(wait))
        });
        let Some(denial) = nearest else {
            return Answer {
                before: denials().rev().find(|event| event.at_us < at_us).cloned(),
                after: denials().find(|event| event.at_us > at_us).cloned(),
                ..Answer::default()
            };
        };
        let mut counted: Vec<Denials> = Vec::new();
        for event in denials().filter(is_near) {
            let name = |name: &Option<String>| name.clone().unwrap_or_default();
            let (limiter, policy) = (name(&event.limiter), name(&event.policy));
            match counted
                .iter_mut()
                .find(|denials| denials.limiter == limiter && denials.policy == policy)
            {
                Some(denials) => denials.count += 1,
                None => counted.push(Denials {
                    limiter,
                    policy,
                    count: 1,
                }),
            }
        }
        let before = || {
            log.events
                .iter()
                .rev()
                .filter(|event| event.at_us <= denial.at_us)
        };
        let of_limiter = |event: &&Logged| event.limiter == denial.limiter;
        let outage = before()
            .filter(of_limiter)
            .find(|event| matches!(&*event.event, "outage_began" | "outage_ended"))
            .filter(|event| event.event == "outage_began");
        let lockout = before().filter(of_limiter).find(|event| {
            event.event == "locked_out" && event.policy == denial.policy && self.is_of(event)
        });
        let is_lockout = denial.algorithm.as_deref() == Some("lockout");
        let rules = before().find(|event| event.event == "rules_reloaded");
        // The decision raised both events at once.
        let exception = log.events.iter().find(|event| {
            event.event == "excepted"
                && event.at_us.abs_diff(denial.at_us) <= EXCEPTED_WITHIN_US
                && (&event.limiter, &event.policy) == (&denial.limiter, &denial.policy)
                && (&event.key, &event.key_digest) == (&denial.key, &denial.key_digest)
                && event.quota == denial.quota
        });
        Answer {
            admitted_us: denial
                .retry_after_ms
                .map(|wait_ms| denial.at_us.saturating_add(wait_ms.saturating_mul(1_000))),
            denials: counted,
            outage: outage.cloned(),
            lockout: lockout.filter(|_| is_lockout).cloned(),
            exception: exception.cloned(),
            rules: rules.cloned(),
            denial: Some(denial.clone()),
            before: None,
            after: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    /// 2026-11-29T00:00:00Z.
    const TODAY: u64 = 1_795_910_400 * SECOND;
    const NOON: u64 = 12 * 3_600 * SECOND;

    fn event(name: &str, at_us: u64) -> Logged {
        Logged {
            event: name.to_owned(),
            at_us,
            limiter: Some("search".to_owned()),
            ..Logged::default()
        }
    }

    fn denied(key: &str, policy: &str, at_us: u64, wait_ms: Option<u64>) -> Logged {
        Logged {
            key: Some(key.to_owned()),
            policy: Some(policy.to_owned()),
            retry_after_ms: wait_ms,
            ..event("denied", at_us)
        }
    }

    fn log(events: Vec<Logged>) -> EventLog {
        let last_us = events.iter().map(|event| event.at_us).max().unwrap_or(0);
        EventLog {
            events,
            last_us,
            ..EventLog::default()
        }
    }

    fn question(key: &str, moment: Moment) -> Question {
        Question {
            keys: vec![key.to_owned()],
            digests: vec!["d".repeat(32)],
            moment,
            within_us: 60 * SECOND,
        }
    }

    #[test]
    fn a_time_of_the_day_is_that_of_the_last_day_that_the_log_reaches() {
        assert_eq!(
            Moment::parse("12:03"),
            Ok(Moment::OfDay(NOON + 180 * SECOND))
        );
        assert_eq!(
            Moment::parse("12:03:11"),
            Ok(Moment::OfDay(NOON + 191 * SECOND))
        );
        assert_eq!(
            Moment::parse("2026-11-29T12:00:00Z"),
            Ok(Moment::At(TODAY + NOON))
        );
        for text in [
            "",
            "noon",
            "24:00",
            "12:60",
            "12:3",
            "1:03",
            "12:03:11:00",
            "+1:03",
        ] {
            assert!(Moment::parse(text).is_err(), "{text}");
        }
        for (last, expected) in [
            (NOON, TODAY + NOON),
            (NOON - 61 * SECOND, TODAY + NOON - DAY_US),
        ] {
            let log = log(vec![denied("other", "day", TODAY + last, None)]);
            assert_eq!(
                question("acme", Moment::OfDay(NOON)).at_us(&log),
                Some(expected)
            );
        }
    }

    #[test]
    fn the_nearest_denial_answers_with_what_stood_around_it() {
        let at = TODAY + NOON;
        let events = vec![
            Logged {
                rules: Some(3),
                ..event("rules_reloaded", at - 900 * SECOND)
            },
            event("outage_began", at - 600 * SECOND),
            event("outage_ended", at - 500 * SECOND),
            event("outage_began", at - 5 * SECOND),
            denied("acme", "day", at - 50 * SECOND, Some(7)),
            denied("acme", "burst", at + 10 * SECOND, Some(1_000)),
            denied("acme>ann", "day", at + 10 * SECOND, Some(90_000)),
            denied("acmes", "day", at, Some(1)),
            event("outage_ended", at + 20 * SECOND),
            denied("acme", "day", at + 61 * SECOND, Some(1)),
        ];
        let answer = question("acme", Moment::OfDay(NOON)).answer(&log(events.clone()));
        let denial = answer.denial.expect("a denial");
        // Of two at once, that with the longer wait kept the key out. It is of a key below.
        assert_eq!(
            (denial.key.as_deref(), denial.policy.as_deref()),
            (Some("acme>ann"), Some("day"))
        );
        assert_eq!(answer.admitted_us, Some(at + 100 * SECOND));
        assert_eq!(
            answer.outage.map(|outage| outage.at_us),
            Some(at - 5 * SECOND)
        );
        assert_eq!(answer.rules.and_then(|rules| rules.rules), Some(3));
        let counted: Vec<_> = answer
            .denials
            .iter()
            .map(|denials| (&*denials.policy, denials.count))
            .collect();
        assert_eq!(counted, [("day", 2), ("burst", 1)]);

        // Behind the outage there is none.
        let later = question("acme", Moment::Last).answer(&log(events.clone()));
        assert_eq!(
            (later.denial.map(|denial| denial.at_us), later.outage),
            (Some(at + 61 * SECOND), None)
        );
        let none = question("acme", Moment::At(at - 200 * SECOND)).answer(&log(events.clone()));
        assert_eq!((none.denial, none.before), (None, None));
        assert_eq!(none.after.map(|after| after.at_us), Some(at - 50 * SECOND));
        let unknown = question("nobody", Moment::Last).answer(&log(events));
        assert!(unknown.denial.is_none() && unknown.before.is_none() && unknown.after.is_none());
    }

    #[test]
    fn a_key_is_found_by_its_digest_and_a_lockout_by_its_key() {
        let at = TODAY + NOON;
        let of_digest = |mut event: Logged, digest: &str| {
            (event.key, event.key_digest) = (None, Some(digest.repeat(32)));
            event
        };
        let lockout = |event: Logged| Logged {
            algorithm: Some("lockout".to_owned()),
            ..event
        };
        let locked = |key: &str, at_us| Logged {
            event: "locked_out".to_owned(),
            ..denied(key, "login", at_us, Some(9))
        };
        let events = vec![
            locked("other", at - 3 * SECOND),
            of_digest(locked("acme", at - 9 * SECOND), "d"),
            of_digest(lockout(denied("acme", "login", at, None)), "d"),
            of_digest(lockout(denied("acme", "login", at + SECOND, Some(5))), "e"),
        ];
        let answer = question("acme", Moment::At(at + SECOND)).answer(&log(events));
        assert_eq!(answer.denial.map(|denial| denial.at_us), Some(at));
        // One without a wait never passes.
        assert_eq!(answer.admitted_us, None);
        assert_eq!(
            answer.lockout.map(|lockout| lockout.at_us),
            Some(at - 9 * SECOND)
        );
    }
}
