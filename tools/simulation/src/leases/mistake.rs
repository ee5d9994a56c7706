//! Mistakes in the rule of leases, as switches. Random schedules have to find each of them.

/// One line of the rule that is left out or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// Units that lapse are not charged.
    LapseIsFree,
    /// Units that lapse are charged at the start of the last generation in which they can be spent.
    LapseIsEarly,
    /// Reported units are not charged.
    ReportIsFree,
    /// Outstanding units do not count in a decision.
    OutstandingIsFree,
    /// A grant is not added to the outstanding units.
    GrantIsForgotten,
    /// A grant may exceed the share of the burst.
    NoShare,
    /// A set grants the most that one of its policies grants.
    MostOfTheSet,
    /// A report for a state that was lost is applied to the state that followed.
    AnyBirth,
    /// A report of a generation that has ended is applied to the current one.
    AnyGeneration,
    /// A report is sent twice.
    ReportedTwice,
    /// The replica counts the life of a grant from the answer, not from the call.
    LifeFromTheAnswer,
    /// The replica spends to the last microsecond of a clock that may be slow.
    LifeToTheEnd,
    /// The replica counts the life of a grant on a clock that stops while the machine is suspended.
    ClockSleeps,
    /// A grant lives for one more generation.
    LongLife,
    /// The key expires when the state is fresh, although units are outstanding.
    EarlyExpiry,
}

impl Mistake {
    /// Lists every mistake.
    pub(crate) const ALL: [Self; 15] = [
        Self::LapseIsFree,
        Self::LapseIsEarly,
        Self::ReportIsFree,
        Self::OutstandingIsFree,
        Self::GrantIsForgotten,
        Self::NoShare,
        Self::MostOfTheSet,
        Self::AnyBirth,
        Self::AnyGeneration,
        Self::ReportedTwice,
        Self::LifeFromTheAnswer,
        Self::LifeToTheEnd,
        Self::ClockSleeps,
        Self::LongLife,
        Self::EarlyExpiry,
    ];
}
