//! `tollgate check`.

use std::fs;

use super::{File, SHOP, command, tollgate};

#[test]
fn a_correct_file_ends_with_status_0() {
    let file = File::new("rules.yaml", SHOP);
    let run = tollgate(["check", file.path()]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    assert_eq!(
        run.stdout,
        format!(
            "{}: ok, 4 rules, 1 domain, mode native, digest 62ac02b2f84f9cd5\n",
            file.path()
        )
    );
}

#[test]
fn a_mistake_is_reported_with_file_line_column_and_field() {
    let text = "domain: shop\ndescriptors:\n- key: tenant\n  rate_limit: {unit: minuet, requests_per_unit: 5}\n";
    let file = File::new("rules.yaml", text);
    let run = tollgate(["check", file.path()]);
    assert_eq!(run.status, 1);
    let expected = format!(
        "error: {}:4:22: descriptors[0].rate_limit.unit: unknown unit \"minuet\", expected second, minute, hour, day, \
         week, month or year; did you mean minute?\n",
        file.path()
    );
    assert!(run.stdout.starts_with(&expected), "{}", run.stdout);
    assert!(
        run.stdout.ends_with("rules.yaml: 1 mistake\n"),
        "{}",
        run.stdout
    );

    let json = tollgate(["check", "--format", "json", file.path()]).json();
    let error = &json["files"][0]["errors"][0];
    assert_eq!(
        (error["line"].as_u64(), error["column"].as_u64()),
        (Some(4), Some(22))
    );
    assert_eq!(error["field"], "descriptors[0].rate_limit.unit");
    assert_eq!(json["files"][0]["is_valid"], false);
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("rules.yaml");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let device = directory.path().join("device.yaml");
    std::os::unix::fs::symlink("/dev/zero", &device).unwrap();
    for path in [&pipe, &device] {
        let path = path.to_str().unwrap();
        let run = tollgate(["check", path]);
        let expected =
            format!("error: {path}: expected a file, got a pipe, a socket or a device\n");
        assert!(run.stdout.starts_with(&expected), "{}", run.stdout);
        assert_eq!(run.status, 2);
    }
}

#[test]
fn a_warning_is_an_error_only_when_it_is_denied() {
    let text = "
domain: shop
descriptors:
- {key: tenant, value: '*', rate_limit: {quota: 5/min}}
- {key: tenant, rate_limit: {quota: 5/min, replaces: [{name: gold}]}}
";
    let file = File::new("rules.yaml", text);
    let run = tollgate(["check", file.path()]);
    assert_eq!(run.status, 0);
    let path = file.path();
    let expected = format!(
        "warning: {path}:5: tenant without a value is never selected, because tenant=* ({path}:4) matches all its values\n\
         warning: {path}:5: replaces \"gold\", but no limit of the domain shop has that name\n\
         {path}: ok, 2 rules, 1 domain, mode native, digest 34b37e744222574e\n"
    );
    assert_eq!(run.stdout, expected);
    assert_eq!(
        tollgate(["check", "--deny-warnings", file.path()]).status,
        1
    );
}

#[test]
fn quirks_of_the_mode_envoy_are_named_with_their_place() {
    let text = "
domain: shop
descriptors:
- {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}
- {key: user_id, rate_limit: {unit: minute}}
- {key: a, value: x, shadow_mode: yes}
- {key: a*, detailed_metric: true, metadata: {a: 1}, rate_limit: {unit: minute, requests_per_unit: 5}}
";
    let file = File::new("rules.yaml", text);
    let run = tollgate([
        "check",
        "--compat",
        "envoy",
        "--format",
        "json",
        file.path(),
    ]);
    assert_eq!(run.status, 0);
    let quirks = run.json()["files"][0]["quirks"].as_array().unwrap().clone();
    let told: Vec<_> = quirks
        .iter()
        .map(|quirk| {
            (
                quirk["line"].as_u64().unwrap(),
                quirk["message"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    let has = |line: u64, words: &str| {
        told.iter()
            .any(|(at, message)| *at == line && message.contains(words))
    };
    assert!(
        has(5, "an entry user=id also selects user_id without a value"),
        "{told:#?}"
    );
    assert!(has(5, "write 0 to deny every request"), "{told:#?}");
    assert!(has(6, "yes"), "{told:#?}");
    assert!(has(7, "must not contain *"), "{told:#?}");
    assert!(has(7, "the metadata is lost"), "{told:#?}");

    // The mode in the file is no obstacle, and native mode names the way out.
    let named = File::new("rules.yaml", format!("compat: envoy\n{text}"));
    let run = tollgate(["check", "--format", "json", named.path()]);
    assert_eq!(
        run.json()["files"][0]["quirks"].as_array().unwrap().len(),
        quirks.len()
    );
    let run = tollgate(["check", file.path()]);
    assert!(
        run.status == 1
            && run
                .stdout
                .contains("the mode envoy accepts these rules: --compat envoy"),
        "{}",
        run.stdout
    );
}

#[test]
fn a_directory_is_one_set_and_each_argument_a_set_of_its_own() {
    let file = File::new("a.yaml", SHOP);
    fs::write(
        file.directory().join("b.yaml"),
        SHOP.replace("tenant", "customer"),
    )
    .unwrap();
    let directory = file.directory().to_str().unwrap();
    let run = tollgate(["check", directory]);
    run.assert_printed(1, "has rules in another file");
    let run = tollgate(["check", "--merge-domains", directory]);
    run.assert_printed(0, "ok, 8 rules, 1 domain");
    assert_eq!(
        tollgate([
            "check",
            file.path(),
            file.directory().join("b.yaml").to_str().unwrap()
        ])
        .status,
        0
    );
}

#[test]
fn what_cannot_be_read_ends_with_status_2() {
    let empty = File::new("empty.yaml", "");
    let run = tollgate(["check", empty.path()]);
    run.assert_printed(1, "empty.yaml");

    let directory = tempfile::tempdir().unwrap();
    let text = File::new("rules.txt", SHOP);
    for path in [
        directory.path().to_str().unwrap(),
        text.path(),
        "/no/such/rules.yaml",
    ] {
        let run = tollgate(["check", path]);
        assert!(
            run.status == 2 && run.stdout.contains(path),
            "{path}: {}",
            run.stdout
        );
    }
    // The mistakes of other files are still told.
    let run = tollgate(["check", "/no/such/rules.yaml", empty.path()]);
    run.assert_printed(2, "empty.yaml: 1 mistake");
}

#[test]
fn hostile_files_are_refused_with_their_place() {
    let (long, deep) = (
        format!("domain: {}", "x".repeat(20 << 20)),
        "[".repeat(10 << 20),
    );
    for (content, words) in [
        (long.as_bytes(), "bytes"),
        (deep.as_bytes(), "rules.yaml:1:256: "),
        (b"domain: sh\xffop\n", "the file is not valid UTF-8"),
        (b"[[[[", "rules.yaml"),
        (b"\xEF\xBB\xBFdomain: a\ndomain: b\n", "domain"),
    ] {
        let file = File::new("rules.yaml", content);
        let run = tollgate(["check", file.path()]);
        run.assert_printed(1, words);
    }
}

#[test]
fn texts_of_a_file_forge_no_line_and_do_not_reach_the_terminal() {
    let forged = r#""x\n/rules.yaml: ok, 1 rule, 1 domain, mode native\e[2J\e]0;title\a""#;
    for (text, status, lines) in [
        (format!("domain: d\n{forged}: 1\n"), 1, 2),
        (
            format!("domain: d\ndescriptors: [{{key: {forged}}}, {{key: a, {forged}: 1}}]\n"),
            1,
            2,
        ),
        (
            format!("domain: {forged}\ndescriptors: [{{key: {forged}, value: {forged}}}]\n"),
            0,
            2,
        ),
    ] {
        let file = File::new("ru\u{1b}[2J\nles.yaml", &text);
        let run = tollgate(["check", file.path()]);
        assert_eq!(
            (run.status, run.stdout.lines().count()),
            (status, lines),
            "{}",
            run.stdout
        );
        let is_obeyed = |sign: char| sign.is_control() && sign != '\n';
        assert!(!run.stdout.contains(is_obeyed), "{:?}", run.stdout);
        let run = tollgate(["explain", file.path(), "a\u{1b}[2J=b\nc"]);
        assert!(
            !run.stdout.contains(is_obeyed) && !run.stderr.contains(is_obeyed),
            "{:?}{:?}",
            run.stdout,
            run.stderr
        );
    }
}

#[cfg(unix)]
#[test]
fn a_file_without_permission_ends_with_status_2() {
    use std::os::unix::{fs::PermissionsExt as _, process::CommandExt as _};

    let file = File::new("rules.yaml", SHOP);
    fs::set_permissions(file.directory(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&file.path, fs::Permissions::from_mode(0o000)).unwrap();
    let mut check = command();
    check.args(["check", file.path()]);
    if fs::File::open(&file.path).is_ok() {
        // The super-user reads every file, so the command runs as another user.
        check.uid(65_534);
    }
    let run = super::Run::from(check.output().unwrap());
    run.assert_printed(2, "the permission is missing");
}
