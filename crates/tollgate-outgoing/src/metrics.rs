//! The counters of outgoing calls, behind the feature `metrics`.
//! Decisions and rejections are counted with all others, by the gate of `tollgate-tower`.

#[cfg(feature = "metrics")]
use metrics::{Unit, counter, describe_counter};

/// Counts an answer of another service that pauses the calls of a limiter.
#[cfg_attr(
    not(feature = "metrics"),
    expect(unused_variables, reason = "nothing is counted without the feature")
)]
pub(crate) fn count_pause(limiter: &str) {
    #[cfg(feature = "metrics")]
    {
        describe();
        counter!("tollgate_outgoing_pauses_total", "limiter" => limiter.to_owned()).increment(1);
    }
}

/// Counts a refused call of a limiter that could be repeated, by whether it is.
#[cfg_attr(
    not(feature = "metrics"),
    expect(unused_variables, reason = "nothing is counted without the feature")
)]
pub(crate) fn count_retry(limiter: &str, outcome: &'static str) {
    #[cfg(feature = "metrics")]
    {
        describe();
        counter!("tollgate_outgoing_retries_total", "limiter" => limiter.to_owned(), "outcome" => outcome)
            .increment(1);
    }
}

/// Describes the counters to the recorder. A layer may be older than the recorder, and a refused
/// call is rare.
#[cfg(feature = "metrics")]
fn describe() {
    describe_counter!(
        "tollgate_outgoing_pauses_total",
        Unit::Count,
        "Answers of another service that paused outgoing calls, by limiter."
    );
    describe_counter!(
        "tollgate_outgoing_retries_total",
        Unit::Count,
        "Outgoing calls that another service refused, by limiter and outcome (repeated, late, no_budget or spent)."
    );
}
