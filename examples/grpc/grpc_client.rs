//! Calls a limited gRPC service and obeys its `RetryInfo`.
//!
//! ```text
//! cargo run --example grpc_server              # in another terminal
//! cargo run --example grpc_client              # calls http://127.0.0.1:50051
//! cargo run --example grpc_client http://…     # calls another server
//! ```
//!
//! The client makes twelve calls in a row. Ten pass. Then the server denies a call and says in
//! `RetryInfo` how long to wait. The client waits that long and repeats the call.
//!
//! Features: none, because the client uses tonic alone.

use std::env;

use tollgate_examples::Failure;
use tollgate_examples_grpc::helloworld::{HelloRequest, greeter_client::GreeterClient};
use tonic::{Code, Status};
use tonic_types::StatusExt;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = env::args()
        .nth(1)
        .unwrap_or_else(|| "http://127.0.0.1:50051".to_owned());
    let mut client = GreeterClient::connect(server).await?;
    for call in 1..=12 {
        loop {
            let request = HelloRequest {
                name: "Ada".to_owned(),
            };
            match client.say_hello(request).await {
                Ok(reply) => {
                    println!("{call:2}: {}", reply.into_inner().message);
                    break;
                }
                Err(status) if status.code() == Code::ResourceExhausted => {
                    wait_for_retry_delay(call, &status).await?;
                }
                Err(status) => return Err(status.into()),
            }
        }
    }
    Ok(())
}

/// Waits for the delay in the status.
async fn wait_for_retry_delay(call: u32, status: &Status) -> Result<(), Failure> {
    let retry_info = status
        .get_details_retry_info()
        .and_then(|it| it.retry_delay);
    let delay = retry_info.ok_or_else(|| format!("denied without a retry delay: {status}"))?;
    let failure = status.get_details_quota_failure();
    let violations = failure
        .iter()
        .flat_map(|it| &it.violations)
        .map(|it| it.description.as_str());
    println!(
        "{call:2}: {} ({}), waiting {delay:?}",
        status.message(),
        violations.collect::<Vec<_>>().join(", ")
    );
    tokio::time::sleep(delay).await;
    Ok(())
}
