use super::{figures, scene::Figures, scenes::BEGIN};

/// Runs everything once, because it takes seconds.
#[test]
fn light_customers_get_their_share_at_once_and_the_limit_is_used_and_never_exceeded() {
    let runs = figures();
    for (scene, runs) in &runs {
        for figures in runs {
            assert_eq!(figures.excess, 0, "{}", scene.title);
            assert!(figures.used > 0.99, "{}: {figures:?}", scene.title);
        }
    }
    let find = |title: &str| {
        runs.iter()
            .find(|(scene, _)| scene.title == title)
            .expect("a scene of this title")
    };

    let (_, [without, each, _]) = find("light customers ask for half");
    assert!(share(without) < 0.25, "{without:?}");
    assert!(each.classes[0].least > 0.99, "{each:?}");
    assert_eq!(seconds_until_fair(each), 0);
    let (_, [_, each, _]) = find("customers that come once");
    assert!(share(each) > 0.99, "{each:?}");
    let (_, [_, each, _]) = find("all ask for too much");
    assert!(each.classes[0].least > 0.95, "{each:?}");
    assert!(seconds_until_fair(each) <= 2);

    // A customer on four replicas counts as four. One meter for all sees that it is one.
    let (_, [_, each, one]) = find("heavy customers on one and on four replicas");
    assert!((0.35..0.5).contains(&share(each)), "{each:?}");
    assert!(share(one) > 0.95, "{one:?}");
    let (_, [_, each, _]) = find("weights");
    for class in &each.classes {
        assert!(
            (0.9..1.1).contains(&(class.admitted / class.ideal)),
            "{each:?}"
        );
    }
}

/// Returns what the first class gets, as a share of its ideal.
fn share(figures: &Figures) -> f64 {
    figures.classes[0].admitted / figures.classes[0].ideal
}

/// Returns the seconds after which the first class has its share for ever.
fn seconds_until_fair(figures: &Figures) -> usize {
    let course = &figures.classes[0].course[BEGIN as usize..];
    course
        .iter()
        .rposition(|&share| share < 0.9)
        .map_or(0, |last| last + 1)
}
