//! The command line itself: help, pages, completions, wrong arguments.

use super::{command, tollgate};

#[test]
fn the_help_of_every_subcommand_has_examples() {
    let run = tollgate(["--help"]);
    assert_eq!(run.status, 0);
    let names = run
        .stdout
        .split("Commands:")
        .nth(1)
        .unwrap()
        .split("Options:")
        .next()
        .unwrap()
        .to_owned();
    let names: Vec<_> = names
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .collect();
    let names: Vec<_> = names
        .into_iter()
        .filter(|name| !name.is_empty() && *name != "help")
        .collect();
    assert!(
        names.contains(&"check") && names.contains(&"explain"),
        "{names:?}"
    );
    for name in names {
        let help = tollgate([name, "--help"]).stdout;
        assert!(
            help.contains(&format!("Examples:\n  tollgate {name}")),
            "{name}: {help}"
        );
    }
}

#[test]
fn the_man_page_and_the_completions_name_the_subcommands() {
    let page = tollgate(["man"]);
    page.assert_printed(0, ".TH tollgate 1");
    assert!(page.stdout.contains("check"), "{}", page.stdout);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = tollgate(["completions", shell]);
        assert!(
            script.status == 0 && script.stdout.contains("explain"),
            "{shell}: {}",
            script.stdout
        );
    }
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(
        tollgate(["man", "--directory", directory.path().to_str().unwrap()]).status,
        0
    );
    let page = std::fs::read_to_string(directory.path().join("tollgate-check.1")).unwrap();
    assert!(
        page.contains("tollgate check \\-\\-compat envoy config/"),
        "{page}"
    );
    assert_eq!(
        tollgate(["man", "--directory", "/no/such/directory"]).status,
        2
    );
}

#[test]
fn a_wrong_argument_ends_with_status_2_and_without_the_password() {
    for arguments in [
        &[][..],
        &["chekc"],
        &["check"],
        &["check", "--format", "xml", "f"],
    ] {
        let run = tollgate(arguments);
        assert!(
            run.status == 2 && run.stdout.is_empty() && !run.stderr.is_empty(),
            "{arguments:?}"
        );
    }
    for (arguments, shown) in [
        (
            ["check", "--format", "redis://ann:hunter2@host/0"],
            "redis://***@host/0",
        ),
        (
            ["check", "f", "--format=redis://:hunter2@h"],
            "redis://***@h",
        ),
        (
            [
                "check",
                "--format",
                "redis://ann:hunter2@ss/hunter2@host:1/0",
            ],
            "redis://***@host:1/0",
        ),
    ] {
        let run = tollgate(arguments);
        run.assert_failed(shown);
        assert!(!run.stderr.contains("hunter2"), "{}", run.stderr);
    }
}

#[test]
fn a_wrong_argument_is_told_without_the_query_of_its_url() {
    for (arguments, shown) in [
        // The option that names the server was forgotten.
        (
            &["top", "postgres://db/shop?user=a&password=hunter2"][..],
            "'postgres://db/shop?***'",
        ),
        (
            &["top", "redis+unix:///run/r.sock?pass=hunter2"][..],
            "'redis+unix:///run/r.sock?***'",
        ),
        (
            &["enforce", "search", "postgres://db/shop?password=\"hunter2"][..],
            "got \"postgres://db/shop?***",
        ),
        (
            &["who", "--timeout=redis://ann:hunter2@h?pass=hunter2"][..],
            "'redis://***@h?***'",
        ),
        (
            &["check", "f", "--format", "redis://ann:hunter2?x@h"][..],
            "'redis://***'",
        ),
        (
            &["explain", "postgres://db/shop?password=hunter2", "a=b"][..],
            "error: postgres://db/shop?***: ",
        ),
    ] {
        let run = tollgate(arguments);
        run.assert_failed(shown);
        assert!(!run.stderr.contains("hunter2"), "{}", run.stderr);
    }
}

#[cfg(unix)]
#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let mut child = command()
        .args(["completions", "bash"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
