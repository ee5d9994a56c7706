//! Adds up series of several pages, and makes rates of their counters.
//! Which series have which meaning is decided in `metrics.rs`.

use std::{collections::BTreeMap, time::Duration};

use super::exposition::Series;

/// The series of all endpoints.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// The last values.
    values: Vec<(Series, f64)>,
    /// The changes per second, of endpoints that were read twice.
    rates: Vec<(Series, f64)>,
}

impl Figures {
    /// Adds a page. `before` is the page that was read before it at the same endpoint, and the time
    /// between both.
    pub(super) fn add(
        &mut self,
        page: &BTreeMap<Series, f64>,
        before: Option<(&BTreeMap<Series, f64>, Duration)>,
    ) {
        self.values
            .extend(page.iter().map(|(series, value)| (series.clone(), *value)));
        let Some((before, passed)) = before.filter(|(_, passed)| !passed.is_zero()) else {
            return;
        };
        for (series, value) in page {
            let earlier = before.get(series).copied().unwrap_or(0.0);
            // A counter that is smaller than before has begun again at zero: the process was
            // restarted.
            let change = if *value < earlier {
                *value
            } else {
                value - earlier
            };
            self.rates
                .push((series.clone(), change / passed.as_secs_f64()));
        }
    }

    /// Adds up the values of a metric by these labels. A label that is missing counts as empty.
    pub(super) fn values<const N: usize>(
        &self,
        name: &str,
        labels: [&str; N],
    ) -> BTreeMap<[String; N], f64> {
        by(&self.values, name, labels, |sum, value| sum + value)
    }

    /// Returns the greatest values of a metric by these labels.
    pub(super) fn greatest<const N: usize>(
        &self,
        name: &str,
        labels: [&str; N],
    ) -> BTreeMap<[String; N], f64> {
        by(&self.values, name, labels, f64::max)
    }

    /// Adds up the changes per second of a metric by these labels.
    pub(super) fn rates<const N: usize>(
        &self,
        name: &str,
        labels: [&str; N],
    ) -> BTreeMap<[String; N], f64> {
        by(&self.rates, name, labels, |sum, value| sum + value)
    }

    /// Returns the 99th percentile of a metric by one label: of its buckets, or of the greatest
    /// summary.
    pub(super) fn p99(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut buckets = BTreeMap::<String, Vec<(f64, f64)>>::new();
        for ([of, le], count) in self.rates(&format!("{name}_bucket"), [label, "le"]) {
            if let Ok(le) = le.parse() {
                buckets.entry(of).or_default().push((le, count));
            }
        }
        let quantiles = buckets
            .into_iter()
            .filter_map(|(of, buckets)| Some((of, quantile(0.99, buckets)?)));
        let mut found: BTreeMap<_, _> = quantiles.collect();
        for ([of, at], value) in self.greatest(name, [label, "quantile"]) {
            if at == "0.99" && value > 0.0 {
                found.entry(of).or_insert(value);
            }
        }
        found
    }
}

fn by<const N: usize>(
    series: &[(Series, f64)],
    name: &str,
    labels: [&str; N],
    join: impl Fn(f64, f64) -> f64,
) -> BTreeMap<[String; N], f64> {
    let mut sums = BTreeMap::new();
    for (series, value) in series
        .iter()
        .filter(|(series, value)| series.name == name && !value.is_nan())
    {
        let key = labels.map(|label| series.labels.get(label).cloned().unwrap_or_default());
        sums.entry(key)
            .and_modify(|sum| *sum = join(*sum, *value))
            .or_insert(*value);
    }
    sums
}

/// Returns a quantile of a histogram, whose buckets hold their upper bound and the count up to it.
///
/// The values of a bucket count as spread evenly over it, as `histogram_quantile` of Prometheus has
/// it.
fn quantile(quantile: f64, mut buckets: Vec<(f64, f64)>) -> Option<f64> {
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total = buckets.last().filter(|(_, total)| *total > 0.0)?.1;
    let rank = quantile * total;
    let at = buckets.iter().position(|(_, count)| *count >= rank)?;
    let (low, below) = at
        .checked_sub(1)
        .map_or((0.0, 0.0), |before| buckets[before]);
    let (high, count) = buckets[at];
    // Above the last bound nothing is known.
    if high.is_infinite() {
        Some(low)
    } else {
        Some(low + (high - low) * (rank - below) / (count - below).max(1e-12))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::exposition, *};

    fn page(text: &str) -> BTreeMap<Series, f64> {
        exposition::read(text, "a")
    }

    fn figures(pages: &[(&str, &str)]) -> Figures {
        let mut figures = Figures::default();
        for (before, after) in pages {
            figures.add(&page(after), Some((&page(before), Duration::from_secs(2))));
        }
        figures
    }

    #[test]
    fn rates_of_endpoints_are_added_and_survive_a_restart() {
        let figures = figures(&[
            (
                "a{p=\"x\",o=\"1\"} 10\na{p=\"x\",o=\"2\"} 5",
                "a{p=\"x\",o=\"1\"} 16\na{p=\"x\",o=\"2\"} 5\na{p=\"y\"} 8",
            ),
            ("a{p=\"x\"} 100", "a{p=\"x\"} 4"),
        ]);
        let rates = figures.rates("a", ["p"]);
        assert_eq!(
            rates,
            [(["x".to_owned()], 3.0 + 2.0), (["y".to_owned()], 4.0)].into()
        );
        assert_eq!(figures.values("a", ["p"])[&["x".to_owned()]], 25.0);
        assert_eq!(figures.greatest("a", ["p"])[&["x".to_owned()]], 16.0);
    }

    #[test]
    fn one_page_makes_no_rates() {
        let mut figures = Figures::default();
        figures.add(&page("a 5"), None);
        assert!(figures.rates("a", []).is_empty());
        assert_eq!(figures.values("a", [])[&[]], 5.0);
    }

    #[test]
    fn the_99th_percentile_is_that_of_the_time_between_the_pages() {
        let buckets = |counts: [u32; 3]| {
            let [low, high, all] = counts;
            format!(
                "a_bucket{{l=\"x\",le=\"0.1\"}} {low}\na_bucket{{l=\"x\",le=\"0.2\"}} {high}\na_bucket{{l=\"x\",le=\"+Inf\"}} {all}"
            )
        };
        let p99 = |before, after| {
            let found = figures(&[(&buckets(before), &buckets(after))]).p99("a", "l");
            found.get("x").map(|seconds| (seconds * 1e3).round())
        };
        assert_eq!(p99([0, 100, 100], [50, 250, 250]), Some(199.0));
        assert_eq!(
            p99([0, 0, 0], [0, 0, 9]),
            Some(200.0),
            "above the last bound"
        );
        assert_eq!(p99([7, 7, 7], [7, 7, 7]), None, "nothing was decided");
        let summary = figures(&[
            ("", "a{l=\"x\",quantile=\"0.99\"} 0.25"),
            ("", "a{l=\"x\",quantile=\"0.99\"} 0.5"),
        ]);
        assert_eq!(summary.p99("a", "l")["x"], 0.5);
    }
}
