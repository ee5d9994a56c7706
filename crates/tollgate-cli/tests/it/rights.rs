//! The rights at the server that the page of the command names.

use tollgate::{Limiter, Policy, Quota, RedisStore};
use tollgate_tests::RedisServer;

use super::{Run, tollgate};

/// Returns the rights of the line `ACL SETUSER operator …`.
fn documented() -> Vec<&'static str> {
    const PAGE: &str = include_str!("../../../../docs/cli.md");
    let line = PAGE.lines().find(|line| line.starts_with("ACL SETUSER operator ")).expect("the page names the rights");
    line.split(' ').filter(|word| word.starts_with('+')).collect()
}

#[tokio::test]
async fn exactly_the_documented_rights_are_enough() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let day = Quota::per_day(5);
    let limiter = Limiter::new(store, [Policy::token_bucket("bucket", day), Policy::sliding_log("log", day)]);
    let _ = limiter.check("acme").await.unwrap();

    let run = |rights: &[&str]| -> Vec<Run> {
        let acl = [&["ACL", "SETUSER", "operator", "reset", "on", ">secret", "~tollgate:*"], rights].concat();
        assert!(!server.command(&acl).is_error());
        let url = format!("redis://operator:secret@{}", server.addr());
        [&["top"][..], &["who", "--policy", "log=5/d"], &["peek", "acme"], &["reset", "acme"]]
            .map(|arguments| tollgate([arguments, &["--redis", &url]].concat()))
            .into()
    };
    let all = documented();
    for right in &all {
        let others: Vec<_> = all.iter().copied().filter(|other| other != right).collect();
        let runs = run(&others);
        assert!(runs.iter().any(|run| run.status == 2 && run.stderr.contains("NOPERM")), "{right} is not needed");
    }
    // Also one refusal must not remove a state.
    for run in run(&all) {
        assert_eq!(run.status, 0, "{}", run.stderr);
        assert!(run.stdout.contains("acme") || run.stdout.contains("0 limited"), "{}", run.stdout);
    }
}
