//! The numbers of the two scripts: what they take and what they reply.
//! What the numbers mean is in the heads of `scripts/home.lua` and `scripts/purse.lua`; what is done
//! with them, in `rules/`.

use std::sync::LazyLock;

use smallvec::SmallVec;
use tollgate_core::{Error, ErrorKind};
use tollgate_redis::raw::NumberScript;

use crate::rules::{
    Ask, Call, Checked, Deposit, Deposited, Entry, Grant, Home, Lease, Ledger, Level, Meter, Pace,
    Purse, Report, Seen, Slot, Stamp, Terms,
};

/// The last part of the name of a purse on the server of a region. Another version of the stored
/// numbers gets another one.
pub(crate) const PURSE: &str = "purse2";

/// The last part of the name of a limit at its home.
pub(crate) const HOME: &str = "home1";

/// The text of the script of a purse.
pub(crate) const PURSE_LUA: &str = include_str!("../scripts/purse.lua");

/// The text of the script of a home.
pub(crate) const HOME_LUA: &str = include_str!("../scripts/home.lua");

/// Returns the script of a purse.
pub(crate) fn purse() -> &'static NumberScript {
    static SCRIPT: LazyLock<NumberScript> = LazyLock::new(|| NumberScript::new(PURSE_LUA));
    &SCRIPT
}

/// Returns the script of a home.
pub(crate) fn home() -> &'static NumberScript {
    static SCRIPT: LazyLock<NumberScript> = LazyLock::new(|| NumberScript::new(HOME_LUA));
    &SCRIPT
}

/// The time and the reign of a server. Production takes its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    /// The time in microseconds.
    pub(crate) now_us: f64,
    /// The reign.
    pub(crate) reign: f64,
}

impl At {
    /// The clock and the reign of the server.
    pub(crate) const SERVER: Self = Self {
        now_us: -1.0,
        reign: -1.0,
    };
}

/// Returns the numbers of a check at the purse.
pub(crate) fn check(at: At, floor_us: u64, terms: &Terms, ask: &Ask) -> Vec<f64> {
    let head = [
        at.now_us,
        at.reign,
        floor_us as f64,
        terms.length_us as f64,
        1.0,
    ];
    let whole = [
        ask.cost,
        u64::from(ask.is_first),
        ask.trip_us,
        ask.most,
        ask.want,
        ask.reports.len() as u64,
    ];
    let whole = whole.into_iter().chain(numbers_of(&ask.reports));
    head.into_iter()
        .chain(whole.map(|number| number as f64))
        .collect()
}

/// Returns the numbers of a deposit.
pub(crate) fn deposit(at: At, floor_us: u64, terms: &Terms, deposit: &Deposit) -> [f64; 12] {
    let Grant {
        stamp,
        units,
        life_us,
        retry_us,
    } = deposit.grant;
    [
        at.now_us,
        at.reign,
        floor_us as f64,
        terms.length_us as f64,
        2.0,
        deposit.reign as f64,
        deposit.number as f64,
        units as f64,
        stamp.birth as f64,
        stamp.generation as f64,
        life_us as f64,
        retry_us as f64,
    ]
}

/// Returns the numbers of a call of the home.
pub(crate) fn call(at: At, terms: &Terms, birth: u64, region: u64, call: &Call) -> Vec<f64> {
    let (amount, period_us) = match terms.meter {
        Meter::Bucket { amount, period_us } => (amount, period_us),
        Meter::Window { period_us } => (0, period_us),
    };
    let whole = [
        amount,
        period_us,
        terms.burst,
        terms.length_us,
        terms.most,
        birth,
        region,
        call.reign,
        call.number,
        call.want,
        call.held,
        call.reports.len() as u64,
    ];
    let whole = whole.into_iter().chain(numbers_of(&call.reports));
    let numbers = whole.map(|number| number as f64);
    [at.now_us, at.reign].into_iter().chain(numbers).collect()
}

fn numbers_of(reports: &[Report]) -> impl Iterator<Item = u64> + use<'_> {
    reports.iter().flat_map(|report| {
        let Stamp { birth, generation } = report.stamp;
        [birth, generation, report.spent, report.returned]
    })
}

/// Reads the reply to a check.
pub(crate) fn checked(reply: &[f64]) -> Result<(Seen, Checked), Error> {
    let whole = whole(reply)?;
    let [
        now_us,
        lost,
        admitted,
        free,
        retry_us,
        awaited,
        number,
        since_us,
        reign,
        want,
        held,
        units,
        lessor,
        leased,
        life_us,
        ref reports @ ..,
    ] = whole[..]
    else {
        return Err(malformed());
    };
    let (reports, []) = reports.as_chunks() else {
        return Err(malformed());
    };
    let report = |&[birth, generation, spent, returned]: &[u64; 4]| Report {
        stamp: Stamp { birth, generation },
        spent,
        returned,
    };
    let call = Call {
        reign,
        number,
        since_us,
        want,
        held,
        reports: reports.iter().map(report).collect(),
    };
    let checked = Checked {
        is_admitted: admitted == 1,
        free,
        retry_us,
        is_awaited: awaited == 1,
        lease: Lease {
            stamp: Stamp {
                birth: lessor,
                generation: leased,
            },
            units,
            life_us,
        },
        call: (number > 0).then_some(call),
    };
    Ok((Seen { now_us, lost }, checked))
}

/// Reads the reply to a deposit.
pub(crate) fn deposited(reply: &[f64]) -> Result<(Seen, Deposited), Error> {
    match whole(reply)?[..] {
        [now_us, lost, expected, free] => {
            let is_expected = expected == 1;
            Ok((Seen { now_us, lost }, Deposited { is_expected, free }))
        }
        _ => Err(malformed()),
    }
}

/// Reads the reply of the home.
pub(crate) fn granted(reply: &[f64]) -> Result<Grant, Error> {
    match whole(reply)?[..] {
        [units, birth, generation, life_us, retry_us] => Ok(Grant {
            stamp: Stamp { birth, generation },
            units,
            life_us,
            retry_us,
        }),
        _ => Err(malformed()),
    }
}

/// Reads the stored numbers of a purse. `None` when they are none of it.
pub(crate) fn purse_of(numbers: &[f64]) -> Option<Purse> {
    let (head, slots) = numbers.split_first_chunk::<10>()?;
    let (slots, []) = slots.as_chunks::<6>() else {
        return None;
    };
    // The demand alone has a fraction.
    let [times @ .., rate, asked, estimated] = head;
    let times = whole(times).ok()?;
    let [
        reign,
        now_us,
        number,
        since_us,
        claimed_us,
        granted,
        retry_at_us,
    ] = times[..]
    else {
        return None;
    };
    let pace = whole(&[*asked, *estimated]).ok()?;
    let slots = slots.iter().map(|slot| {
        let slot = whole(slot).ok()?;
        let [birth, generation, until_us, free, spent, leased] = slot[..] else {
            return None;
        };
        Some(Slot {
            stamp: Stamp { birth, generation },
            until_us,
            free,
            spent,
            leased,
        })
    });
    Some(Purse {
        reign,
        now_us,
        number,
        since_us,
        claimed_us,
        granted,
        retry_at_us,
        pace: Pace {
            rate: Some(*rate).filter(|rate| rate.is_finite() && *rate >= 0.0)?,
            asked: pace[0],
            estimated_us: pace[1],
        },
        slots: slots.collect::<Option<_>>()?,
    })
}

/// Reads the stored numbers of a home. `None` when they are none of it.
pub(crate) fn home_of(numbers: &[f64]) -> Option<Home> {
    let (head, entries) = numbers.split_first_chunk::<9>()?;
    let (entries, []) = entries.as_chunks::<7>() else {
        return None;
    };
    let head = whole(head).ok()?;
    let [
        reign,
        used,
        at,
        period_us,
        birth,
        generation,
        length_us,
        new,
        old,
    ] = head[..]
    else {
        return None;
    };
    if period_us == 0 || length_us == 0 {
        return None;
    }
    let entries = entries.iter().map(|entry| {
        let entry = whole(entry).ok()?;
        let [region, reign, number, birth, generation, units, at] = entry[..] else {
            return None;
        };
        Some(Entry {
            region,
            reign,
            number,
            stamp: Stamp { birth, generation },
            units,
            at,
        })
    });
    Some(Home {
        reign,
        level: Level {
            used,
            at,
            period_us,
        },
        stamp: Stamp { birth, generation },
        length_us,
        outstanding: [new, old],
        ledger: Ledger(entries.collect::<Option<_>>()?),
    })
}

/// Reads whole numbers of at most 53 bits.
fn whole(reply: &[f64]) -> Result<SmallVec<[u64; 24]>, Error> {
    let is_whole =
        |number: &f64| (0.0..=9_007_199_254_740_992.0).contains(number) && number.fract() == 0.0;
    if !reply.iter().all(is_whole) {
        return Err(malformed());
    }
    Ok(reply.iter().map(|&number| number as u64).collect())
}

fn malformed() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "the reply of a purse or a home is malformed",
    )
}
