//! Files and directories.

use std::{fs, path::Path};

use tollgate_rules::{Limits, RuleErrorKind, RuleSet};

fn write(path: &Path, text: impl AsRef<[u8]>) {
    fs::write(path, text).unwrap();
}

#[test]
fn the_files_of_a_directory_are_read_by_name_and_others_are_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write(&path.join("b.yaml"), "domain: b\n");
    write(&path.join("a.json"), "{\"domain\": \"a\"}");
    write(&path.join("c.TOML"), "domain = \"c\"");
    write(&path.join("README.md"), "not rules");
    write(&path.join(".hidden.yaml"), "not rules: [");
    fs::create_dir(path.join("d.yaml")).unwrap();
    let set = RuleSet::load(path).unwrap();
    let mut domains: Vec<_> = set.domains().collect();
    domains.sort_unstable();
    assert_eq!(domains, ["a", "b", "c"]);
}

#[test]
fn a_domain_in_two_files_is_refused_unless_files_are_merged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write(
        &path.join("a.yaml"),
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n",
    );
    write(
        &path.join("b.yaml"),
        "domain: d\ndescriptors:\n- {key: b, rate_limit: {unit: day, requests_per_unit: 1}}\n",
    );
    let errors = RuleSet::load(path).unwrap_err();
    let expected = "b.yaml:1:9: domain: domain \"d\" has rules in another file, join the files or set merge_domains";
    assert!(errors.to_string().ends_with(expected), "{errors}");

    let builder = RuleSet::builder().merge_domains(true);
    assert_eq!(builder.load(path).unwrap().rules().count(), 2);

    // A descriptor in both files stays a mistake.
    write(&path.join("c.yaml"), "domain: d\ndescriptors:\n- key: a\n");
    let errors = builder.load(path).unwrap_err().to_string();
    assert!(
        errors.contains("c.yaml:3:8: descriptors[0].key: key \"a\" without a value appears twice"),
        "{errors}"
    );
    assert!(errors.ends_with("a.yaml:3"), "{errors}");
}

#[test]
fn what_cannot_be_read_is_reported_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let errors = RuleSet::load(path.join("none.yaml"))
        .unwrap_err()
        .to_string();
    assert!(
        errors.ends_with("none.yaml: cannot read the file: it does not exist"),
        "{errors}"
    );

    let errors = RuleSet::load(path).unwrap_err().to_string();
    assert!(
        errors.contains("the directory has no file of rules"),
        "{errors}"
    );

    write(&path.join("rules.ini"), "domain: d\n");
    let errors = RuleSet::load(path.join("rules.ini"))
        .unwrap_err()
        .to_string();
    assert!(
        errors.contains("rules.ini: unknown format, expected a name that ends in"),
        "{errors}"
    );

    write(&path.join("latin.yaml"), b"domain: d\n# caf\xe9\n");
    let errors = RuleSet::load(path.join("latin.yaml"))
        .unwrap_err()
        .to_string();
    assert!(
        errors.ends_with("latin.yaml:2:6: the file is not valid UTF-8"),
        "{errors}"
    );

    fs::create_dir(path.join("folder.yaml")).unwrap();
    let errors = RuleSet::builder()
        .load_files([path.join("folder.yaml")])
        .unwrap_err();
    assert!(
        errors
            .to_string()
            .ends_with("folder.yaml: expected a file, got a directory"),
        "{errors}"
    );
    assert_eq!(errors.iter().next().unwrap().kind(), RuleErrorKind::Io);
}

#[test]
#[cfg(unix)]
fn a_file_without_permission_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    write(&path, "domain: d\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    // The superuser reads every file.
    let is_superuser = fs::read(&path).is_ok();
    match RuleSet::load(&path) {
        Ok(_) => assert!(is_superuser),
        Err(errors) => {
            assert!(
                errors
                    .to_string()
                    .ends_with("cannot read the file: the permission is missing"),
                "{errors}"
            );
        }
    }
}

#[test]
fn a_large_file_is_refused_by_its_size() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    let file = fs::File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    let errors = RuleSet::load(&path).unwrap_err().to_string();
    assert!(
        errors.ends_with("a file must have at most 16777216 bytes, got 1099511627776"),
        "{errors}"
    );
}

#[test]
fn a_directory_of_too_many_files_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for name in 0..5 {
        write(
            &directory.path().join(format!("{name}.yaml")),
            format!("domain: d{name}\n"),
        );
    }
    let limits = |files| Limits {
        files,
        ..Limits::default()
    };
    assert!(
        RuleSet::builder()
            .limits(limits(5))
            .load(directory.path())
            .is_ok()
    );
    let errors = RuleSet::builder()
        .limits(limits(4))
        .load(directory.path())
        .unwrap_err()
        .to_string();
    assert!(
        errors.ends_with("a directory must have at most 4 files of rules"),
        "{errors}"
    );
}

#[test]
fn mistakes_of_all_files_are_reported_together() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write(&path.join("a.yaml"), "domain: [\n");
    write(&path.join("b.yaml"), "domian: d\n");
    let errors = RuleSet::load(path).unwrap_err();
    let files: Vec<_> = errors
        .iter()
        .map(|error| error.file().unwrap().file_name().unwrap().to_str().unwrap())
        .collect();
    assert_eq!(files, ["a.yaml", "b.yaml", "b.yaml"]);
}
