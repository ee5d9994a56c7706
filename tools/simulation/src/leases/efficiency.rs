//! Compares leased replicas with one server that decides everything: the admitted units, and the trips.

use tollgate::{
    Lease, Policy, PolicySet,
    testing::lease::{Account, Call, Demand, Pot, step},
};

use crate::random::Random;

/// One run: replicas that ask for one key at random times.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) policy: Policy,
    /// The load that all replicas offer together, as a share of the rate of the policy.
    pub(crate) load: f64,
    /// The share of the load of each replica. The shares need not add up to one.
    pub(crate) weights: Vec<f64>,
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
    /// The lowest and the highest share of its checks that a replica was admitted, divided by that of all.
    pub(crate) fairness: (f64, f64),
}

#[derive(Debug)]
struct Replica {
    pot: Pot,
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
    let replica =
        || Replica { pot: Pot::default(), demand: Demand::new(begin), denied_until: 0, asked: 0, admitted: 0 };
    let mut replicas: Vec<Replica> = run.weights.iter().map(|_| replica()).collect();
    let bounds: Vec<f64> = run
        .weights
        .iter()
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    let all = bounds.last().copied().unwrap_or(1.0);
    let rate = policy.quota().amount() as f64 / policy.quota().period().as_micros() as f64;
    let (mut time, mut trips, mut best) = (0.0, 0, 0);
    loop {
        time += random.exponential(1.0 / (run.load * rate));
        if time > run.seconds as f64 * 1e6 {
            break;
        }
        let now = begin + time as u64;
        ideal.settle(policy, policy, lease, now);
        let direct = Call { cost: 1, want: 0, birth: 1, reports: Vec::new() };
        best += u64::from(step(std::slice::from_mut(&mut ideal), &set, now, &direct).admitted);
        let place = random.share() * all;
        let replica = &mut replicas[bounds.partition_point(|bound| *bound <= place)];
        replica.asked += 1;
        replica.demand.count(1);
        if replica.pot.spend(now, 1).is_some() {
            replica.admitted += 1;
            continue;
        }
        if now < replica.denied_until {
            continue;
        }
        trips += 1;
        let want = replica.demand.want(now, lease);
        let call = Call { cost: 1, want, birth: 1, reports: replica.pot.take_reports(now, false) };
        account.settle(policy, policy, lease, now);
        let answer = step(std::slice::from_mut(&mut account), &set, now, &call);
        if answer.admitted {
            replica.admitted += 1;
        } else {
            replica.denied_until = now + account.retry_us(policy, now, 1).min(REMEMBERED);
        }
        if let Some(grant) = answer.grant {
            replica.pot.add(now, grant);
        }
    }
    figures(run, &replicas, trips, best)
}

fn figures(run: &Run, replicas: &[Replica], trips: u64, best: u64) -> Figures {
    let sum = |of: fn(&Replica) -> u64| replicas.iter().map(of).sum::<u64>() as f64;
    let (asked, admitted) = (sum(|replica| replica.asked), sum(|replica| replica.admitted));
    let shares = replicas.iter().filter(|replica| replica.asked > 0);
    let shares = shares.map(|replica| replica.admitted as f64 / replica.asked as f64 / (admitted / asked));
    let fairness = shares.fold((f64::MAX, 0.0_f64), |(low, high), share| (low.min(share), high.max(share)));
    Figures {
        of_ideal: admitted / best as f64,
        trips: trips as f64 / asked,
        trips_per_second: trips as f64 / run.seconds as f64,
        fairness,
    }
}

/// Returns the runs of the report, each with its title.
pub(crate) fn runs() -> Vec<(String, Run)> {
    use tollgate::{Algorithm as A, Quota};
    let policy = |algorithm, quota| {
        Policy::try_new("hot", algorithm, quota)
            .and_then(|policy| policy.try_leased(Lease::new()))
            .unwrap_or_else(|error| unreachable!("{error}"))
    };
    let per_second = |amount| policy(A::TokenBucket, Quota::per_second(amount));
    let mut runs = Vec::new();
    let mut add = |title: &str, policy: &Policy, load, weights: Vec<f64>, seconds| {
        runs.push((format!("{title}, load {load}"), Run { policy: policy.clone(), load, weights, seconds }));
    };
    for load in [0.25, 0.5, 0.9, 1.0, 1.2, 2.0] {
        add("bucket 1000/s, 4 replicas", &per_second(1_000), load, vec![1.0; 4], 30);
    }
    for load in [0.5, 1.2] {
        add("bucket 1000/s, 70 and 3 times 10 %", &per_second(1_000), load, vec![7.0, 1.0, 1.0, 1.0], 30);
    }
    let others =
        [A::FixedWindow, A::WindowFromFirstHit, A::SlidingWindow, A::SlidingBuckets { buckets: 10 }, A::SlidingLog];
    for algorithm in others {
        for load in [0.9, 1.2] {
            let title = format!("{algorithm:?} 1000/s, 4 replicas");
            add(&title, &policy(algorithm, Quota::per_second(1_000)), load, vec![1.0; 4], 30);
        }
    }
    for load in [0.9, 1.2] {
        add(
            "fixed window 60000/min, 4 replicas",
            &policy(A::FixedWindow, Quota::per_minute(60_000)),
            load,
            vec![1.0; 4],
            120,
        );
    }
    for replicas in [10, 100, 1_000] {
        for load in [0.5, 0.9, 1.2] {
            let title = format!("bucket 10000/s, {replicas} replicas");
            add(&title, &per_second(10_000), load, vec![1.0; replicas], 20);
        }
    }
    runs
}
