//! Limits are shown to operators, and the shares that operators set are put into force.
//! The text that is shown is made in `store/publication.rs`.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{
    counter::{Complaints, is_away},
    held::held,
};
use tollgate_core::{
    Enforcement, Error, ErrorKind,
    raw::{Lock, WeakPublication},
    store::Publication,
};

/// The most limiters of a store that are shown. One call has all of them.
const MAX_LIMITERS: usize = 64;

/// Keeps the limits that are shown, as long as a limiter holds them.
#[derive(Default)]
pub(crate) struct Publications {
    added: Lock<Vec<WeakPublication>>,
    has_left_out: AtomicBool,
}

impl Publications {
    /// Shows these limits from now on.
    pub(crate) fn add(&self, limits: &Publication) {
        let mut added = self.added.lock();
        added.retain(|limits| limits.upgrade().is_some());
        added.push(limits.downgrade());
    }

    /// Returns the limits that are shown, unless there are very many, and forgets those whose
    /// limiters are gone.
    pub(crate) fn current(&self) -> Vec<Publication> {
        let mut current = held(&mut self.added.lock(), WeakPublication::upgrade);
        if let Some(limits) = current.get(MAX_LIMITERS)
            && !self.has_left_out.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                limiter = limits.name(),
                "a store publishes {MAX_LIMITERS} limiters, and leaves further ones out"
            );
        }
        current.truncate(MAX_LIMITERS);
        current
    }
}

/// The share of a limiter as an operator has written it.
pub type Share = Option<Vec<u8>>;

/// Shows limits, one call after the other.
#[derive(Default)]
pub(crate) struct Publisher {
    complaints: Complaints,
    /// The shares that were refused last, by the name of the limiter.
    refused: HashMap<String, Vec<u8>>,
}

impl Publisher {
    /// Shows these limits by a call, and puts the shares that it returns into force. After a failed
    /// call the last shares stay.
    pub(crate) async fn publish(
        &mut self,
        limits: &[Publication],
        call: impl Future<Output = Result<Vec<Share>, Error>>,
    ) {
        match call.await {
            Ok(shares) => {
                self.complaints.forget();
                limits
                    .iter()
                    .zip(&shares)
                    .for_each(|(limits, share)| self.obey(limits, share));
            }
            Err(error) if self.complaints.is_new(&error) => report(&error),
            Err(_) => {}
        }
    }

    /// Puts the share of an operator into force. One that is not valid counts as none, on every
    /// replica.
    fn obey(&mut self, limits: &Publication, text: &Share) {
        let percent = text.as_deref().and_then(percent);
        match (text, percent) {
            (Some(text), None) if limits.enforcement().is_some() => {
                let start = &text[..text.len().min(20)];
                if self
                    .refused
                    .insert(limits.name().to_owned(), start.to_owned())
                    .as_deref()
                    != Some(start)
                {
                    let share = String::from_utf8_lossy(start);
                    tracing::warn!(
                        limiter = limits.name(),
                        ?share,
                        "the operators' share must be 0% to 100%, so there is none"
                    );
                }
            }
            _ => _ = self.refused.remove(limits.name()),
        }
        if limits.set_share(percent).is_ok_and(|is_changed| is_changed) {
            let enforced = limits.enforcement().map(Enforcement::percent);
            let by = if percent.is_some() {
                "operator"
            } else {
                "code"
            };
            tracing::info!(
                limiter = limits.name(),
                enforced,
                by,
                "the share of enforced keys has changed"
            );
        }
    }
}

/// Reads a share as operators write it. Any bytes may stand in Redis.
fn percent(text: &[u8]) -> Option<u8> {
    Some(
        str::from_utf8(text)
            .ok()?
            .parse::<Enforcement>()
            .ok()?
            .percent(),
    )
}

/// Logs a failed call. A server that is away is an outage, which each limiter logs.
fn report(error: &Error) {
    match error.kind() {
        ErrorKind::PermissionDenied => tracing::warn!(
            code = "TOLLGATE-ACL",
            "limits are not published, or shares not read; grant +zadd +zremrangebyscore +pexpire +hmget on the keys of the \
             prefix"
        ),
        kind if is_away(kind) => tracing::debug!(%error, "limits could not be published"),
        _ => tracing::warn!(%error, "limits are not published, or shares not read"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::{Policy, Quota};

    /// A call that shows limits holds them until its reply arrives.
    #[test]
    fn a_limiter_that_follows_dropped_ones_is_shown_although_a_call_still_holds_those() {
        let publications = Publications::default();
        let add = |name: String| {
            let limits =
                Publication::new(name, Policy::fixed_window("api", Quota::per_day(1)), None);
            publications.add(&limits);
            limits
        };
        let dropped: Vec<_> = (0..MAX_LIMITERS)
            .map(|at| add(format!("dropped-{at}")))
            .collect();
        let call = publications.current();
        drop(dropped);
        let _later = add("later".to_owned());
        drop(call);
        assert_eq!(
            publications
                .current()
                .iter()
                .map(Publication::name)
                .collect::<Vec<_>>(),
            ["later"]
        );
    }
}
