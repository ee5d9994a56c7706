/// Tells what a commit did to a [`Reservation`](crate::Reservation).
///
/// A reservation is settled once. No commit after the first one changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Settlement {
    /// This commit settled the reservation.
    Settled,
    /// An earlier commit settled the reservation.
    AlreadySettled,
    /// No reservation of this id is held. Its time to live has ended, it was denied, it was never made, or it was made by
    /// [`Outage::Open`](crate::Outage::Open). What a lapsed reservation charged stays charged.
    Lapsed,
}

impl Settlement {
    /// Returns the stable word for metrics: `settled`, `already_settled` or `lapsed`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::AlreadySettled => "already_settled",
            Self::Lapsed => "lapsed",
        }
    }
}
