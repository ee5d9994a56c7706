//! The parts of the page that show leases.

use tollgate::{
    Algorithm, Lease, Policy, Quota,
    testing::lease::{Account, Call, Demand, Pot, step},
};
use tollgate_charts::{Axis, Panel, Picture};

use super::efficiency::{self, Figures, Run};
use crate::{page::Part, random::Random};

/// The units that accrue in a second in the part about many replicas.
const MANY: u64 = 10_000;

const LOADS: [f64; 3] = [0.5, 0.9, 1.2];

const NUMBERS: [usize; 7] = [1, 3, 10, 30, 100, 300, 1_000];

fn policy(per_second: u64) -> Policy {
    Policy::try_new("hot", Algorithm::TokenBucket, Quota::per_second(per_second))
        .and_then(|policy| policy.try_leased(Lease::new()))
        .unwrap_or_else(|error| unreachable!("{error}"))
}

/// Returns the parts of the page.
pub(crate) fn parts() -> Vec<Part> {
    vec![outstanding(), many()]
}

fn many() -> Part {
    let mut rows = Vec::new();
    let titles = [("trips", "per check"), ("admitted", "of the ideal"), ("least replica", "of the mean")];
    let panel = |(title, unit)| Panel::new(title, Axis::logarithmic("replicas"), Axis::linear(unit).up_to(1.0));
    let mut panels: Vec<Panel> = titles.into_iter().map(panel).collect();
    for (series, load) in LOADS.into_iter().enumerate() {
        let mut lines: [Vec<(f64, f64)>; 3] = Default::default();
        for replicas in NUMBERS {
            let weights = vec![1.0; replicas];
            let Figures { of_ideal, trips, trips_per_second, fairness } =
                efficiency::run(&Run { policy: policy(MANY), load, weights, seconds: 10 });
            for (line, figure) in lines.iter_mut().zip([trips, of_ideal, fairness.0]) {
                line.push((replicas as f64, figure));
            }
            rows.push(vec![
                replicas.to_string(),
                load.to_string(),
                format!("{trips:.4}"),
                format!("{trips_per_second:.0}"),
                format!("{of_ideal:.4}"),
                format!("{:.3} {:.3}", fairness.0, fairness.1),
            ]);
        }
        for (panel, line) in panels.iter_mut().zip(lines) {
            panel.line(series, line);
        }
    }
    let names: Vec<String> = LOADS.iter().map(|load| format!("load {load}")).collect();
    Part {
        name: "simulation_leases",
        title: "Leases: one key and many replicas",
        text: format!(
            "A token bucket of {MANY} per second is leased to replicas that ask for it equally often, together at a load of \
             so many times the rate. A *trip* is a call to the server. The *ideal* is what one server admits of the same \
             requests. The last column has the shares of their requests that the least and the most admitted replica got, \
             divided by that of all. Below the rate, a replica saves trips while it spends several units in a second. At a \
             thousand replicas each spends nine, an eighth of the burst is one unit for each, and nearly every check makes \
             a trip, as without leases. Above the rate nothing is left to lease, and the trips are those of denials."
        ),
        heads: vec!["replicas", "load", "trips per check", "trips/s", "of the ideal", "least and most"],
        rows,
        picture: Picture::new("Leases of one key", names.iter().map(String::as_str), panels),
    }
}

/// The time at which one of four replicas is killed, and the length of the run, in microseconds.
const KILLED: u64 = 12_000_000;
const END: u64 = 20_000_000;

/// The time between two points of the picture, in microseconds.
const POINT: u64 = 100_000;

const PER_SECOND: u64 = 1_000;

fn outstanding() -> Part {
    let names = ["used, outstanding units included", "outstanding", "held by the living replicas"];
    let mut panel = Panel::new("a bucket of 1000", Axis::linear("seconds"), Axis::linear("units"));
    let mut lines: [Vec<(f64, f64)>; 3] = Default::default();
    for point in points() {
        let seconds = point.at_us as f64 / 1e6;
        for (line, units) in lines.iter_mut().zip([point.used, point.outstanding, point.held]) {
            line.push((seconds, units as f64));
        }
    }
    for (series, line) in lines.into_iter().enumerate() {
        panel.line(series, line);
    }
    Part {
        name: "leases",
        title: "Leases: the units that are out",
        text: format!(
            "Four replicas together ask for 800 units a second of a token bucket of {PER_SECOND} per second. At {} s one of \
             them is killed, and the others ask for all. Generations end at 4, 9, 14 and 19 s. What the killed replica held \
             of the generation that ends at 9 s lapses at 14 s, and the rest at 19 s. An eighth of the burst is out at most.",
            KILLED / 1_000_000
        ),
        heads: Vec::new(),
        rows: Vec::new(),
        picture: Picture::new("Units of a leased bucket", names, vec![panel]),
    }
}

/// The units at one time.
struct Point {
    at_us: u64,
    used: u64,
    outstanding: u64,
    held: u64,
}

/// Runs four replicas, of which the first is killed.
fn points() -> Vec<Point> {
    let policy = policy(PER_SECOND);
    let lease = policy.lease().unwrap_or_default();
    let set = tollgate::PolicySet::from(policy.clone());
    let begin = 1_680_000_001_000_000;
    let mut random = Random::new(11);
    let mut account = Account::new(&policy, lease, begin);
    let mut replicas: Vec<(Pot, Demand)> = (0..4).map(|_| (Pot::default(), Demand::new(begin))).collect();
    let (mut points, mut time) = (Vec::new(), 0.0);
    while time < END as f64 {
        time += random.exponential(1.0 / 800e-6);
        let since = time as u64;
        let now = begin + since;
        if since >= KILLED && replicas.len() == 4 {
            replicas.remove(0);
        }
        account.settle(&policy, &policy, lease, now);
        let at = random.below(replicas.len() as u64) as usize;
        let (pot, demand) = &mut replicas[at];
        demand.count(1);
        if pot.spend(now, 1).is_none() {
            let want = demand.want(now, lease);
            let reports = pot.take_reports(now, false);
            let call = Call { cost: 1, want, birth: 1, reports };
            if let Some(grant) = step(std::slice::from_mut(&mut account), &set, now, &call).grant {
                pot.add(now, grant);
            }
        }
        if since / POINT >= points.len() as u64 {
            points.push(Point {
                at_us: since,
                used: PER_SECOND - account.remaining(&policy, now),
                outstanding: account.outstanding(),
                held: replicas.iter().map(|(pot, _)| pot.held(now)).sum(),
            });
        }
    }
    points
}
