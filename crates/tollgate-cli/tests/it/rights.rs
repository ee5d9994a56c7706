//! The rights at the server that the page of the command names, and those of a service.

use std::time::Duration;

use tollgate::{
    Limiter, Policy, Quota, RedisStore,
    store::{Exception, ExceptionChange},
};
use tollgate_tests::{RedisServer, no_server, wait};

use super::{Run, tollgate, with_published_limits};

const HOUR: Duration = Duration::from_secs(3_600);
const PATIENCE: Duration = Duration::from_secs(60);

/// The pages on which rights are documented.
const COMMAND: &str = include_str!("../../../../docs/cli.md");
const SERVICE: &str = include_str!("../../../../docs/redis.md");

/// Returns the rights of the line of a page that begins so.
fn rights_of(page: &'static str, begin: &str) -> Vec<&'static str> {
    let mut lines = page.lines();
    let line = lines.find(|line| line.starts_with(begin));
    line.expect("the page names the rights")
        .split(' ')
        .filter(|word| word.starts_with('+'))
        .collect()
}

/// Returns the rights of an operator who grants no exceptions.
fn documented() -> Vec<&'static str> {
    rights_of(COMMAND, "ACL SETUSER operator on ")
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
            &["except", "acme"],
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
            ["acme", "0 limited", "no exceptions"]
                .iter()
                .any(|words| run.stdout.contains(words)),
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

/// Sets the rights of a user, and returns the URL of the server for it.
fn user(server: &RedisServer, name: &str, rights: &[&[&str]]) -> String {
    let acl = [
        "ACL",
        "SETUSER",
        name,
        "reset",
        "on",
        ">secret",
        "~tollgate:*",
    ];
    let acl = [&acl[..], &rights.concat()].concat();
    assert!(!server.command(&acl).is_error());
    format!("redis://{name}:secret@{}", server.addr())
}

fn grant(url: &str) -> Run {
    let arguments = ["except", "search", "acme", "--factor", "2", "--for", "2h"];
    let end = ["--author", "ann", "--reason", "a move", "--redis", url];
    tollgate([&arguments[..], &end].concat())
}

/// The right to grant is an operator's: it is in no line of a service.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_applies_exceptions_that_only_an_operator_grants() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let least = rights_of(SERVICE, "ACL SETUSER tollgate on ");
    let apply = rights_of(SERVICE, "ACL SETUSER tollgate +hget");
    let publish = ["+hmget"];
    let service = user(&server, "service", &[&least, &apply, &publish]);
    let limiter = Limiter::builder(RedisStore::connect(&service).await.unwrap())
        .policies(Policy::fixed_window("daily", Quota::per_day(5)))
        .name("search")
        .deadline(Duration::from_secs(60))
        .published()
        .build();
    let quota = async || {
        let peek = limiter.peek("acme").await.unwrap();
        peek.state("daily").unwrap().policy().quota()
    };
    let twice = Exception::new("daily", "acme", ExceptionChange::Factor(2.0), HOUR);
    let twice = || twice.clone().by("ann").because("a move");
    let refused = limiter.grant_exception(twice()).await;
    refused.expect_err("the service has granted");

    let (base, more) = (documented(), rights_of(COMMAND, "ACL SETUSER operator +"));
    let operator = |rights: &[&str]| user(&server, "operator", &[&base, rights]);
    for right in &more {
        let others: Vec<_> = more
            .iter()
            .copied()
            .filter(|other| other != right)
            .collect();
        let run = with_published_limits(|| grant(&operator(&others)));
        assert_eq!(run.status, 2, "{right} is not needed: {}", run.stdout);
        let listed = tollgate(["except", "--redis", &operator(&more)]);
        listed.assert_printed(0, "there are no exceptions");
    }
    let run = with_published_limits(|| grant(&operator(&more)));
    run.assert_printed(0, "granted, in force within three seconds:");
    wait::until_async("the exception in the service", PATIENCE, async || {
        quota().await == Quota::per_day(10)
    })
    .await;
    let url = operator(&more);
    let withdrawn = ["except", "search", "acme", "--withdraw", "--redis", &url];
    tollgate(withdrawn).assert_printed(0, "withdrawn, within three seconds:");

    // An application with a console of its own has the right, if somebody gives it.
    user(
        &server,
        "service",
        &[&least, &apply, &publish, &["+hgetall", "+hset", "+hdel"]],
    );
    limiter.grant_exception(twice()).await.unwrap();
}
