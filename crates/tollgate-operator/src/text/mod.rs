//! Texts for people: times and spans, and names that a terminal may show.
//! Each program lays them out as it likes.
//!
//! ```
//! use std::time::Duration;
//! use tollgate_operator::text::{parse_time, shown, shown_time, span};
//!
//! let time = parse_time("2026-12-24T18:00:00Z").unwrap();
//! assert_eq!(shown_time(time), "2026-12-24T18:00:00Z");
//! assert_eq!(span(Duration::from_secs(7_260)), "2 h 1 min");
//! assert_eq!(shown("acme\u{1b}[2J"), "acme\\u{1b}[2J");
//! ```

mod time;

use std::time::Duration;

pub use time::{parse as parse_time, shown as shown_time};

/// Returns a text of the store as a terminal may show it: signs that could move its cursor or turn its
/// lines are escaped.
#[must_use]
pub fn shown(text: &str) -> String {
    let is_plain = |sign: char| sign.is_alphanumeric() || sign.is_ascii_graphic() || sign == ' ';
    let mut shown = String::with_capacity(text.len());
    for sign in text.chars() {
        if is_plain(sign) {
            shown.push(sign);
        } else {
            shown.extend(sign.escape_unicode());
        }
    }
    shown
}

/// Returns a time as text, in its two greatest units.
#[must_use]
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{}.{} s", seconds, time.subsec_millis() / 100),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}
