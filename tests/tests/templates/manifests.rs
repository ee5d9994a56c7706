//! The image, the compose file and the manifests of the template: their names, ports and variables
//! are those of the service.

use std::collections::BTreeSet;

use serde_json::Value;

use super::generated::{NAME, Project, mounted, placeholders, root, texts};

/// Returns the variables that the service reads, which the table at the head of its file lists.
fn variables(project: &Project) -> BTreeSet<String> {
    let code = project.read("src/main.rs");
    let rows = code.lines().filter_map(|line| line.strip_prefix("//! | `"));
    let listed: BTreeSet<_> = rows
        .filter_map(|row| Some(row.split_once('`')?.0.to_owned()))
        .collect();
    let body = code.split_once("async fn main").expect("the program").1;
    for name in &listed {
        assert!(
            body.contains(&format!("(\"{name}\"")),
            "{name} is listed and not read"
        );
    }
    assert!(listed.len() >= 4, "{listed:?}");
    listed
}

fn port(name: &str) -> u64 {
    placeholders()[name].parse().expect("a port")
}

/// Returns the address that the service listens on by default, as its code has it.
fn default_address(project: &Project, variable: &str) -> String {
    let code = project.read("src/main.rs");
    let rest = code
        .split_once(&format!("bind(\"{variable}\", \""))
        .expect("the program listens")
        .1;
    rest.split_once('"').expect("an address").0.to_owned()
}

#[test]
fn the_crates_have_a_version_or_a_path() {
    let dependencies = |path: &str| -> toml::Table {
        let manifest: toml::Table = Project::generate(path)
            .read("Cargo.toml")
            .parse()
            .expect("valid TOML");
        assert_eq!(manifest["package"]["name"].as_str(), Some(NAME));
        manifest["dependencies"]
            .as_table()
            .expect("a table")
            .clone()
    };
    let (of_registry, of_path) = (dependencies(""), dependencies("/clone"));
    for name in ["tollgate", "tollgate-tower"] {
        let version = of_registry[name]["version"].as_str().expect("a version");
        assert!(env!("CARGO_PKG_VERSION").starts_with(version), "{version}");
        assert!(of_registry[name].get("path").is_none());
        assert_eq!(
            of_path[name]["path"].as_str(),
            Some(format!("/clone/crates/{name}").as_str())
        );
    }
}

/// Returns the name of the image: the version of the service is its tag.
fn image(project: &Project) -> String {
    let manifest: toml::Table = project.read("Cargo.toml").parse().expect("valid TOML");
    format!(
        "{NAME}:{}",
        manifest["package"]["version"].as_str().expect("a version")
    )
}

#[test]
fn the_image_has_the_program_and_its_ports() {
    let project = Project::generate("");
    let file = project.read("Dockerfile");
    let line = |word: &str| {
        file.lines()
            .rfind(|line| line.starts_with(word))
            .expect(word)
            .trim_start_matches(word)
            .to_owned()
    };
    let ports = format!("{} {}", port("port"), port("metrics_port"));
    assert_eq!(line("EXPOSE "), ports);
    assert_eq!(line("ENTRYPOINT "), format!("[\"/bin/{NAME}\"]"));
    assert!(
        file.contains(&format!("/src/target/release/{NAME} /bin/{NAME}\n")),
        "{file}"
    );
    // What the image is not built from compiles nothing again, and a secret beside it does not get
    // in.
    let ignored = project.read(".dockerignore");
    let ignored: Vec<_> = ignored
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert_eq!(ignored, ["*", "!Cargo.toml", "!Cargo.lock", "!src"]);
    assert!(
        !file.contains("--from=tollgate"),
        "the crates come from the registry"
    );
    let with_clone = Project::generate("/clone");
    // The target directory of a clone has gigabytes.
    let copied =
        "\nCOPY --from=tollgate Cargo.toml /clone/\nCOPY --from=tollgate crates /clone/crates/\n";
    assert!(with_clone.read("Dockerfile").contains(copied));
    let compose = with_clone.documents("compose.yaml").remove(0);
    assert_eq!(
        compose["services"]["service"]["build"]["additional_contexts"]["tollgate"],
        "/clone"
    );
    assert_eq!(
        default_address(&project, "LISTEN"),
        format!("0.0.0.0:{}", port("port"))
    );
    assert_eq!(
        default_address(&project, "METRICS_LISTEN"),
        format!("0.0.0.0:{}", port("metrics_port"))
    );
}

#[test]
fn the_compose_file_wires_the_service_to_redis_prometheus_and_grafana() {
    let project = Project::generate("");
    let compose = project.documents("compose.yaml").remove(0);
    let services = &compose["services"];
    let service = &services["service"];
    let known = variables(&project);
    let environment = service["environment"].as_object().expect("variables");
    assert!(
        environment.keys().all(|name| known.contains(name)),
        "{environment:?}"
    );
    assert_eq!(environment["REDIS_URL"], "redis://redis:6379");
    assert_eq!(service["image"], image(&project));
    assert!(services["redis"].is_object());
    assert_eq!(texts(&service["ports"]), [format!("{0}:{0}", port("port"))]);
    assert!(
        project
            .path()
            .join(service["build"]["context"].as_str().expect("a path"))
            .join("Dockerfile")
            .exists()
    );

    let settings = mounted(&services["prometheus"], "/etc/prometheus/prometheus.yml");
    let settings = project.documents(&settings).remove(0);
    assert_eq!(
        settings["scrape_configs"][0]["static_configs"][0]["targets"][0],
        format!("service:{}", port("metrics_port"))
    );
    let grafana = &services["grafana"];
    let provisioning = mounted(grafana, "/etc/grafana/provisioning");
    let provider = project
        .documents(&format!("{provisioning}/dashboards/tollgate.yaml"))
        .remove(0);
    let dashboards = mounted(
        grafana,
        provider["providers"][0]["options"]["path"]
            .as_str()
            .expect("a path"),
    );
    let source = project
        .documents(&format!("{provisioning}/datasources/prometheus.yaml"))
        .remove(0);
    assert_eq!(source["datasources"][0]["url"], "http://prometheus:9090");
    assert_eq!(
        source["datasources"][0]["isDefault"], true,
        "the dashboard asks for no other"
    );
    let original =
        std::fs::read_to_string(root().join("docs/grafana/tollgate.json")).expect("the dashboard");
    assert!(
        project.read(&format!("{dashboards}/tollgate.json")) == original,
        "the template has another dashboard"
    );
    let dashboard: Value = serde_json::from_str(&original).expect("valid JSON");
    let address = format!(
        "http://localhost:3000/d/{}",
        dashboard["uid"].as_str().expect("a uid")
    );
    assert!(project.read("compose.yaml").contains(&address), "{address}");
}

#[test]
fn the_manifests_fit_the_service() {
    let project = Project::generate("");
    let all = [
        project.documents("kubernetes/service.yaml"),
        project.documents("kubernetes/redis.yaml"),
    ]
    .concat();
    let of = |kind: &str, name: &str| -> &Value {
        let found = all
            .iter()
            .find(|one| one["kind"] == kind && one["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    let deployment = of("Deployment", NAME);
    let pod = &deployment["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    // A tag other than `latest`, which Kubernetes would ask a registry for.
    assert_eq!(container["image"], image(&project));
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    // Until it is taken from the endpoints of the service, a replica that ends gets new requests.
    let pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        .as_u64()
        .expect("a pause before the stop");
    assert!(
        pause >= 5 && pod["spec"]["terminationGracePeriodSeconds"].as_u64() >= Some(pause + 10)
    );
    let known = variables(&project);
    let environment = container["env"].as_array().expect("variables");
    assert!(
        environment
            .iter()
            .all(|one| known.contains(one["name"].as_str().expect("a name"))),
        "{environment:?}"
    );
    let redis = format!("{NAME}-redis");
    assert_eq!(environment[0]["value"], format!("redis://{redis}:6379"));
    assert_eq!(of("Service", &redis)["spec"]["ports"][0]["port"], 6379);
    assert_eq!(
        of("Service", &redis)["spec"]["selector"],
        of("Deployment", &redis)["spec"]["template"]["metadata"]["labels"]
    );
    // Two servers at a time would count apart.
    assert_eq!(
        of("Deployment", &redis)["spec"]["strategy"]["type"],
        "Recreate"
    );
    for deployment in all.iter().filter(|one| one["kind"] == "Deployment") {
        let resources = &deployment["spec"]["template"]["spec"]["containers"][0]["resources"];
        for place in ["/requests/cpu", "/requests/memory", "/limits/memory"] {
            assert!(
                resources.pointer(place).is_some(),
                "{place} of {}",
                deployment["metadata"]["name"]
            );
        }
    }

    let ports = container["ports"].as_array().expect("ports");
    let named = |name: &Value| {
        ports
            .iter()
            .find(|port| port["name"] == *name)
            .and_then(|port| port["containerPort"].as_u64())
    };
    assert_eq!(
        (named(&"http".into()), named(&"metrics".into())),
        (Some(port("port")), Some(port("metrics_port")))
    );
    assert_eq!(
        pod["metadata"]["annotations"]["prometheus.io/port"],
        port("metrics_port").to_string()
    );
    let ready = &container["readinessProbe"]["httpGet"];
    let path = ready["path"].as_str().expect("a path");
    assert!(
        project
            .read("src/main.rs")
            .contains(&format!(".route(\"{path}\"")),
        "{path}"
    );
    assert_eq!(named(&ready["port"]), Some(port("port")));
    assert_eq!(
        named(&container["livenessProbe"]["tcpSocket"]["port"]),
        Some(port("port"))
    );
    let service = of("Service", NAME);
    assert_eq!(service["spec"]["selector"], pod["metadata"]["labels"]);
    assert_eq!(
        deployment["spec"]["selector"]["matchLabels"],
        pod["metadata"]["labels"]
    );
    assert_eq!(
        named(&service["spec"]["ports"][0]["targetPort"]),
        Some(port("port"))
    );

    let scaler = &of("HorizontalPodAutoscaler", NAME)["spec"];
    let target = &scaler["scaleTargetRef"];
    assert_eq!(
        of(
            target["kind"].as_str().expect("a kind"),
            target["name"].as_str().expect("a name")
        ),
        deployment
    );
    assert!(
        scaler["minReplicas"].as_u64() >= Some(2)
            && scaler["maxReplicas"].as_u64() > scaler["minReplicas"].as_u64()
    );
    assert!(
        deployment["spec"]["replicas"].is_null(),
        "the autoscaler sets it"
    );
    assert!(
        container["resources"]["requests"]["cpu"].is_string(),
        "the autoscaler counts shares of it"
    );
    assert_eq!(
        of("PodDisruptionBudget", NAME)["spec"]["selector"]["matchLabels"],
        pod["metadata"]["labels"]
    );
}

#[test]
fn the_commands_make_the_service_beside_the_clone() {
    // Inside the clone, `cargo generate` rewrites the manifest of the workspace.
    for (file, expected) in [
        ("templates/README.md", 2),
        ("templates/service/cargo-generate.toml", 1),
    ] {
        let text = std::fs::read_to_string(root().join(file)).expect("a text");
        let commands: Vec<_> = text
            .lines()
            .filter(|line| {
                line.trim_start_matches("# ")
                    .starts_with("cargo generate --path")
            })
            .collect();
        assert_eq!(commands.len(), expected, "{file}");
        for command in commands {
            assert!(command.contains(" --destination .. "), "{file}: {command}");
        }
    }
}
