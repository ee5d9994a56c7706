use super::{efficiency, mistakes, run};

#[test]
fn no_schedule_exceeds_a_bound() {
    let (sum, exceeded) = run(0..20_000);
    assert!(
        exceeded.is_empty(),
        "{} seeds, the first: {:?}",
        exceeded.len(),
        exceeded.first()
    );
    assert!(
        sum.leased > sum.admitted / 20,
        "{sum:?}: hardly a unit was leased"
    );
}

#[test]
fn every_mistake_is_found() {
    for (mistake, seed) in mistakes(20_000) {
        assert!(seed.is_some(), "not found: {mistake:?}");
    }
}

#[test]
fn four_replicas_admit_99_percent_of_what_one_server_admits() {
    for run in efficiency::runs()
        .into_iter()
        .filter(|run| run.replicas == 4)
    {
        let figures = efficiency::run(&run);
        assert!(figures.of_ideal >= 0.99, "{run:?}: {figures:?}");
        assert!(
            run.load > 0.9 || figures.trips < 0.1,
            "{run:?}: {figures:?}"
        );
    }
}
