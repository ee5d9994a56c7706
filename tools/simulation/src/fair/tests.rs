use super::{
    scene::{Figures, Knows, Scene},
    scenes,
};

/// Runs a scene for as long as its figures need.
fn run(title: &str, knows: Knows) -> Figures {
    let scene = scenes::all().into_iter().find(|scene| scene.title == title);
    let scene = scene.expect("a scene of this title");
    let figures = Scene { until: 30, ..scene }.run(knows);
    assert_eq!(figures.excess, 0, "{title}");
    assert!(figures.used > 0.99, "{title}: {figures:?}");
    figures
}

/// Returns what a class gets, as a share of its ideal.
fn share(figures: &Figures, class: usize) -> f64 {
    figures.classes[class].admitted / figures.classes[class].ideal
}

#[test]
fn light_customers_get_their_share_within_a_second() {
    let without = run("light customers ask for half", Knows::Nothing);
    assert!(share(&without, 0) < 0.25, "{without:?}");
    let told = run("light customers ask for half", Knows::Told);
    assert!(told.classes[0].least > 0.99, "{told:?}");
    // The heavy one begins meanwhile.
    assert!(told.classes[0].course.iter().all(|&part| part > 0.99));
}

#[test]
fn a_customer_of_many_replicas_counts_once_when_they_tell_each_other() {
    let alone = run("light customers on one replica each", Knows::Own);
    assert!(share(&alone, 1) > 3.5, "{alone:?}");
    for title in ["light customers on one replica each", "16 replicas"] {
        let told = run(title, Knows::Told);
        assert!(share(&told, 0) > 0.99, "{title}: {told:?}");
        assert!(share(&told, 1) < 1.4, "{title}: {told:?}");
        assert!(told.jain > 0.99, "{title}: {told:?}");
    }
}

#[test]
fn weights_are_kept() {
    let told = run("weights", Knows::Told);
    for class in 0..3 {
        assert!((0.85..1.15).contains(&share(&told, class)), "{told:?}");
    }
}
