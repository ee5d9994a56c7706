//! The `Debug` output of what holds a call: it names the policy, and it shows no key.

use tollgate_tonic::{AsyncRateLimitInterceptor, key::Metadata, messages::charge_stream};
use tonic::Status;
use tonic_async_interceptor::AsyncInterceptor;

use crate::support::*;

#[test]
fn a_call_and_a_stream_under_way_show_no_key() {
    let key = Metadata::new("x-api-key");
    let mut interceptor = AsyncRateLimitInterceptor::new(limiter(TWO), key);
    let messages = tokio_stream::iter([Ok::<_, Status>("acme")]);
    let stream = charge_stream(messages, limiter(TWO), "acme");
    for (output, word) in [
        (format!("{stream:?}"), "two: TokenBucket"),
        (
            format!("{:?}", interceptor.call(request_from("acme", ()))),
            "InterceptFuture",
        ),
        (format!("{interceptor:?}"), "two: TokenBucket"),
    ] {
        assert!(
            output.contains(word) && !output.contains("acme"),
            "{output}"
        );
    }
}
