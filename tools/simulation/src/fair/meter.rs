//! Estimates what each customer has spent lately.

/// Measures what customers have spent lately, in a fixed number of cells: a count-min sketch whose counts fade.
///
/// Customers that share all their cells with others look as if they had spent more. Source: Cormode, Muthukrishnan, "An
/// improved data stream summary: the count-min sketch and its applications", J. Algorithms 55, 2005; conservative update:
/// Estan, Varghese, "New directions in traffic measurement and accounting", SIGCOMM 2002.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    cells: Vec<Cell>,
    time_constant_us: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    spent: f64,
    at_us: u64,
}

const ROWS: usize = 4;

/// The cells of a row.
const COLUMNS: usize = 1024;

impl Meter {
    pub(super) fn new(time_constant_us: u64) -> Self {
        Self { cells: vec![Cell::default(); ROWS * COLUMNS], time_constant_us: time_constant_us as f64 }
    }

    /// Returns the units that a customer has spent lately, or more.
    pub(super) fn spent(&self, customer: u64, now_us: u64) -> f64 {
        cells_of(customer).map(|at| self.faded(at, now_us)).into_iter().fold(f64::INFINITY, f64::min)
    }

    /// Adds units that a customer was allowed to spend.
    pub(super) fn add(&mut self, customer: u64, units: f64, now_us: u64) {
        let spent = self.spent(customer, now_us) + units;
        for at in cells_of(customer) {
            self.cells[at] = Cell { spent: self.faded(at, now_us).max(spent), at_us: now_us };
        }
    }

    fn faded(&self, at: usize, now_us: u64) -> f64 {
        let Cell { spent, at_us } = self.cells[at];
        spent * (-((now_us - at_us) as f64) / self.time_constant_us).exp()
    }
}

/// Returns a cell of each row.
fn cells_of(customer: u64) -> [usize; ROWS] {
    std::array::from_fn(|row| {
        // The finaliser of splitmix64.
        let mut hash = (customer + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add((row as u64).wrapping_mul(0xd1b5_4a32_d192_ed03));
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        row * COLUMNS + ((hash ^ (hash >> 31)) % COLUMNS as u64) as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_fades() {
        let mut meter = Meter::new(1_000_000);
        meter.add(7, 100.0, 0);
        assert_eq!((meter.spent(7, 0), meter.spent(8, 0)), (100.0, 0.0));
        assert!((meter.spent(7, 1_000_000) - 100.0 / std::f64::consts::E).abs() < 1e-9);
        meter.add(7, 1.0, 0);
        assert_eq!(meter.spent(7, 0), 101.0);
    }

    #[test]
    fn no_customer_is_measured_too_low_and_few_too_high() {
        let mut meter = Meter::new(u64::MAX);
        (0..2_000_u64).for_each(|customer| (0..customer % 10).for_each(|_| meter.add(customer, 1.0, 0)));
        let errors = (0..2_000_u64).map(|customer| meter.spent(customer, 0) - (customer % 10) as f64);
        let errors: Vec<f64> = errors.collect();
        assert!(errors.iter().all(|&error| error >= 0.0));
        assert!(errors.iter().sum::<f64>() / 2_000.0 < 4.5, "as bad as none");
    }
}
