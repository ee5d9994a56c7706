//! Compares leased replicas with one server that decides everything: the admitted units, and the
//! trips.

use tollgate::{
    Lease, Policy, PolicySet, Quota,
    testing::{Demand, HeldUnits},
};
use tollgate_test_support::calls::Call;
use tollgate_test_support::leases::{Account, step};

use crate::random::Random;

/// One run: replicas that ask for one key at random times.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) policy: Policy,
    /// The load that all replicas offer together, as a share of the rate of the policy.
    pub(crate) load: f64,
    pub(crate) replicas: usize,
    pub(crate) seconds: u64,
}

/// The figures of a run.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// The admitted units, divided by those that one server admits of the same requests.
    pub(crate) of_ideal: f64,
    /// The trips to the server, divided by the checks.
    pub(crate) trips: f64,
    /// The trips in a second.
    pub(crate) trips_per_second: f64,
    /// The lowest and the highest share of its checks that a replica was admitted, divided by that
    /// of all.
    pub(crate) fairness: (f64, f64),
}

#[derive(Debug)]
struct Replica {
    units: HeldUnits,
    demand: Demand,
    denied_until: u64,
    asked: u64,
    admitted: u64,
}

/// The cap of the time for which a denial is remembered.
const REMEMBERED: u64 = 1_000_000;

/// Runs the requests. A trip takes no time.
pub(crate) fn run(run: &Run) -> Figures {
    let policy = &run.policy;
    let lease = policy.lease().unwrap_or_default();
    let set = PolicySet::from(policy.clone());
    let mut random = Random::new(7);
    let begin = 1_680_000_000_000_000;
    let [mut account, mut ideal] = [(); 2].map(|()| Account::new(policy, lease, begin));
    let replica = || Replica {
        units: HeldUnits::default(),
        demand: Demand::new(begin),
        denied_until: 0,
        asked: 0,
        admitted: 0,
    };
    let mut replicas: Vec<Replica> = (0..run.replicas).map(|_| replica()).collect();
    let rate = policy.quota().amount() as f64 / policy.quota().period().as_micros() as f64;
    let (mut time, mut trips, mut best) = (0.0, 0, 0);
    loop {
        time += random.exponential(1.0 / (run.load * rate));
        if time > run.seconds as f64 * 1e6 {
            break;
        }
        let now = begin + time as u64;
        ideal.settle(policy, policy, lease, now);
        let direct = Call {
            cost: 1,
            want: 0,
            birth: 1,
            reports: Vec::new(),
        };
        best += u64::from(step(std::slice::from_mut(&mut ideal), &set, now, &direct).admitted);
        let replica = &mut replicas[random.below(run.replicas as u64) as usize];
        replica.asked += 1;
        replica.demand.count(1);
        if replica.units.spend(now, 1).is_some() {
            replica.admitted += 1;
            continue;
        }
        if now < replica.denied_until {
            continue;
        }
        trips += 1;
        let want = replica.demand.want(now, lease);
        let call = Call {
            cost: 1,
            want,
            birth: 1,
            reports: replica.units.take_reports(now, false),
        };
        account.settle(policy, policy, lease, now);
        let answer = step(std::slice::from_mut(&mut account), &set, now, &call);
        if answer.admitted {
            replica.admitted += 1;
        } else {
            replica.denied_until = now + account.retry_us(policy, now, 1).min(REMEMBERED);
        }
        if let Some(grant) = answer.grant {
            replica.units.add(now, grant);
        }
    }
    figures(run, &replicas, trips, best)
}

fn figures(run: &Run, replicas: &[Replica], trips: u64, best: u64) -> Figures {
    let sum = |of: fn(&Replica) -> u64| replicas.iter().map(of).sum::<u64>() as f64;
    let (asked, admitted) = (
        sum(|replica| replica.asked),
        sum(|replica| replica.admitted),
    );
    let shares = replicas.iter().filter(|replica| replica.asked > 0);
    let shares =
        shares.map(|replica| replica.admitted as f64 / replica.asked as f64 / (admitted / asked));
    let fairness = shares.fold((f64::MAX, 0.0_f64), |(low, high), share| {
        (low.min(share), high.max(share))
    });
    Figures {
        of_ideal: admitted / best as f64,
        trips: trips as f64 / asked,
        trips_per_second: trips as f64 / run.seconds as f64,
        fairness,
    }
}

/// Returns the runs that are printed: token buckets of so many units a second.
pub(crate) fn runs() -> Vec<Run> {
    let runs = |per_second, replicas, loads: &[f64]| {
        let policy =
            Policy::token_bucket("hot", Quota::per_second(per_second)).leased(Lease::new());
        let run = |&load: &f64| Run {
            policy: policy.clone(),
            load,
            replicas,
            seconds: 20,
        };
        loads.iter().map(run).collect::<Vec<_>>()
    };
    let mut all = runs(1_000, 4, &[0.25, 0.5, 0.9, 1.0, 1.2, 2.0]);
    all.extend(
        [1, 3, 10, 30, 100, 300, 1_000]
            .iter()
            .flat_map(|&replicas| runs(10_000, replicas, &[0.5, 0.9, 1.2])),
    );
    all
}
