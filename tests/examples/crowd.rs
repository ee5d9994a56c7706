//! One of several processes whose callers wait for turns in one queue; see
//! `tests/processes/crowd.rs`. Reads `URL` and the settings of
//! [`Crowd`](tollgate_test_support::Crowd) from its environment.

fn main() {
    tollgate_test_support::run_crowd(&std::env::var("URL").expect("URL is set"));
}
