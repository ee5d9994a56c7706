//! The servers that the clients ask, apart from the examples of the workspace.

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use tokio::{net::TcpListener, runtime::Runtime};
use tollgate_tower::{HeaderFormat, ResetFormat};

pub(crate) mod greeter;
pub(crate) mod kinds;
pub(crate) mod waits;

/// A server in this process, on a free port of 127.0.0.1. Dropping the value ends it.
#[derive(Debug)]
pub(crate) struct Hosted {
    runtime: Option<Runtime>,
    address: SocketAddr,
}

impl Hosted {
    /// Serves HTTP/1.1 and HTTP/2 on one port.
    pub(crate) fn start(router: Router) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let runtime = runtime.expect("a thread can be started");
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.expect("a port is free");
        let address = listener.local_addr().expect("the listener is bound");
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self {
            runtime: Some(runtime),
            address,
        }
    }

    /// Answers every request with this text.
    pub(crate) fn saying(text: &'static str) -> Self {
        Self::start(Router::new().fallback(move || async move { text }))
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns the name of each header format, and the format.
pub(crate) fn formats() -> [(&'static str, HeaderFormat); 13] {
    let legacy = |reset| HeaderFormat::Legacy { reset };
    [
        ("ietf08", HeaderFormat::Ietf08),
        ("ietf07", HeaderFormat::Ietf07),
        ("ietf06", HeaderFormat::Ietf06),
        ("envoy03", HeaderFormat::Envoy03),
        ("legacy-seconds", legacy(ResetFormat::Seconds)),
        ("legacy-epoch", legacy(ResetFormat::Epoch)),
        ("github", HeaderFormat::GitHub),
        ("spring", HeaderFormat::Spring),
        ("retry-after", HeaderFormat::RetryAfter),
        ("tower-governor", HeaderFormat::TowerGovernor),
        ("openai", HeaderFormat::OpenAi),
        ("anthropic", HeaderFormat::Anthropic),
        ("none", HeaderFormat::None),
    ]
}
