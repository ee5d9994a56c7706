//! Rules that change while requests run.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use tollgate_rules::{Descriptor, Rules};

use super::until;

/// Writes rules of 100 tenants with one amount, or broken ones, and replaces the file by a rename.
fn put(path: &Path, amount: u64, is_broken: bool) {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for tenant in 0..100 {
        text.push_str(&format!(
            "- {{key: tenant, value: t{tenant}, rate_limit: {{unit: day, requests_per_unit: {amount}}}}}\n"
        ));
    }
    if is_broken {
        text.push_str("- {key: tenant, value: t7}\n");
    }
    let next = path.with_extension("next");
    fs::write(&next, text).unwrap();
    fs::rename(next, path).unwrap();
}

fn amount(rules: &Rules, tenant: &'static str) -> u64 {
    let (set, descriptor) = (rules.current(), Descriptor::from([("tenant", tenant)]));
    let found = set.find("d", &descriptor).expect("every tenant has a rule");
    found.rule().amount().unwrap().0
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    (directory, path)
}

#[test]
fn a_thousand_reloads_under_load_lose_no_decision_and_half_of_them_are_refused() {
    let (_directory, path) = directory();
    put(&path, 1, false);
    let rules = Rules::load(&path).unwrap();
    let (stop, decisions) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut latest = 0;
                while !stop.load(Ordering::Relaxed) {
                    // Both tenants are decided by one set.
                    let set = rules.current();
                    let of = |tenant| {
                        let descriptor = Descriptor::from([("tenant", tenant)]);
                        let found = set
                            .find("d", &descriptor)
                            .expect("every set has every tenant");
                        found.rule().amount().unwrap().0
                    };
                    let (first, last) = (of("t0"), of("t99"));
                    assert_eq!(first, last);
                    assert!(first >= latest, "older rules came back");
                    latest = first;
                    decisions.fetch_add(1, Ordering::Relaxed);
                    thread::yield_now();
                }
            });
        }
        for round in 0..1_000 {
            let is_broken = round % 2 == 1;
            put(&path, round + 1, is_broken);
            assert_eq!(rules.reload().is_err(), is_broken);
            assert_eq!(rules.last_error().is_some(), is_broken);
            assert_eq!(amount(&rules, "t50"), round + 1 - u64::from(is_broken));
        }
        until("decisions are made", || {
            decisions.load(Ordering::Relaxed) > 1_000
        });
        stop.store(true, Ordering::Relaxed);
    });
    let loads = rules.loads();
    assert_eq!((loads.succeeded, loads.failed), (501, 500));
    let errors = rules.last_error().unwrap();
    let error = errors.iter().next().unwrap();
    assert_eq!(
        (error.line(), error.column(), error.field()),
        (Some(103), Some(24), "descriptors[100].value")
    );
}

#[test]
fn the_rules_stay_when_the_file_is_gone() {
    let (_directory, path) = directory();
    put(&path, 5, false);
    let rules = Rules::load(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(
        rules
            .reload()
            .unwrap_err()
            .to_string()
            .ends_with("cannot read the file: it does not exist")
    );
    fs::create_dir(&path).unwrap();
    assert!(rules.reload().is_err());
    assert_eq!(amount(&rules, "t0"), 5);
}

#[test]
fn rules_are_replaced_by_a_call() {
    let rules = Rules::new(super::rules("domain: one\n"));
    rules.replace(super::rules("domain: two\n"));
    assert!(rules.current().has_domain("two"));
    assert!(rules.reload().is_ok());
    assert!(
        rules
            .watch()
            .unwrap_err()
            .to_string()
            .contains("not loaded from a file")
    );
}

#[test]
fn a_file_is_reloaded_when_it_is_replaced_or_written_in_place() {
    let (_directory, path) = directory();
    put(&path, 1, false);
    let rules = Rules::load(&path).unwrap();
    let _guard = rules.watch().unwrap();
    put(&path, 2, false);
    until("the file was replaced", || amount(&rules, "t0") == 2);
    fs::write(
        &path,
        "domain: d\ndescriptors: [{key: tenant, rate_limit: {unit: day, requests_per_unit: 3}}]\n",
    )
    .unwrap();
    until("the file was written in place", || {
        amount(&rules, "t0") == 3
    });
    put(&path, 4, true);
    until("the broken file was refused", || {
        rules.last_error().is_some()
    });
    assert_eq!(amount(&rules, "t0"), 3);
    put(&path, 5, false);
    until("the file was mended", || amount(&rules, "t0") == 5);
    assert!(rules.last_error().is_none());
}

#[test]
fn a_directory_is_reloaded_when_a_file_in_it_changes_appears_or_goes() {
    let directory = tempfile::tempdir().unwrap();
    put(&directory.path().join("a.yaml"), 1, false);
    let rules = Rules::load(directory.path()).unwrap();
    let _guard = rules.watch().unwrap();
    put(&directory.path().join("a.yaml"), 2, false);
    until("the file changed", || amount(&rules, "t0") == 2);
    fs::write(directory.path().join("b.yaml"), "domain: e\n").unwrap();
    until("a file appeared", || rules.current().has_domain("e"));
    fs::remove_file(directory.path().join("b.yaml")).unwrap();
    until("a file went", || !rules.current().has_domain("e"));
}

/// Swaps the link `..data` to a new directory, as Kubernetes does for a config map.
#[cfg(unix)]
fn swap(mount: &Path, version: u64) {
    let data = mount.join(format!("..version{version}"));
    fs::create_dir(&data).unwrap();
    put(&data.join("rules.yaml"), version, false);
    let next = mount.join("..data_tmp");
    std::os::unix::fs::symlink(data.file_name().unwrap(), &next).unwrap();
    fs::rename(next, mount.join("..data")).unwrap();
    if version > 1 {
        fs::remove_dir_all(mount.join(format!("..version{}", version - 1))).unwrap();
    }
}

#[test]
#[cfg(unix)]
fn a_config_map_is_reloaded_when_its_links_are_swapped() {
    for is_file in [true, false] {
        let mount = tempfile::tempdir().unwrap();
        swap(mount.path(), 1);
        let path = mount.path().join("rules.yaml");
        std::os::unix::fs::symlink("..data/rules.yaml", &path).unwrap();
        let rules = Rules::load(if is_file {
            path
        } else {
            mount.path().to_owned()
        })
        .unwrap();
        let _guard = rules.watch().unwrap();
        for version in 2..5 {
            swap(mount.path(), version);
            until("the links were swapped", || amount(&rules, "t0") == version);
        }
    }
}

#[test]
#[cfg(unix)]
fn a_directory_behind_a_link_is_reloaded_when_the_link_is_swapped_and_when_its_files_change() {
    let base = tempfile::tempdir().unwrap();
    let link = base.path().join("current");
    for version in 1..3 {
        let directory = base.path().join(format!("v{version}"));
        fs::create_dir(&directory).unwrap();
        put(&directory.join("rules.yaml"), version, false);
    }
    std::os::unix::fs::symlink("v1", &link).unwrap();
    let rules = Rules::load(&link).unwrap();
    let _guard = rules.watch().unwrap();
    std::os::unix::fs::symlink("v2", base.path().join("next")).unwrap();
    fs::rename(base.path().join("next"), &link).unwrap();
    until("the link was swapped", || amount(&rules, "t0") == 2);
    put(&base.path().join("v2/rules.yaml"), 9, false);
    until("a file behind the new link changed", || {
        amount(&rules, "t0") == 9
    });
}

/// Swaps a link.
#[cfg(unix)]
fn link(target: &str, at: &Path) {
    let next = at.with_extension("next");
    std::os::unix::fs::symlink(target, &next).unwrap();
    fs::rename(next, at).unwrap();
}

#[test]
#[cfg(unix)]
fn a_link_at_any_depth_is_swapped() {
    for (place, swapped) in [
        ("current/ratelimit/config", "current"),
        ("root/sub/ratelimit/config", "disk/sub"),
    ] {
        let base = tempfile::tempdir().unwrap();
        let base = base.path();
        fs::create_dir_all(base.join("disk/deep")).unwrap();
        for version in 1..4 {
            let config = base.join(format!("disk/v{version}/ratelimit/config"));
            fs::create_dir_all(&config).unwrap();
            put(&config.join("rules.yaml"), version, false);
        }
        let prefix = if swapped == "current" { "disk/" } else { "" };
        link("disk", &base.join("root"));
        link(&format!("{prefix}v1"), &base.join(swapped));
        let rules = Rules::load(base.join(place)).unwrap();
        let _guard = rules.watch().unwrap();
        for version in 2..4 {
            link(&format!("{prefix}v{version}"), &base.join(swapped));
            until("the link was swapped", || amount(&rules, "t0") == version);
        }
        put(&base.join("disk/v3/ratelimit/config/rules.yaml"), 9, false);
        until("a file behind the link changed", || {
            amount(&rules, "t0") == 9
        });
        put(&base.join("disk/v1/ratelimit/config/rules.yaml"), 5, false);
        assert_eq!(rules.loads().succeeded, 4);
    }
}

#[test]
#[cfg(unix)]
fn a_file_of_a_directory_may_be_a_link_to_another_place() {
    let base = tempfile::tempdir().unwrap();
    for directory in ["rules", "store"] {
        fs::create_dir(base.path().join(directory)).unwrap();
    }
    put(&base.path().join("store/shop.yaml"), 1, false);
    link("../store/shop.yaml", &base.path().join("rules/shop.yaml"));
    let rules = Rules::load(base.path().join("rules")).unwrap();
    let _guard = rules.watch().unwrap();
    put(&base.path().join("store/shop.yaml"), 2, false);
    until("the file at the end of the link changed", || {
        amount(&rules, "t0") == 2
    });
}

#[test]
fn a_directory_may_be_deleted_and_made_again_and_appear_later() {
    let base = tempfile::tempdir().unwrap();
    let config = base.path().join("late/ratelimit/config");
    let rules = Rules::empty(tollgate_rules::RuleSet::builder(), Some(config.clone()));
    let _guard = rules.watch().unwrap();
    for version in 1..4 {
        fs::create_dir_all(&config).unwrap();
        put(&config.join("rules.yaml"), version, false);
        until("the rules appeared", || {
            rules.loads().succeeded == version && amount(&rules, "t0") == version
        });
        let gone = if version == 1 {
            config.clone()
        } else {
            base.path().join("late")
        };
        fs::remove_dir_all(gone).unwrap();
        until("the rules are gone", || rules.last_error().is_some());
    }
}

#[test]
fn no_change_is_loaded_after_the_guard_is_dropped() {
    let (_directory, path) = directory();
    put(&path, 1, false);
    let rules = Rules::load(&path).unwrap();
    drop(rules.watch().unwrap());
    let other = Rules::load(&path).unwrap();
    let _guard = other.watch().unwrap();
    put(&path, 2, false);
    until("the other handle sees the change", || {
        amount(&other, "t0") == 2
    });
    assert_eq!(amount(&rules, "t0"), 1);
}

#[test]
#[cfg(unix)]
fn rules_are_reloaded_on_sighup() {
    let (_directory, path) = directory();
    put(&path, 1, false);
    let rules = Rules::load(&path).unwrap();
    let guard = rules.reload_on_hangup().unwrap();
    put(&path, 2, false);
    signal_hook::low_level::raise(signal_hook::consts::SIGHUP).unwrap();
    until("the signal was received", || amount(&rules, "t0") == 2);
    drop(guard);
}

#[test]
fn a_log_beside_the_rules_does_not_reload_them() {
    let (directory, path) = directory();
    put(&path, 1, false);
    let rules = Rules::load(&path).unwrap();
    let _guard = rules.watch().unwrap();
    put(&path, 2, false);
    until("the first change", || amount(&rules, "t0") == 2);
    let log = directory.path().join("service.log");
    // Each line is an event of its own. Without a look at the rules, each would load them.
    for line in 0..10 {
        fs::write(&log, format!("line {line}")).unwrap();
        thread::sleep(Duration::from_millis(100));
    }
    let before = rules.loads().succeeded;
    put(&path, 3, false);
    until("the change of the rules", || amount(&rules, "t0") == 3);
    assert!(before <= 3, "{before} loads");
    assert_eq!(rules.loads().failed, 0);
}
