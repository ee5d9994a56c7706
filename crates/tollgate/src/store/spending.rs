//! Counts what customers have spent lately, for fair shares.
//! What follows for a customer is computed in `limiter/fair_shares.rs`; reports travel by
//! `store/presence/exchange.rs`.

use std::{
    array,
    collections::{BTreeSet, HashMap},
    fmt::{self, Write},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use foldhash::fast::RandomState;

use crate::{Cost, clock::Clock};

/// The time in which what was spent fades to a third.
pub(crate) const FADES_IN: Duration = Duration::from_secs(5);

/// The middle of the pause after which a process sends its report and reads the others. So all know
/// a heavy customer after two pauses at the latest.
pub(crate) const TOLD_EVERY: Duration = Duration::from_secs(1);

/// The customers that other processes hear of.
const HEAVIEST: usize = 32;

const ROWS: usize = 4;

/// The cells of a row, a power of two.
const COLUMNS: usize = 1_024;

/// Measures what the customers of a limiter have spent lately, in this process and in others. Clones
/// share the measure.
///
/// A [`Limiter`](crate::Limiter) with [fair shares](crate::LimiterBuilder::fair_shares) passes it to
/// [`Store::exchange`](crate::Store::exchange). A store that several processes share then carries
/// the [report](Self::report) of each to all others, and lets them [hear](Self::hear) it.
///
/// The measure is a count-min sketch whose counts fade: 64 KB for any number of customers. One that
/// shares all its cells with others looks as if it had spent more. Sources: Cormode, Muthukrishnan,
/// *An improved data stream summary: the count-min sketch and its applications*, 2005; conservative
/// update: Estan, Varghese, *New directions in traffic measurement and accounting*, 2002.
#[derive(Clone)]
pub struct Spending(Arc<Measure>);

struct Measure {
    cells: Box<[Cell]>,
    /// `None` until other processes were heard.
    others: ArcSwapOption<Heard>,
    clock: Clock,
}

#[derive(Default)]
struct Cell {
    /// The units as a float, and in the lower half the time at which they were so many.
    units: AtomicU64,
    /// The customer that spent last.
    spender: AtomicU64,
}

/// Keeps what customers have spent in other processes.
struct Heard {
    units: HashMap<u64, f64, RandomState>,
    at: u32,
}

impl Spending {
    pub(crate) fn new(clock: Clock) -> Self {
        Self(Arc::new(Measure {
            cells: (0..ROWS * COLUMNS).map(|_| Cell::default()).collect(),
            others: ArcSwapOption::empty(),
            clock,
        }))
    }

    /// Returns the units that a customer has spent lately in all processes, or more.
    pub(crate) fn spent(&self, spender: u64) -> f64 {
        let now = self.now();
        let elsewhere = self.0.others.load().as_ref().map_or(0.0, |heard| {
            // What is reported again in time does not fade: its customer goes on.
            let since = now.wrapping_sub(ticks(TOLD_EVERY));
            let units = heard.units.get(&spender).copied().unwrap_or_default();
            faded(units, heard.at, since)
        });
        self.here(spender, now) + elsewhere
    }

    /// Counts units that a customer has spent in this process.
    pub(crate) fn add(&self, spender: u64, cost: Cost) {
        let now = self.now();
        let spent = self.here(spender, now) + cost.units() as f64;
        for cell in self.cells_of(spender) {
            let grown = |word| Some(pack(unpacked(word, now).max(spent), now));
            let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
            // It cannot fail.
            let _ = cell.units.fetch_update(set, get, grown);
            cell.spender.store(spender, Ordering::Relaxed);
        }
    }

    /// Returns what the heaviest customers have spent lately in this process, as a line of text for
    /// the other processes. It has digests, and no keys.
    #[must_use]
    pub fn report(&self) -> String {
        let now = self.now();
        // A heavy customer is seldom overwritten in all its cells.
        let spenders = self.0.cells.iter();
        let spenders: BTreeSet<u64> = spenders
            .map(|cell| cell.spender.load(Ordering::Relaxed))
            .collect();
        let mut heaviest: Vec<(f64, u64)> = spenders
            .into_iter()
            .map(|spender| (self.here(spender, now), spender))
            .filter(|&(units, spender)| units >= 1.0 && spender != 0)
            .collect();
        heaviest.sort_unstable_by(|one, other| other.0.total_cmp(&one.0));
        heaviest.truncate(HEAVIEST);
        let mut report = String::new();
        for (units, spender) in heaviest {
            // Writing to memory cannot fail.
            let _ = write!(report, " {spender:x}={units:.0}");
        }
        report
    }

    /// Takes the reports of all other processes, as one text. What was heard before is forgotten.
    pub fn hear(&self, reports: &str) {
        let mut units = HashMap::default();
        for entry in reports.split_whitespace() {
            // The rest of a line, and what another version writes, is no entry.
            if let Some((spender, spent)) = entry.split_once('=')
                && let (Ok(spender), Ok(spent)) =
                    (u64::from_str_radix(spender, 16), spent.parse::<u64>())
            {
                *units.entry(spender).or_default() += spent as f64;
            }
        }
        let at = self.now();
        self.0.others.store(Some(Arc::new(Heard { units, at })));
    }

    /// Returns a reference that does not keep the store reporting.
    pub(crate) fn downgrade(&self) -> WeakSpending {
        WeakSpending(Arc::downgrade(&self.0))
    }

    fn here(&self, spender: u64, now: u32) -> f64 {
        self.cells_of(spender)
            .map(|cell| unpacked(cell.units.load(Ordering::Relaxed), now))
            .into_iter()
            .fold(f64::INFINITY, f64::min)
    }

    /// Returns a cell of each row, by other bits of the number.
    fn cells_of(&self, spender: u64) -> [&Cell; ROWS] {
        let column = |row: usize| (spender >> (16 * row)) as usize % COLUMNS;
        array::from_fn(|row| &self.0.cells[row * COLUMNS + column(row)])
    }

    fn now(&self) -> u32 {
        ticks(Duration::from_micros(self.0.clock.now_us()))
    }
}

/// Returns a time in ticks of 16 ms. Only the lower bits count: they begin anew every second year.
fn ticks(time: Duration) -> u32 {
    (time.as_micros() >> 14) as u32
}

/// Returns what is left of units at a later time.
fn faded(units: f64, at: u32, now: u32) -> f64 {
    let age = now.wrapping_sub(at) as i32;
    // Times of two threads may cross. Nothing fades within a tick, as most of a busy customer.
    if age <= 0 || units == 0.0 {
        return units;
    }
    units * (-f64::from(age) / f64::from(ticks(FADES_IN))).exp()
}

fn pack(units: f64, at: u32) -> u64 {
    u64::from((units as f32).to_bits()) << 32 | u64::from(at)
}

fn unpacked(word: u64, now: u32) -> f64 {
    let units = f32::from_bits((word >> 32) as u32);
    faded(f64::from(units), word as u32, now)
}

impl fmt::Debug for Spending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spending").finish_non_exhaustive()
    }
}

/// Refers to a measure that no limiter may hold any more.
pub(crate) struct WeakSpending(Weak<Measure>);

impl WeakSpending {
    /// Returns the measure while a limiter holds it.
    pub(crate) fn upgrade(&self) -> Option<Spending> {
        self.0.upgrade().map(Spending)
    }
}
