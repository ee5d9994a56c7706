//! One of several processes whose own clocks are wrong; see `tests/processes/clocks.rs`.
//!
//! Takes the URL of the server as its argument, and prints its clock and its decisions.

fn main() {
    let url = std::env::args()
        .nth(1)
        .expect("the URL of the server is the argument");
    tollgate_test_support::run_caller(&url);
}
