//! The slices that the store may have charged although nobody holds them, because their answers were lost.
//! Slices that are held are in `account.rs`; who gives these back is in `shared.rs`.

use tokio::time::Instant;
use tollgate_model::raw::{Charge, PolicySetParts};

use crate::{
    Cost, Error, ErrorKind, Key, Limiter,
    reservation::{ReservationId, Settlement},
    store::Check,
};

/// The slices whose answers were lost, and have not come since.
#[derive(Default)]
pub(super) struct UnknownSlices(Vec<UnknownSlice>);

/// A slice whose answer was lost.
pub(super) struct UnknownSlice {
    pub(super) number: u64,
    pub(super) limiter: Limiter,
    /// The time at which it goes back, before the store forgets it.
    pub(super) ends: Instant,
    /// The store holds it no longer.
    pub(super) lapses: Instant,
}

impl UnknownSlices {
    /// Notes a slice whose call ended for this reason: `None` for an answer of the store. Keeps what
    /// is known of an earlier call for it, because the store may have charged that one.
    pub(super) fn note(&mut self, slice: UnknownSlice, cause: Option<ErrorKind>) {
        match cause {
            None => self.0.retain(|unknown| !unknown.is(&slice)),
            Some(_) if may_be_charged(cause) && self.end_of(&slice).is_none() => self.0.push(slice),
            Some(_) => {}
        }
    }

    /// Returns when this slice goes back, if the store may have charged it in an earlier call.
    pub(super) fn end_of(&self, slice: &UnknownSlice) -> Option<Instant> {
        let earlier = self.0.iter().find(|unknown| unknown.is(slice))?;
        Some(earlier.ends)
    }

    /// Returns when the time to live of the first one ends, without those of the number that is asked
    /// for at present.
    pub(super) fn next_end(&self, asked: Option<u64>) -> Option<Instant> {
        let settled = self.0.iter().filter(|slice| asked != Some(slice.number));
        settled.map(|slice| slice.ends).min()
    }

    /// Takes those whose time to live has ended by now, without those of the number that is asked for.
    pub(super) fn end(&mut self, now: Instant, asked: Option<u64>) -> Vec<UnknownSlice> {
        let has_ended = |slice: &mut UnknownSlice| slice.ends <= now && asked != Some(slice.number);
        self.0.extract_if(.., has_ended).collect()
    }

    pub(super) fn take(&mut self) -> Vec<UnknownSlice> {
        std::mem::take(&mut self.0)
    }
}

impl UnknownSlice {
    /// Returns whether the store knows both by one id.
    fn is(&self, other: &Self) -> bool {
        let fingerprint = |slice: &Self| slice.limiter.policies().fingerprint();
        self.number == other.number && fingerprint(self) == fingerprint(other)
    }

    /// Returns what the store may have charged. The limiter repeats what does not reach it.
    pub(super) async fn cancel(&self, key: &Key, id: &ReservationId) -> Result<Settlement, Error> {
        let (inner, nothing) = (self.limiter.inner(), Charge::from(Cost::ZERO));
        let check = Check::of(self.limiter.policies(), key, nothing.borrow());
        inner.commit(check, id, self.lapses).await
    }
}

/// Returns whether a call that failed for this reason may have charged its cost.
fn may_be_charged(cause: Option<ErrorKind>) -> bool {
    matches!(
        cause,
        Some(
            ErrorKind::ConnectionLost
                | ErrorKind::Protocol
                | ErrorKind::Timeout
                | ErrorKind::Unavailable
        )
    )
}
