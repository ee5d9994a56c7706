//! The compose file of Prometheus and Grafana for the example `prometheus`.

use std::fs;

use super::generated::{documents, mounted, root};

#[test]
fn the_compose_file_of_the_example_reads_its_metrics_and_has_the_dashboard() {
    let directory = root().join("examples/grafana");
    let read = |name: &str| {
        let text = fs::read_to_string(directory.join(name))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        documents(name, &text).remove(0)
    };
    let compose = read("compose.yaml");
    let services = &compose["services"];
    let settings = read(&mounted(
        &services["prometheus"],
        "/etc/prometheus/prometheus.yml",
    ));
    assert_eq!(settings["rule_files"][0], "alerts.yaml");
    let alerts = mounted(&services["prometheus"], "/etc/prometheus/alerts.yaml");
    assert!(directory.join(alerts).is_file());
    let target = &settings["scrape_configs"][0]["static_configs"][0]["targets"][0];
    // The example listens on this port by default, and shows its metrics at the path that
    // Prometheus reads by default.
    let default = fs::read_to_string(root().join("examples/support.rs")).expect("the examples");
    let port = default
        .split_once("listen_or(\"127.0.0.1:")
        .expect("the default address")
        .1
        .split('"')
        .next()
        .expect("a port");
    assert_eq!(*target, format!("host.docker.internal:{port}"));
    let example = fs::read_to_string(root().join("examples/prometheus.rs")).expect("the example");
    assert!(example.contains(".route(\"/metrics\""));

    let grafana = &services["grafana"];
    let provisioning = mounted(grafana, "/etc/grafana/provisioning");
    let provider = read(&format!("{provisioning}/dashboards/tollgate.yaml"));
    let dashboards = mounted(
        grafana,
        provider["providers"][0]["options"]["path"]
            .as_str()
            .expect("a path"),
    );
    assert!(directory.join(dashboards).join("tollgate.json").exists());
    let source = read(&format!("{provisioning}/datasources/prometheus.yaml"));
    assert_eq!(source["datasources"][0]["url"], "http://prometheus:9090");
    assert!(services["prometheus"].is_object());
}
