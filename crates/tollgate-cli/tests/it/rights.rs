//! The rights at the server that the page of the command names.

use std::time::Duration;

use tollgate::{Limiter, Policy, Quota, RedisStore};
use tollgate_tests::{RedisServer, no_server};

use super::{Run, tollgate};

/// Returns the rights of the line `ACL SETUSER operator …`.
fn documented() -> Vec<&'static str> {
    const PAGE: &str = include_str!("../../../../docs/cli.md");
    let line = PAGE
        .lines()
        .find(|line| line.starts_with("ACL SETUSER operator "))
        .expect("the page names the rights");
    line.split(' ')
        .filter(|word| word.starts_with('+'))
        .collect()
}

#[tokio::test]
async fn exactly_the_documented_rights_are_enough() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let day = Quota::per_day(1_000);
    let policies = [
        Policy::token_bucket("bucket", day),
        Policy::sliding_log("log", day),
    ];
    let limiter = Limiter::builder(store)
        .policies(policies)
        .deadline(Duration::from_secs(60))
        .build();
    // These do not lapse while the commands keep the service from publishing.
    let limits =
        "bucket=1000/d, token_bucket; log=1000/d, sliding_log; enforced 0%; limiter acme-api";
    server.command(&["ZADD", "tollgate:{replicas}:limits", "1", limits]);

    let run = |rights: &[&str]| -> Vec<Run> {
        let acl = [
            &[
                "ACL",
                "SETUSER",
                "operator",
                "reset",
                "on",
                ">secret",
                "~tollgate:*",
            ],
            rights,
        ]
        .concat();
        assert!(!server.command(&acl).is_error());
        let url = format!("redis://operator:secret@{}", server.addr());
        [
            &["top"][..],
            &["who", "--policy", "log=5/d"],
            &["enforce", "acme-api", "5%"],
            &["enforce", "acme-api", "--clear"],
            &["peek", "acme"],
            &["reset", "acme"],
        ]
        .map(|arguments| tollgate([arguments, &["--redis", &url]].concat()))
        .into()
    };
    let all = documented();
    for right in &all {
        // A reset that is not refused has removed the states.
        let _ = limiter.check("acme").await.unwrap();
        let others: Vec<_> = all.iter().copied().filter(|other| other != right).collect();
        let runs = run(&others);
        assert!(
            runs.iter()
                .any(|run| run.status == 2 && run.stderr.contains("NOPERM")),
            "{right} is not needed"
        );
    }
    let _ = limiter.check("acme").await.unwrap();
    for run in run(&all) {
        assert_eq!(run.status, 0, "{}", run.stderr);
        assert!(
            run.stdout.contains("acme") || run.stdout.contains("0 limited"),
            "{}",
            run.stdout
        );
    }
}

/// A user with the rights of before goes on as before.
#[tokio::test]
async fn without_the_right_to_read_published_limits_there_is_a_warning() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let limiter = Limiter::builder(RedisStore::connect(server.url()).await.unwrap())
        .policies(Policy::token_bucket("api", Quota::per_day(5)))
        .deadline(Duration::from_secs(60))
        .build();
    let _ = limiter.check("acme").await.unwrap();
    let rights: Vec<_> = documented()
        .into_iter()
        .filter(|right| *right != "+zrange")
        .collect();
    let acl = [
        &["ACL", "SETUSER", "operator", "on", ">secret", "~tollgate:*"],
        &rights[..],
    ]
    .concat();
    assert!(!server.command(&acl).is_error());
    let url = format!("redis://operator:secret@{}", server.addr());
    let peek = tollgate(["peek", "acme", "--redis", &url]);
    assert!(
        peek.status == 0 && peek.stdout.contains("api"),
        "{}",
        peek.stderr
    );
    assert!(
        peek.stderr
            .starts_with("warning: the published limits are not read:"),
        "{}",
        peek.stderr
    );
    let who = tollgate(["who", "--redis", &url]);
    who.assert_failed("who needs the limits");
}
