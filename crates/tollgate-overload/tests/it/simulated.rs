//! Limits in a simulated service of known capacity.

use std::time::Duration;

use tollgate_overload::{
    AdaptiveLimiter, AdaptiveLimiterBuilder, Aimd, Gradient, LimitAlgorithm, Vegas,
};

use crate::simulation::Simulation;

fn algorithms() -> [(&'static str, Box<dyn LimitAlgorithm>); 3] {
    [
        ("gradient", Box::new(Gradient::new())),
        ("vegas", Box::new(Vegas::new())),
        ("aimd", Box::new(Aimd::new(Duration::from_millis(180)))),
    ]
}

fn limiter(algorithm: impl LimitAlgorithm + 'static) -> AdaptiveLimiterBuilder {
    AdaptiveLimiter::builder(algorithm).limits(2..=1000)
}

#[test]
fn the_limit_converges_to_the_capacity_of_a_saturated_service() {
    for workers in [10, 40] {
        for initial_limit in [2, 300] {
            for (name, algorithm) in algorithms() {
                let load = 1.5 * workers as f64 / 0.1;
                let mut simulation = Simulation::new(
                    limiter(algorithm).initial_limit(initial_limit),
                    workers,
                    &[load],
                );
                simulation.service_time = Duration::from_millis(100);
                simulation.run(170.0);
                simulation.take_counts();
                let limit = simulation.mean_limit(30) / workers as f64;
                let done =
                    f64::from(simulation.take_counts()[0].admitted) / 30.0 / simulation.capacity();
                let case = format!(
                    "{name}, {workers} workers, from {initial_limit}: limit {limit:.2}, done {done:.3}"
                );
                assert!((0.95..2.8).contains(&limit), "{case}");
                assert!(done > 0.93, "{case}");
            }
        }
    }
}

#[test]
fn the_limit_does_not_grow_for_ever_while_the_service_is_saturated() {
    let mut simulation = Simulation::new(limiter(Gradient::new()), 10, &[150.0]);
    simulation.service_time = Duration::from_millis(100);
    simulation.run(200.0);
    let early = simulation.mean_limit(60);
    simulation.run(1200.0);
    let late = simulation.mean_limit(60);
    assert!(late < 1.2 * early, "{early} has become {late}");
}

#[test]
fn the_limit_follows_the_number_of_workers_up_and_down() {
    for (name, algorithm) in algorithms() {
        let mut simulation = Simulation::new(limiter(algorithm), 40, &[600.0]);
        simulation.service_time = Duration::from_millis(100);
        simulation.run(60.0);
        let before = simulation.mean_limit(10);
        simulation.workers = 10;
        simulation.run(60.0);
        let fewer = simulation.mean_limit(10);
        simulation.workers = 40;
        simulation.run(60.0);
        let after = simulation.mean_limit(10);
        assert!(fewer < 0.6 * before, "{name}: {before} has become {fewer}");
        assert!(
            after > 0.8 * before,
            "{name}: {before} has come back to {after}"
        );
    }
}

#[test]
fn a_service_that_is_not_saturated_keeps_its_limit_and_sheds_nothing() {
    for (name, algorithm) in algorithms() {
        // Three requests in flight on average.
        let mut simulation = Simulation::new(limiter(algorithm), 40, &[300.0]);
        simulation.run(120.0);
        assert!(
            (20..40).contains(&simulation.limiter.limit()),
            "{name}: {:?}",
            simulation.limiter
        );
        assert!(
            simulation.counts[0].share() > 0.9999,
            "{name}: {:?}",
            simulation.counts
        );
    }
}

/// The service takes ten times as long for ten seconds.
#[test]
fn critical_requests_pass_while_the_service_is_slow_and_the_limit_comes_back() {
    // 3200 requests per second fit, and 320 while the service is slow.
    let load = [150.0, 700.0, 700.0];
    // A fixed bound on the latency knows nothing of a service that became slow: its lowest limit
    // has to do.
    for (name, lowest, algorithm) in [
        (
            "gradient",
            4,
            Box::new(Gradient::new()) as Box<dyn LimitAlgorithm>,
        ),
        ("vegas", 4, Box::new(Vegas::new())),
        ("aimd", 30, Box::new(Aimd::new(Duration::from_millis(25)))),
    ] {
        let limiter = AdaptiveLimiter::builder(algorithm)
            .limits(lowest..=500)
            .initial_limit(40);
        let mut simulation = Simulation::new(limiter, 32, &load);
        simulation.run(30.0);
        let before = simulation.mean_limit(5);
        simulation.take_counts();

        simulation.service_time *= 10;
        simulation.run(10.0);
        let slow = simulation.take_counts();
        assert!(slow[0].share() >= 0.99, "{name}: {slow:?}");
        assert!(slow[1].share() < 0.5, "{name}: {slow:?}");
        assert!(slow[2].share() < slow[1].share(), "{name}: {slow:?}");

        simulation.service_time /= 10;
        simulation.run(5.0);
        let after = simulation.mean_limit(1);
        assert!(
            after >= 0.8 * before.min(40.0),
            "{name}: {before} has come back to {after}"
        );
        simulation.take_counts();
        simulation.run(5.0);
        let recovered = simulation.take_counts();
        assert!(
            recovered.iter().all(|count| count.share() > 0.95),
            "{name}: {recovered:?}"
        );
    }
}

#[test]
fn classes_are_shed_in_order() {
    // Each class alone would fill the service.
    let mut simulation = Simulation::new(
        limiter(Gradient::new()).shares([1.0, 0.8, 0.6, 0.4]),
        20,
        &[500.0; 4],
    );
    simulation.run(30.0);
    simulation.load = vec![1500.0, 1500.0, 1500.0, 1500.0];
    simulation.run(10.0);
    simulation.take_counts();
    simulation.run(30.0);
    let shares: Vec<_> = simulation
        .take_counts()
        .into_iter()
        .map(|count| count.share())
        .collect();
    assert!(shares.is_sorted_by(|more, less| more > less), "{shares:?}");
    assert!(shares[0] > 0.95, "{shares:?}");
    assert!(shares[3] < 0.05, "{shares:?}");
}
