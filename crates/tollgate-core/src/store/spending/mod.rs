//! Counts what customers have spent lately, who they are and how many, for fair shares. What follows
//! from it for a check stands in `limiter/fair_shares.rs`.

use std::{
    array,
    collections::{BTreeSet, HashMap},
    fmt::Write,
    hash::{DefaultHasher, Hasher},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use tollgate_model::raw::{Account, CustomerParts, PolicyParts, QuotaParts};

use crate::{Customer, Key, Policy, Quota, clock::Clock, random};

/// What was spent fades to a third in four fillings of the bucket, or up to twice as long.
const FILLINGS: u64 = 4;

/// Who asked is forgotten so many times as fast as what was spent.
const FORGOTTEN: i32 = 4;

/// The part of its share at which a customer is ahead of it, in a long run. The rest is for what the
/// measure does not know yet: a customer that asks seldom is forgotten between two checks.
const SURE: f64 = 0.9;

/// A customer that has spent this part of its share of a burst counts as a whole one.
const COUNTS_WHOLE: f64 = 0.12;

/// The middle of the pause after which a process sends its report and reads the others. So all know
/// a heavy customer after two pauses at the latest.
pub const TOLD_EVERY: Duration = Duration::from_secs(1);

/// The customers that other processes hear of.
const HEAVIEST: usize = 32;

/// The states of which other processes hear how many customers they have. With the heaviest
/// customers they are a line of less than 2048 bytes.
const FULLEST: usize = 12;

const ROWS: usize = 4;

/// The cells of a row, a power of two.
const COLUMNS: usize = 1_024;

/// The cells of a row that counts customers, a power of two.
const COUNTS: usize = 256;

/// The place in a number of its [`Filling::fades`].
const FADES_AT: u32 = 10;

/// Measures what the customers of a limiter have spent lately, in this process and in others. Clones
/// share the measure.
///
/// A [`Limiter`](crate::Limiter) with [fair shares](crate::LimiterBuilder::fair_shares) passes it to
/// [`Store::exchange`](crate::Store::exchange). A store that several processes share then carries
/// the [report](Self::report) of each to all others, and lets them [hear](Self::hear) it.
///
/// The measure is a count-min sketch whose counts fade: 160 KB for any number of customers. One that
/// shares all its cells with others looks as if it had spent more. Sources: Cormode, Muthukrishnan,
/// *An improved data stream summary: the count-min sketch and its applications*, 2005; conservative
/// update: Estan, Varghese, *New directions in traffic measurement and accounting*, 2002.
#[derive(Clone)]
pub struct Spending(Arc<Measure>);

struct Measure {
    cells: Box<[Cell]>,
    customer_counts: Box<[CustomerCount]>,
    /// Is set when other processes are heard, which those of a store in the process never are.
    others: OnceLock<ArcSwap<Heard>>,
    clock: Clock,
    /// Secrets of this process, by which numbers find their columns. So nobody can make up a name that
    /// meets another one in all rows, although the numbers are the same in every process.
    secrets: [u64; 2],
}

/// Counts one customer, or the greatest of those that share the cell.
#[derive(Default)]
struct Cell {
    /// As floats: the units that were spent, and in the lower half those ahead of the share.
    units: AtomicU64,
    /// The time in microseconds at which they were so many.
    at: AtomicU64,
    /// The part of one with which the customer is counted, in the lower 12 bits, and the time in
    /// microseconds from which it fades.
    asked: AtomicU64,
    /// The customer that spent last.
    spender: AtomicU64,
}

/// Counts the customers of a state that ask. Both numbers are floats, and fade.
#[derive(Default)]
struct CustomerCount {
    customers: AtomicU64,
    weights: AtomicU64,
    at: AtomicU64,
    /// The state that was counted last.
    state: AtomicU64,
}

/// Keeps what customers have spent in other processes.
struct Heard {
    units: HashMap<u64, f64, RandomState>,
    /// For a state, the customers in other processes, and their weights.
    customer_counts: HashMap<u64, (f64, f64), RandomState>,
    /// The part of these customers that is counted in one process alone, by those that are named.
    apart: f64,
    at: u64,
}

/// Says how fast a shared bucket fills.
#[derive(Clone, Copy)]
pub(crate) struct Filling {
    burst: f64,
    /// The units that accrue in a microsecond.
    per_us: f64,
    /// The binary logarithm of the microseconds in which what was spent fades to a third.
    fades: u32,
}

impl Filling {
    pub(crate) fn of(quota: &Quota) -> Self {
        let fill_us = quota.span(quota.burst()).0;
        // A quota takes at most 10 years to fill.
        let fades = (fill_us * FILLINGS).next_power_of_two().trailing_zeros();
        Self {
            burst: quota.burst() as f64,
            per_us: quota.amount() as f64 / quota.period_us() as f64,
            fades: fades.max(10),
        }
    }

    /// Returns the units that accrue while what was spent fades to a third.
    pub(crate) fn whole(&self) -> f64 {
        self.per_us * (1_u64 << self.fades) as f64
    }

    /// Returns the number under which every replica counts who spends of the state that a policy has
    /// for a key. Never 0.
    pub(crate) fn state(&self, policy: &Policy, key: &Key) -> u64 {
        // The same in every replica: the hasher has no seed.
        let mut hasher = DefaultHasher::new();
        hasher.write(policy.name().as_bytes());
        hasher.write(policy.metered(key).as_bytes());
        self.number(hasher.finish())
    }

    /// Returns the number under which every replica counts what a customer spends of a state.
    fn spender(&self, state: u64, customer: Customer) -> u64 {
        const ODD: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03];
        self.number(folded(state ^ ODD[0], customer.digest() ^ ODD[1]))
    }

    /// Returns a digest that says how it fades, so that a report needs no policy.
    fn number(&self, digest: u64) -> u64 {
        digest & !(63 << FADES_AT) | u64::from(self.fades) << FADES_AT
    }
}

/// Returns the time in microseconds in which what is counted under a number fades to a third. It is a
/// power of two, of 2^10 at least.
fn fades_us(number: u64) -> u64 {
    1 << (number >> FADES_AT & 63)
}

/// What is known about a customer that asks for units of a state.
pub(crate) struct Seen {
    here: f64,
    /// The part of one with which it is counted, in the number of customers and in that of weights.
    counted: (f64, f64),
    /// The account of its units. Its policy is the first one.
    pub(crate) account: Account,
    /// The units that it has spent beyond what its share has given it meanwhile.
    pub(crate) ahead: f64,
    /// How many customers asked lately, about.
    pub(crate) customers: f64,
    /// The part of the limit that is its share.
    pub(crate) share: f64,
}

impl Seen {
    /// Returns the units that the customer has spent lately in all processes, or more.
    pub(crate) fn spent(&self) -> f64 {
        self.here + self.account.elsewhere
    }

    /// Returns whether the customer is hardly counted.
    pub(crate) fn is_new(&self) -> bool {
        self.counted.0 < NEW
    }
}

impl Spending {
    pub(crate) fn new(clock: Clock) -> Self {
        Self(Arc::new(Measure {
            cells: (0..ROWS * COLUMNS).map(|_| Cell::default()).collect(),
            customer_counts: (0..ROWS * COUNTS)
                .map(|_| CustomerCount::default())
                .collect(),
            others: OnceLock::new(),
            clock,
            secrets: [random::bits(), random::bits() | 1],
        }))
    }

    /// Returns what is known about a customer that asks for units of a state.
    ///
    /// Inlined into the only place that asks: what it returns is not copied.
    #[inline(always)]
    pub(crate) fn see(&self, state: u64, customer: Customer, filling: &Filling) -> Seen {
        let now = self.now(filling.fades);
        let others = self.0.others.get().map(ArcSwap::load);
        let heard = others.as_deref();
        let (mut customers, mut weights) = self.customer_count(state, now);
        if let Some(heard) = heard
            && let Some((more, heavier)) = heard.customer_counts.get(&state)
        {
            customers += more * heard.apart;
            weights += heavier * heard.apart;
        }
        let (spender, weight) = (filling.spender(state, customer), customer.weight().get());
        let (cells, weight) = (self.cells_of(spender), f64::from(weight));
        let counted = counted(&cells, spender, now);
        let weights = (weights - weight * counted.1).max(0.0) + weight;
        let share = weight / weights;
        let elsewhere = heard.map_or(0.0, |heard| {
            // What is reported again in time does not fade: its customer goes on.
            let since = now.saturating_sub(heard.at + TOLD_EVERY.as_micros() as u64);
            let units = heard.units.get(&spender).copied().unwrap_or_default();
            faded(units, since as f64, spender)
        });
        let account = Account {
            at: 0,
            state,
            spender,
            now,
            weights,
            elsewhere,
            back_per_us: SURE * share * filling.per_us,
            burst: filling.burst,
        };
        let (here, ahead) = spent_here(&cells, fades_of(&cells, &account).as_ref());
        Seen {
            here,
            counted,
            account,
            ahead,
            customers,
            share,
        }
    }

    /// Counts units that a customer has spent in this process, since the check that found this
    /// account.
    pub(crate) fn add(&self, account: &Account, customer: Customer, units: f64) {
        if units == 0.0 {
            return;
        }
        let cells = self.cells_of(account.spender);
        let fades = fades_of(&cells, account);
        // Read again: other checks of the customer may have been decided meanwhile.
        let (here, ahead) = spent_here(&cells, fades.as_ref());
        let counted = counted(&cells, account.spender, account.now);
        let spent = here + units;
        // A customer that comes to several processes is ahead in each by what it spends in all.
        let ahead = ahead + units * (spent + account.elsewhere) / spent;
        let ahead = ahead.min(account.burst.max(units));
        let now = pack((spent, ahead));
        for (row, cell) in cells.into_iter().enumerate() {
            let fade = fades.as_ref().map(|fades| fades[row]);
            let grown = |word| {
                let left = fade.map_or(word, |fade| pack(fade.of(word)));
                Some(greater(left, now))
            };
            // It cannot fail.
            let _ = cell.units.fetch_update(Relaxed, Relaxed, grown);
            if fade.is_some() {
                cell.at.fetch_max(account.now, Relaxed);
            }
            cell.spender.store(account.spender, Relaxed);
        }
        let weight = f64::from(customer.weight().get());
        let whole = COUNTS_WHOLE * account.burst * weight / account.weights;
        let part = ((spent + account.elsewhere) / whole).min(1.0);
        self.count(account, counted, weight, part);
    }

    /// Counts a customer that asks, and was admitted nothing.
    pub(crate) fn ask(&self, account: &Account, customer: Customer) {
        let cells = self.cells_of(account.spender);
        let counted = counted(&cells, account.spender, account.now);
        if counted.0 < NEW {
            let weight = f64::from(customer.weight().get());
            self.count(account, counted, weight, 1.0);
        }
    }

    /// Counts a customer for so much of one among those that ask. `counted` is the part with which
    /// it is counted.
    fn count(&self, account: &Account, counted: (f64, f64), weight: f64, part: f64) {
        let (before, before_weight) = counted;
        if part - before < 1.0 / 64.0 && before > 1.0 - 1.0 / 64.0 {
            return;
        }
        // What is stored is what is added.
        let parts = (part.max(before) * MOST_PARTS).ceil();
        let part = parts / MOST_PARTS;
        if part <= before {
            return;
        }
        for cell in self.cells_of(account.spender) {
            let asked = account.now << PARTS_BITS | parts as u64;
            cell.asked.fetch_max(asked, Relaxed);
        }
        for customer_count in self.counts_of(account.state) {
            customer_count.fade(account.state, account.now);
            add(&customer_count.customers, part - before);
            add(&customer_count.weights, weight * (part - before_weight));
            customer_count.state.store(account.state, Relaxed);
        }
    }

    /// Returns what the heaviest customers have spent lately in this process, and how many ask, as
    /// a line of text for the other processes. It has digests, and no keys.
    #[must_use]
    pub fn report(&self) -> String {
        let now = self.0.clock.now_us();
        // A heavy customer is seldom overwritten in all its cells.
        let mut heaviest = numbers(self.0.cells.iter().map(|cell| &cell.spender), |spender| {
            self.here(spender, now)
        });
        heaviest.truncate(HEAVIEST);
        let mut fullest = numbers(
            self.0
                .customer_counts
                .iter()
                .map(|customer_count| &customer_count.state),
            |state| self.customer_count(state, now).0,
        );
        fullest.truncate(FULLEST);
        let mut report = String::new();
        // Writing to memory cannot fail.
        for (units, spender) in heaviest {
            let _ = write!(report, " {spender:x}={units:.0}");
        }
        for (customers, state) in fullest {
            let weights = self.customer_count(state, now).1;
            let _ = write!(report, " {state:x}~{customers:.2}~{weights:.2}");
        }
        report
    }

    /// Takes the reports of all other processes, as one text. What was heard before is forgotten.
    pub fn hear(&self, reports: &str) {
        let mut units: HashMap<u64, f64, RandomState> = HashMap::default();
        let mut customer_counts: HashMap<u64, (f64, f64), RandomState> = HashMap::default();
        let mut entries = 0_u32;
        for entry in reports.split_whitespace() {
            // The rest of a line, and what another version writes, is no entry.
            if let Some((spender, spent)) = entry.split_once('=')
                && let (Ok(spender), Ok(spent)) =
                    (u64::from_str_radix(spender, 16), spent.parse::<u64>())
            {
                *units.entry(spender).or_default() += spent as f64;
                entries += 1;
            } else if let Some((state, customer_count)) = entry.split_once('~')
                && let Some((customers, weights)) = customer_count.split_once('~')
                && let (Ok(state), Ok(customers), Ok(weights)) = (
                    u64::from_str_radix(state, 16),
                    amount(customers),
                    amount(weights),
                )
            {
                let customer_count = customer_counts.entry(state).or_default();
                *customer_count = (customer_count.0 + customers, customer_count.1 + weights);
            }
        }
        let at = self.0.clock.now_us();
        // The heaviest say how many come to several processes, where they would count twice.
        let strange = units
            .keys()
            .filter(|&&spender| self.here(spender, at) < 1.0);
        let apart = match entries {
            0 => 1.0,
            _ => strange.count() as f64 / f64::from(entries),
        };
        let heard = Arc::new(Heard {
            units,
            customer_counts,
            apart,
            at,
        });
        let first = || ArcSwap::new(Arc::clone(&heard));
        self.0.others.get_or_init(first).store(heard);
    }

    /// Returns a reference that does not keep the store reporting.
    #[must_use]
    pub fn downgrade(&self) -> WeakSpending {
        WeakSpending(Arc::downgrade(&self.0))
    }

    fn here(&self, spender: u64, now: u64) -> f64 {
        self.cells_of(spender)
            .map(|cell| {
                let (units, _) = unpacked(cell.units.load(Relaxed));
                faded(units, cell.age(now), spender)
            })
            .into_iter()
            .fold(f64::INFINITY, f64::min)
    }

    /// Returns how many customers of a state ask in this process, and their weights.
    fn customer_count(&self, state: u64, now: u64) -> (f64, f64) {
        // Floats that are not negative have the order of their bits.
        let (mut customers, mut weights) = (u64::MAX, u64::MAX);
        for customer_count in self.counts_of(state) {
            customer_count.fade(state, now);
            customers = customers.min(customer_count.customers.load(Relaxed));
            weights = weights.min(customer_count.weights.load(Relaxed));
        }
        (f64::from_bits(customers), f64::from_bits(weights))
    }

    /// Returns a cell of each row, by other bits of the mixed number: the rows are independent.
    #[inline]
    fn cells_of(&self, spender: u64) -> [&Cell; ROWS] {
        let mixed = self.mixed(spender);
        array::from_fn(|row| &self.0.cells[row * COLUMNS + column(mixed, row, COLUMNS)])
    }

    #[inline]
    fn counts_of(&self, state: u64) -> [&CustomerCount; ROWS] {
        let mixed = self.mixed(state);
        array::from_fn(|row| &self.0.customer_counts[row * COUNTS + column(mixed, row, COUNTS)])
    }

    fn mixed(&self, number: u64) -> u64 {
        let [mask, factor] = self.0.secrets;
        folded(number ^ mask, factor)
    }

    /// Returns the time in microseconds, in whole parts of the time in which what was spent fades:
    /// nothing fades within a part, as most of a busy customer.
    fn now(&self, fades: u32) -> u64 {
        let part = fades - 10;
        self.0.clock.now_us() >> part << part
    }
}

impl Cell {
    fn age(&self, now: u64) -> f64 {
        now.saturating_sub(self.at.load(Relaxed)) as f64
    }
}

impl CustomerCount {
    /// Lets the numbers fade, which is not worth it after a short time.
    fn fade(&self, state: u64, now: u64) {
        let (at, fades_us) = (self.at.load(Relaxed), fades_us(state));
        let age_us = now.saturating_sub(at);
        if age_us < fades_us / SHORT {
            return;
        }
        let is_first = self.at.compare_exchange(at, now, Relaxed, Relaxed).is_ok();
        if is_first {
            let left = faded(1.0, age_us as f64, state);
            scale(&self.customers, left.powi(FORGOTTEN));
            scale(&self.weights, left);
        }
    }
}

/// The fading of the units of a cell since they were counted.
#[derive(Clone, Copy)]
struct Fade {
    /// The part that is left of them.
    left: f64,
    /// The units that the share of the customer has given it meanwhile.
    given: f64,
}

impl Fade {
    /// Returns what is left of the units in the word of a cell, and how many of them are ahead of the
    /// share.
    #[inline]
    fn of(self, word: u64) -> (f64, f64) {
        let (units, ahead) = unpacked(word);
        (units * self.left, (ahead - self.given).max(0.0))
    }
}

/// Returns how the cells of a customer have faded. `None` when none has: those of a busy customer
/// mostly have not.
#[inline]
fn fades_of(cells: &[&Cell; ROWS], account: &Account) -> Option<[Fade; ROWS]> {
    let is_new = |cell: &&Cell| cell.at.load(Relaxed) >= account.now;
    (!cells.iter().all(is_new)).then(|| fades_by_age(cells, account))
}

/// Returns how the cells of a customer have faded. Most have the same age, and the exponential is
/// computed once for each age.
#[inline(never)]
fn fades_by_age(cells: &[&Cell; ROWS], account: &Account) -> [Fade; ROWS] {
    let (mut last_us, mut left) = (0.0, 1.0);
    cells.map(|cell| {
        let age_us = cell.age(account.now);
        if age_us != last_us {
            (last_us, left) = (age_us, faded(1.0, age_us, account.spender));
        }
        Fade {
            left,
            given: age_us * account.back_per_us,
        }
    })
}

/// Returns the units that a customer has spent in this process, and those ahead of its share: of its
/// cells, the one with the least was shared least.
#[inline]
fn spent_here(cells: &[&Cell; ROWS], fades: Option<&[Fade; ROWS]>) -> (f64, f64) {
    let words = cells.map(|cell| cell.units.load(Relaxed));
    let Some(fades) = fades else {
        return unpacked(words.into_iter().fold(u64::MAX, lesser));
    };
    let (mut here, mut ahead) = (f64::INFINITY, f64::INFINITY);
    for (word, fade) in words.into_iter().zip(fades) {
        let found = fade.of(word);
        (here, ahead) = (here.min(found.0), ahead.min(found.1));
    }
    (here, ahead)
}

/// A customer that is counted for less than this part of one is new.
const NEW: f64 = 0.5;

/// A customer and the number of customers do not fade within this part of the time in which what was
/// spent fades.
const SHORT: u64 = 256;

/// The bits of a part of one, and how many parts they can say.
const PARTS_BITS: u32 = 12;
const MOST_PARTS: f64 = 4_095.0;

/// Returns for how much of one a customer is counted, in the number of customers and in that of
/// weights.
fn counted(cells: &[&Cell; ROWS], spender: u64, now: u64) -> (f64, f64) {
    let asked = cells.map(|cell| cell.asked.load(Relaxed));
    let asked = asked.into_iter().min().unwrap_or_default();
    let part = f64::from(asked as u16 & ((1 << PARTS_BITS) - 1)) / MOST_PARTS;
    let age_us = now.saturating_sub(asked >> PARTS_BITS);
    // As the crowd.
    if part == 0.0 || age_us < fades_us(spender) / SHORT {
        return (part, part);
    }
    let left = faded(1.0, age_us as f64, spender);
    (part * left.powi(FORGOTTEN), part * left)
}

/// Returns the numbers that stand in cells, the one with the most first, without those that have
/// next to nothing.
fn numbers<'a>(
    cells: impl Iterator<Item = &'a AtomicU64>,
    amount: impl Fn(u64) -> f64,
) -> Vec<(f64, u64)> {
    let numbers: BTreeSet<u64> = cells.map(|cell| cell.load(Relaxed)).collect();
    let numbers = numbers.into_iter().filter(|&number| number != 0);
    let mut numbers: Vec<_> = numbers
        .map(|number| (amount(number), number))
        .filter(|&(amount, _)| amount >= 0.5)
        .collect();
    numbers.sort_unstable_by(|one, other| other.0.total_cmp(&one.0));
    numbers
}

fn column(mixed: u64, row: usize, columns: usize) -> usize {
    (mixed >> (16 * row)) as usize % columns
}

/// Returns both halves of a product as one.
fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

/// Reads an amount that another process has reported.
fn amount(text: &str) -> Result<f64, ()> {
    match text.parse::<f64>() {
        Ok(amount) if (0.0..1e12).contains(&amount) => Ok(amount),
        _ => Err(()),
    }
}

/// Returns what is left of units after a time in microseconds.
fn faded(units: f64, age_us: f64, spender: u64) -> f64 {
    if age_us == 0.0 || units == 0.0 {
        return units;
    }
    units * (-age_us / fades_us(spender) as f64).exp()
}

fn add(word: &AtomicU64, more: f64) {
    change(word, |number| (number + more).max(0.0));
}

fn scale(word: &AtomicU64, by: f64) {
    change(word, |number| number * by);
}

fn change(word: &AtomicU64, change: impl Fn(f64) -> f64) {
    let changed = |word| Some(change(f64::from_bits(word)).to_bits());
    // It cannot fail.
    let _ = word.fetch_update(Relaxed, Relaxed, changed);
}

/// Returns the word of a cell: units that were spent, and how many of them are ahead of the share.
fn pack((spent, ahead): (f64, f64)) -> u64 {
    u64::from((spent as f32).to_bits()) << 32 | u64::from((ahead as f32).to_bits())
}

/// Returns the lesser number of each half of two words. Floats that are not negative have the order of
/// their bits.
#[inline]
fn lesser(one: u64, other: u64) -> u64 {
    one.min(other) & UPPER | (one & !UPPER).min(other & !UPPER)
}

/// Returns the greater number of each half of two words.
#[inline]
fn greater(one: u64, other: u64) -> u64 {
    one.max(other) & UPPER | (one & !UPPER).max(other & !UPPER)
}

/// The upper half of a word.
const UPPER: u64 = !0 << 32;

fn unpacked(word: u64) -> (f64, f64) {
    let [spent, ahead] = [(word >> 32) as u32, word as u32].map(f32::from_bits);
    (f64::from(spent), f64::from(ahead))
}

crate::debug_fields! { Spending: .. }

/// Refers to a measure that no limiter may hold any more.
#[derive(Debug)]
pub struct WeakSpending(Weak<Measure>);

impl WeakSpending {
    /// Returns the measure while a limiter holds it.
    pub fn upgrade(&self) -> Option<Spending> {
        self.0.upgrade().map(Spending)
    }
}

#[cfg(test)]
mod tests;
