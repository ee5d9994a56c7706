use tollgate::{Algorithm, Lease, Policy, Quota};

use super::{efficiency, mistakes, run};

#[test]
fn no_schedule_exceeds_a_bound() {
    let (sum, exceeded) = run(0..20_000);
    assert!(exceeded.is_empty(), "{} seeds, the first: {:?}", exceeded.len(), exceeded.first());
    assert!(sum.leased > sum.admitted / 20, "{sum:?}: hardly a unit was leased");
}

#[test]
fn every_mistake_is_found() {
    for (mistake, seed) in mistakes(20_000) {
        assert!(seed.is_some(), "not found: {mistake:?}");
    }
}

#[test]
fn four_replicas_admit_99_percent_of_what_one_server_admits() {
    let policy = Policy::try_new("hot", Algorithm::TokenBucket, Quota::per_second(1_000));
    let policy = policy.and_then(|policy| policy.try_leased(Lease::new())).expect("a leased policy");
    for load in [0.25, 0.5, 0.9, 1.0, 1.2, 2.0] {
        let run = efficiency::Run { policy: policy.clone(), load, weights: vec![1.0; 4], seconds: 20 };
        let figures = efficiency::run(&run);
        assert!(figures.of_ideal >= 0.99, "load {load}: {figures:?}");
        assert!(load > 0.9 || figures.trips < 0.1, "load {load}: {figures:?}");
    }
}
