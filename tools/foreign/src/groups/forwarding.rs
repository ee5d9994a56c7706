//! Envoy in front of the example `behind_a_proxy`, with right and wrong trust.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tollgate_tests::{Process, ports};

use crate::{
    case::Line,
    clients::Clients,
    envoy::{self, Envoy, Listener},
};

/// A setting of Envoy and of the example.
struct Setting {
    row: &'static str,
    /// The address that a request without a spoof counts for. `{client}` is that of the client.
    counts_for: &'static str,
    /// The spoofs that get through: a list in the script.
    through: &'static str,
    port: u16,
}

/// Only Envoy's own address is trusted. The clients have other addresses of the same interface.
const ONLY_ENVOY: &str = "127.0.0.9/32";
const EVERYBODY_HERE: &str = "127.0.0.0/8";
const NOBODY_HERE: &str = "10.0.0.0/8";

pub(crate) fn run(clients: &Clients, _is_quick: bool) -> Vec<Line> {
    let (_app, app) = behind_a_proxy(ONLY_ENVOY);
    // Envoy's own address counts under these two settings, so each has a counter of its own.
    let (_spoofed, spoofed) = behind_a_proxy(ONLY_ENVOY);
    let (_skipped, skipped) = behind_a_proxy(ONLY_ENVOY);
    let (_trusting, trusting) = behind_a_proxy(EVERYBODY_HERE);
    let (_distrusting, distrusting) = behind_a_proxy(NOBODY_HERE);
    let edge = json!({"use_remote_address": true});

    let mut listeners = Vec::new();
    let mut settings = Vec::new();
    let mut add = |row, listener: Listener, counts_for, through| {
        settings.push(Setting {
            row,
            counts_for,
            through,
            port: listener.port(),
        });
        listeners.push(listener);
    };
    add(
        "right: `use_remote_address: true`",
        Listener::to(app).with(edge.clone()),
        "{client}",
        "none",
    );
    let inner =
        Listener::to(app).with(json!({"use_remote_address": true, "xff_num_trusted_hops": 1}));
    let outer = Listener::to(inner.address()).with(edge.clone());
    add(
        "right: two Envoys, the inner one with `xff_num_trusted_hops: 1`",
        outer,
        "{client}",
        "none",
    );
    let hops = json!({"use_remote_address": true, "xff_num_trusted_hops": 1});
    add(
        "right: one Envoy with `xff_num_trusted_hops: 1`",
        Listener::to(app).with(hops),
        "{client}",
        "none",
    );
    add(
        "wrong: `use_remote_address: false`",
        Listener::to(spoofed).with(json!({"use_remote_address": false})),
        envoy::SOURCE,
        "not appended",
    );
    let skip = json!({"use_remote_address": true, "skip_xff_append": true});
    add(
        "wrong: `skip_xff_append: true`",
        Listener::to(skipped).with(skip),
        envoy::SOURCE,
        "not appended",
    );
    add(
        "wrong: the example trusts its clients",
        Listener::to(trusting).with(edge.clone()),
        "{client}",
        "clients trusted",
    );
    add(
        "safe, one quota for all: the example does not trust Envoy",
        Listener::to(distrusting).with(edge),
        envoy::SOURCE,
        "none",
    );
    settings.push(Setting {
        row: "right: past Envoy, straight to the example",
        counts_for: "{client}",
        through: "none",
        port: app.port(),
    });

    listeners.push(inner);
    let _envoy = Envoy::start(&clients.envoy, &listeners);
    let settings: Vec<_> = settings.iter().map(Setting::argument).collect();
    clients.run(
        "forwarding.py",
        &json!({"settings": settings, "proxy": envoy::SOURCE}),
    )
}

impl Setting {
    fn argument(&self) -> Value {
        json!({"row": self.row, "counts_for": self.counts_for, "through": self.through, "port": self.port})
    }
}

/// Starts the example with these trusted networks.
fn behind_a_proxy(trusted: &str) -> (Process, SocketAddr) {
    let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
    let mut command = Process::example("behind_a_proxy");
    command
        .env("LISTEN", address.to_string())
        .env("TRUSTED", trusted);
    (Process::start(command, "Listening on"), address)
}
