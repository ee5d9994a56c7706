//! Envoy in front of the example `behind_a_proxy`, with right and wrong trust.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tollgate_tests::{Process, ports};

use crate::{
    clients::Clients,
    envoy::{self, Envoy, Listener},
};

/// Only Envoy's own address is trusted. The clients have other addresses of the same interface.
const ONLY_ENVOY: &str = "127.0.0.9/32";
const EVERYBODY_HERE: &str = "127.0.0.0/8";
const NOBODY_HERE: &str = "10.0.0.0/8";

pub(crate) fn run(clients: &Clients, _is_quick: bool) {
    // Envoy's own address counts under wrong settings, so each has a counter of its own.
    let apps = [
        ONLY_ENVOY,
        ONLY_ENVOY,
        ONLY_ENVOY,
        EVERYBODY_HERE,
        NOBODY_HERE,
    ]
    .map(behind_a_proxy);
    let [app, spoofed, skipped, trusting, distrusting] =
        apps.each_ref().map(|(_, address)| *address);
    let edge = json!({"use_remote_address": true});
    let one_hop = json!({"use_remote_address": true, "xff_num_trusted_hops": 1});
    let inner = Listener::to(app).with(one_hop.clone());
    let outer = Listener::to(inner.address()).with(edge.clone());
    let skip = json!({"use_remote_address": true, "skip_xff_append": true});
    let (client, proxy) = ("{client}", envoy::SOURCE);
    // The setting, the address for which a request without a spoof counts, and the spoofs that get
    // through: a list in the script.
    let settings = [
        (
            "right: `use_remote_address: true`",
            Listener::to(app).with(edge.clone()),
            client,
            "none",
        ),
        (
            "right: two Envoys, the inner one with `xff_num_trusted_hops: 1`",
            outer,
            client,
            "none",
        ),
        (
            "right: one Envoy with `xff_num_trusted_hops: 1`",
            Listener::to(app).with(one_hop),
            client,
            "none",
        ),
        (
            "wrong: `use_remote_address: false`",
            Listener::to(spoofed).with(json!({"use_remote_address": false})),
            proxy,
            "not appended",
        ),
        (
            "wrong: `skip_xff_append: true`",
            Listener::to(skipped).with(skip),
            proxy,
            "not appended",
        ),
        (
            "wrong: the example trusts its clients",
            Listener::to(trusting).with(edge.clone()),
            client,
            "clients trusted",
        ),
        (
            "safe, one quota for all: the example does not trust Envoy",
            Listener::to(distrusting).with(edge),
            proxy,
            "none",
        ),
    ];
    let row = |row: &str, port: u16, counts_for: &str, through: &str| -> Value {
        json!({"row": row, "counts_for": counts_for, "through": through, "port": port})
    };
    let straight = "right: past Envoy, straight to the example";
    let mut rows = vec![row(straight, app.port(), client, "none")];
    let mut listeners = vec![inner];
    for (name, listener, counts_for, through) in settings {
        rows.push(row(name, listener.port(), counts_for, through));
        listeners.push(listener);
    }
    let _envoy = Envoy::start(&clients.envoy, &listeners);
    clients.run("forwarding.py", &json!({"settings": rows, "proxy": proxy}));
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
