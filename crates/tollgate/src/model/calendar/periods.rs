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
        .to_zoned(zone.clone());
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
            .to_zoned(zone.clone())
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

    /// Returns the current period at a time, in hours, and its start.
    fn around(time: &str, unit: CalendarUnit, zone: &str) -> (f64, String) {
        let zone = TimeZone::get(zone).unwrap();
        let periods = Periods::around(us(time), whole(unit), &zone);
        assert!(periods.cover(us(time)), "{periods:?} at {time}");
        assert!(
            periods.before < periods.begin && periods.close < periods.after,
            "{periods:?}"
        );
        let start = Timestamp::from_microsecond(periods.begin as i64)
            .unwrap()
            .to_string();
        ((periods.close - periods.begin) as f64 / 3_600e6, start)
    }

    #[test]
    fn days_have_23_and_25_hours_when_the_clocks_change() {
        use CalendarUnit::Day;
        for (time, zone, hours, start) in [
            (
                "2024-03-30T12:00:00Z",
                "Europe/Berlin",
                24.0,
                "2024-03-29T23:00:00Z",
            ),
            (
                "2024-03-31T12:00:00Z",
                "Europe/Berlin",
                23.0,
                "2024-03-30T23:00:00Z",
            ),
            (
                "2024-10-27T12:00:00Z",
                "Europe/Berlin",
                25.0,
                "2024-10-26T22:00:00Z",
            ),
            (
                "2024-10-05T20:00:00Z",
                "Australia/Lord_Howe",
                23.5,
                "2024-10-05T13:30:00Z",
            ),
            (
                "2024-04-06T20:00:00Z",
                "Australia/Lord_Howe",
                24.5,
                "2024-04-06T13:00:00Z",
            ),
            // Cuba puts the clock forward at midnight: the day starts at 01:00. In autumn its first
            // hour comes twice.
            (
                "2024-03-10T12:00:00Z",
                "America/Havana",
                23.0,
                "2024-03-10T05:00:00Z",
            ),
            (
                "2024-11-03T12:00:00Z",
                "America/Havana",
                25.0,
                "2024-11-03T04:00:00Z",
            ),
            // Samoa left out the 30th of December.
            (
                "2011-12-30T10:00:00Z",
                "Pacific/Apia",
                24.0,
                "2011-12-30T10:00:00Z",
            ),
            (
                "2011-12-30T09:59:59Z",
                "Pacific/Apia",
                24.0,
                "2011-12-29T10:00:00Z",
            ),
        ] {
            assert_eq!(
                around(time, Day, zone),
                (hours, start.to_owned()),
                "{zone} {time}"
            );
        }
    }

    #[test]
    fn months_have_28_to_31_days_and_a_leap_year_366() {
        use CalendarUnit::{Month, Week, Year};
        for (time, unit, days, start) in [
            ("2026-02-14T00:00:00Z", Month, 28.0, "2026-02-01T00:00:00Z"),
            (
                "2028-02-29T23:59:59.999999Z",
                Month,
                29.0,
                "2028-02-01T00:00:00Z",
            ),
            ("2028-03-01T00:00:00Z", Month, 31.0, "2028-03-01T00:00:00Z"),
            ("2100-02-28T00:00:00Z", Month, 28.0, "2100-02-01T00:00:00Z"),
            ("2026-04-30T12:00:00Z", Month, 30.0, "2026-04-01T00:00:00Z"),
            ("2026-11-22T23:59:59Z", Week, 7.0, "2026-11-16T00:00:00Z"),
            ("2026-11-23T00:00:00Z", Week, 7.0, "2026-11-23T00:00:00Z"),
            ("2028-12-31T23:00:00Z", Year, 366.0, "2028-01-01T00:00:00Z"),
            ("2027-01-01T00:00:00Z", Year, 365.0, "2027-01-01T00:00:00Z"),
        ] {
            assert_eq!(
                around(time, unit, "UTC"),
                (24.0 * days, start.to_owned()),
                "{unit} {time}"
            );
        }
        // A local month is an hour shorter when its clocks go forward.
        let berlin = around("2024-03-10T00:00:00Z", Month, "Europe/Berlin");
        assert_eq!(
            berlin,
            (31.0 * 24.0 - 1.0, "2024-02-29T23:00:00Z".to_owned())
        );
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
