//! Where the periods of a calendar begin and end, over changes of the clocks and short months.
//! What is counted in them is in `algorithm/calendar_window.rs`, the rules of zones come from
//! `zone.rs`.

use jiff::{
    Span, Timestamp,
    civil::{Date, DateTime},
    tz::TimeZone,
};

use super::{Anchor, CalendarUnit};

/// Says when periods begin: at the anchor, and after each `every` units of the calendar, before and
/// after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Schedule {
    pub(crate) unit: CalendarUnit,
    pub(crate) every: u16,
    /// `None` for the periods that people read on a calendar.
    pub(crate) anchor: Option<Anchor>,
}

impl Schedule {
    /// Returns the local time at which the period of a number begins. That of 0 begins at the
    /// anchor.
    ///
    /// It is computed from the anchor, and not from the period before: so a month without a 31st
    /// ends on its last day, and the next period begins on the 31st again.
    fn begin(self, number: i64) -> Option<DateTime> {
        let units = number.checked_mul(self.every.into())?;
        let span = match self.unit {
            CalendarUnit::Day => Span::new().try_days(units),
            CalendarUnit::Week => Span::new().try_weeks(units),
            CalendarUnit::Month => Span::new().try_months(units),
            CalendarUnit::Year => Span::new().try_years(units),
        };
        self.anchor().checked_add(span.ok()?).ok()
    }

    /// Returns the number of a period that begins near a day.
    fn number_near(self, date: Date) -> i64 {
        let first = self.anchor().date();
        let days = || date.duration_since(first).as_hours() / 24;
        let years = i64::from(date.year()) - i64::from(first.year());
        let units = match self.unit {
            CalendarUnit::Day => days(),
            CalendarUnit::Week => days() / 7,
            CalendarUnit::Month => 12 * years + i64::from(date.month()) - i64::from(first.month()),
            CalendarUnit::Year => years,
        };
        units.div_euclid(self.every.into())
    }

    fn anchor(self) -> DateTime {
        self.anchor.unwrap_or(Anchor::CALENDAR).local()
    }
}

/// The boundaries of three periods in a row, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Periods {
    /// The start of the period before.
    pub(crate) before: u64,
    /// The start of the current period.
    pub(crate) begin: u64,
    /// The end of the current period.
    pub(crate) close: u64,
    /// The end of the next period.
    pub(crate) after: u64,
}

impl Periods {
    /// Returns whether the current period covers this time.
    pub(crate) fn cover(&self, now_us: u64) -> bool {
        (self.begin..self.close).contains(&now_us)
    }

    /// Returns the periods around a time.
    pub(super) fn around(now_us: u64, schedule: Schedule, zone: &TimeZone) -> Self {
        let now = i64::try_from(now_us).unwrap_or(i64::MAX);
        let (begin, close) = period(now, schedule, zone);
        let (before, _) = period(begin - 1, schedule, zone);
        let (_, after) = period(close, schedule, zone);
        let [before, begin, close, after] =
            [before, begin, close, after].map(|at| u64::try_from(at).unwrap_or(0));
        Self {
            before,
            begin,
            close,
            after,
        }
    }
}

/// Returns the period that covers a time. Outside of the years that have a calendar here, all
/// periods have the nominal length.
fn period(now: i64, schedule: Schedule, zone: &TimeZone) -> (i64, i64) {
    calendar_period(now, schedule, zone).unwrap_or_else(|| {
        let nominal = schedule.unit.nominal().as_micros() as i64;
        let length = nominal * i64::from(schedule.every);
        let start = now - now.rem_euclid(length);
        (start, start.saturating_add(length))
    })
}

fn calendar_period(now: i64, schedule: Schedule, zone: &TimeZone) -> Option<(i64, i64)> {
    let begin = |number| instant(schedule.begin(number)?, zone);
    let local = Timestamp::from_microsecond(now)
        .ok()?
        .to_zoned_datetime(zone.clone());
    let mut number = schedule.number_near(local.date());
    let mut start = begin(number)?;
    while now < start {
        number -= 1;
        start = begin(number)?;
    }
    loop {
        let end = begin(number + 1)?;
        // A clock that is put back shows a part of the period before again. That part belongs to
        // the period that has begun. A day that a zone leaves out has no time.
        if now < end {
            return Some((start, end));
        }
        (number, start) = (number + 1, end);
    }
}

/// Returns the instant of a local time, as calendars understand it (RFC 5545, section 3.3.5): the
/// first one, where the clocks show the time twice, and the one with the offset before the change
/// where they skip it. So midnight in a gap is the end of the gap.
fn instant(local: DateTime, zone: &TimeZone) -> Option<i64> {
    Some(
        local
            .to_zoned_datetime(zone.clone())
            .ok()?
            .timestamp()
            .as_microsecond(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(time: &str) -> u64 {
        time.parse::<Timestamp>()
            .unwrap()
            .as_microsecond()
            .try_into()
            .unwrap()
    }

    fn whole(unit: CalendarUnit) -> Schedule {
        Schedule {
            unit,
            every: 1,
            anchor: None,
        }
    }

    /// Compares each period of a zone with the next one.
    fn follow(zone: &TimeZone, schedule: Schedule, start: &str, count: usize) {
        let mut periods = Periods::around(us(start), schedule, zone);
        for _ in 0..count {
            let next = Periods::around(periods.close, schedule, zone);
            assert_eq!(
                (next.before, next.begin, next.close),
                (periods.begin, periods.close, periods.after)
            );
            assert_eq!(Periods::around(periods.close - 1, schedule, zone), periods);
            periods = next;
        }
    }

    #[test]
    fn periods_follow_each_other_without_a_gap_in_every_zone() {
        for zone in jiff::tz::db().available() {
            let zone = TimeZone::get(zone.as_str()).unwrap();
            for unit in CalendarUnit::ALL {
                follow(&zone, whole(unit), "2011-12-15T00:00:00Z", 20);
                let anchor = Some("2011-12-31T00:30".parse().unwrap());
                let schedule = Schedule {
                    anchor,
                    ..whole(unit)
                };
                follow(&zone, schedule, "2011-12-15T00:00:00Z", 20);
            }
        }
        for zone in ["Europe/Berlin", "Australia/Lord_Howe", "America/Havana"] {
            follow(
                &TimeZone::get(zone).unwrap(),
                whole(CalendarUnit::Day),
                "2024-01-01T00:00:00Z",
                800,
            );
        }
    }
}
