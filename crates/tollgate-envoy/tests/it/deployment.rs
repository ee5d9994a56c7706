//! The image, the compose file and the manifests: their names, ports, flags and variables are those
//! of the program.

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use serde_json::Value;
use tollgate_rules::{Format, RuleSet};
use tollgate_tests::Process;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tollgate-envoy");
const IMAGE: &str = "tollgate-envoy";

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the documents of a file in YAML.
fn documents(name: &str) -> Vec<Value> {
    let text = read(name);
    let parse =
        |text| serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    text.split("\n---\n").map(parse).collect()
}

fn texts(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| item.as_str().unwrap().to_owned())
        .collect()
}

/// The settings of the program, as its help lists them.
struct Settings(String);

impl Settings {
    fn read() -> Self {
        let output = Command::new(PROGRAM)
            .arg("--help")
            .env_clear()
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        Self(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Returns the default of a flag.
    fn default_of(&self, flag: &str) -> &str {
        let rest = self
            .0
            .split_once(&format!(" {flag} "))
            .unwrap_or_else(|| panic!("{flag} is unknown"))
            .1;
        rest.split_once("[default: ")
            .unwrap()
            .1
            .split_once(']')
            .unwrap()
            .0
    }

    fn port(&self, flag: &str) -> u64 {
        self.default_of(flag)
            .rsplit(':')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }

    fn seconds(&self, flag: &str) -> u64 {
        self.default_of(flag)
            .strip_suffix('s')
            .unwrap()
            .parse()
            .unwrap()
    }

    fn ports(&self) -> BTreeSet<u64> {
        ["--port", "--grpc-port", "--debug-port", "--prometheus-addr"]
            .map(|flag| self.port(flag))
            .into()
    }

    fn assert_flags(&self, arguments: &[String]) {
        for flag in arguments.iter().filter(|word| word.starts_with("--")) {
            let name = flag.split('=').next().unwrap();
            assert!(
                self.0.contains(&format!(" {name} ")),
                "{flag} is no flag of the program"
            );
        }
    }

    fn assert_variables<'v>(&self, names: impl Iterator<Item = &'v str>) {
        for name in names {
            // The values of secrets are hidden, and with them the sign before.
            let is_known = [format!("[env: {name}="), format!("[env: {name}]")]
                .iter()
                .any(|text| self.0.contains(text));
            assert!(is_known, "{name} is no variable of the program");
        }
    }
}

/// Starts the program with these variables, on free ports. It starts without Redis, whose name
/// means nothing here.
fn start(variables: &[(String, String)]) {
    let mut command = Command::new(PROGRAM);
    command
        .env_clear()
        .envs(variables.iter().cloned())
        .arg("--rules")
        .arg(path("examples/envoy/rules.yaml"));
    command.args([
        "--host=127.0.0.1",
        "--port=0",
        "--grpc-host=127.0.0.1",
        "--grpc-port=0",
        "--debug-port=0",
    ]);
    command.arg("--prometheus-addr=127.0.0.1:0");
    let process = Process::start(command, "gRPC: ");
    let output = process.output();
    assert!(
        output.contains("store: ") && !output.contains("no effect"),
        "{output}"
    );
}

/// Returns whether a URL names one of these servers and this port.
fn leads_to(url: &str, servers: &[&str], port: u64) -> bool {
    servers
        .iter()
        .any(|server| url == format!("redis://{server}:{port}"))
}

#[test]
fn the_image_has_the_program_and_its_ports() {
    let file = read("crates/tollgate-envoy/Dockerfile");
    let settings = Settings::read();
    let lines = |word: &str| -> Vec<String> {
        let found = file.lines().filter_map(|line| line.strip_prefix(word));
        found.map(|rest| rest.trim().to_owned()).collect()
    };
    let exposed: BTreeSet<u64> = lines("EXPOSE ")[0]
        .split(' ')
        .map(|port| port.parse().unwrap())
        .collect();
    assert_eq!(exposed, settings.ports());
    let entrypoint: Vec<String> = serde_json::from_str(&lines("ENTRYPOINT ")[0]).unwrap();
    let name = PathBuf::from(PROGRAM)
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(entrypoint, [format!("/bin/{name}")]);
    assert!(file.contains(&format!(
        "--package {} --bin {name}",
        env!("CARGO_PKG_NAME")
    )));
    assert!(
        file.contains(&format!("/image/bin/{name}"))
            && file.contains(&format!("target/release/{name}"))
    );
    let rules = format!(
        "/image{}/{}",
        settings.default_of("--runtime-root"),
        settings.default_of("--runtime-appdirectory")
    );
    assert!(file.contains(&rules), "{rules}");
    let [build, last] = &*lines("FROM ") else {
        panic!("two stages")
    };
    assert_eq!(last, "scratch");
    let minor = |version: &str| {
        version
            .split(['.', '-'])
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert!(minor(build.strip_prefix("rust:").unwrap()) >= minor(env!("CARGO_PKG_RUST_VERSION")));
    assert_ne!(lines("USER ")[0].split(':').next(), Some("0"));
}

#[test]
fn the_compose_file_fits_the_program_and_envoys_configuration() {
    let settings = Settings::read();
    let compose = documents("examples/envoy/compose.yaml").remove(0);
    let envoy = documents("examples/envoy/envoy.yaml").remove(0);
    let services = compose["services"].as_object().unwrap();
    let names: Vec<&str> = services.keys().map(String::as_str).collect();
    let ours: Vec<_> = services
        .iter()
        .filter(|(_, service)| service["image"] == IMAGE)
        .collect();
    assert_eq!(ours.len(), 2, "{names:?}");
    for (name, service) in &ours {
        let command = texts(&service["command"]);
        settings.assert_flags(&command);
        let variables = service["environment"].as_object().unwrap();
        settings.assert_variables(variables.keys().map(String::as_str));
        assert!(
            leads_to(variables["TOLLGATE_STORE"].as_str().unwrap(), &names, 6379),
            "{name}"
        );
        let mounts = texts(&service["volumes"]);
        assert!(
            mounts
                .iter()
                .any(|mount| mount.contains(&format!(":{}", command[1]))),
            "{mounts:?} and {command:?}"
        );
        for mount in mounts {
            assert!(
                path("examples/envoy")
                    .join(mount.split(':').next().unwrap())
                    .exists(),
                "{mount}"
            );
        }
        for port in texts(&service["ports"]) {
            assert!(
                settings
                    .ports()
                    .contains(&port.rsplit(':').next().unwrap().parse().unwrap()),
                "{port}"
            );
        }
        let dockerfile = service["build"]["dockerfile"].as_str().unwrap();
        let context = path("examples/envoy").join(service["build"]["context"].as_str().unwrap());
        assert!(context.join(dockerfile).exists(), "{dockerfile}");
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let variables = ours[0].1["environment"].as_object().unwrap();
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| (name.clone(), text(value)))
        .collect();
    start(&variables);

    let clusters = envoy["static_resources"]["clusters"].as_array().unwrap();
    let cluster = clusters
        .iter()
        .find(|cluster| cluster["name"] == "ratelimit")
        .unwrap();
    let endpoints = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
        .as_array()
        .unwrap();
    let addresses: Vec<_> = endpoints
        .iter()
        .map(|one| &one["endpoint"]["address"]["socket_address"])
        .collect();
    let asked: Vec<_> = addresses
        .iter()
        .map(|address| address["address"].as_str().unwrap())
        .collect();
    assert_eq!(
        asked,
        ours.iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>()
    );
    assert!(
        addresses
            .iter()
            .all(|address| address["port_value"] == settings.port("--grpc-port"))
    );
    // A replica that ends is unhealthy for Envoy before it closes its port.
    let check = &cluster["health_checks"][0];
    let seconds = |name: &str| {
        check[name]
            .as_str()
            .unwrap()
            .strip_suffix('s')
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert_eq!(check["unhealthy_threshold"], 1);
    for interval in ["interval", "no_traffic_interval"] {
        assert!(seconds(interval) + seconds("timeout") < settings.seconds("--drain-delay"));
    }
    let listener =
        &envoy["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"];
    assert_eq!(
        texts(&services["envoy"]["ports"]),
        [format!("{listener}:{listener}")]
    );
}

#[test]
fn the_manifests_fit_the_program() {
    let settings = Settings::read();
    let all = documents("examples/envoy/kubernetes.yaml");
    let of_kind = |kind: &'static str| all.iter().filter(move |one| one["kind"] == kind);
    let services: Vec<&str> = of_kind("Service")
        .map(|one| one["metadata"]["name"].as_str().unwrap())
        .collect();

    let rules = of_kind("ConfigMap").next().unwrap();
    for (name, text) in rules["data"].as_object().unwrap() {
        let set = RuleSet::parse(text.as_str().unwrap(), Format::Yaml)
            .unwrap_or_else(|errors| panic!("{name}: {errors}"));
        assert!(set.rules().count() > 0, "{name}");
    }

    let deployment = of_kind("Deployment")
        .find(|one| one["metadata"]["name"] == "ratelimit")
        .unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["image"], IMAGE);
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    for deployment in of_kind("Deployment") {
        let (spec, name) = (&deployment["spec"], &deployment["metadata"]["name"]);
        let resources = &spec["template"]["spec"]["containers"][0]["resources"];
        assert!(
            resources["requests"]["memory"].is_string()
                && resources["limits"]["memory"].is_string(),
            "{name}"
        );
        // Two servers at a time would count apart.
        assert!(
            spec["replicas"] == 2 || spec["strategy"]["type"] == "Recreate",
            "{name}"
        );
    }
    let arguments = texts(&container["args"]);
    settings.assert_flags(&arguments);
    assert_eq!(container["volumeMounts"][0]["mountPath"], *arguments[1]);
    assert_eq!(
        pod["volumes"][0]["configMap"]["name"],
        rules["metadata"]["name"]
    );
    let variables = container["env"].as_array().unwrap().iter();
    let variables: Vec<_> = variables
        .map(|one| {
            (
                one["name"].as_str().unwrap().to_owned(),
                one["value"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    settings.assert_variables(variables.iter().map(|(name, _)| name.as_str()));
    let store = variables
        .iter()
        .find(|(name, _)| name == "TOLLGATE_STORE")
        .unwrap();
    assert!(leads_to(&store.1, &services, 6379), "{store:?}");
    start(&variables);

    let ports = container["ports"].as_array().unwrap();
    let named = |name: &Value| {
        ports.iter().find(|port| port["name"] == *name).unwrap()["containerPort"]
            .as_u64()
            .unwrap()
    };
    assert!(ports.iter().all(|port| {
        settings
            .ports()
            .contains(&port["containerPort"].as_u64().unwrap())
    }));
    let ready = &container["readinessProbe"]["httpGet"];
    assert_eq!(
        (ready["path"].as_str(), named(&ready["port"])),
        (Some("/healthcheck"), settings.port("--port"))
    );
    assert_eq!(
        named(&container["livenessProbe"]["tcpSocket"]["port"]),
        settings.port("--grpc-port")
    );
    let service = of_kind("Service")
        .find(|one| one["metadata"]["name"] == "ratelimit")
        .unwrap();
    for port in service["spec"]["ports"].as_array().unwrap() {
        assert_eq!(named(&port["targetPort"]), port["port"].as_u64().unwrap());
    }
    let ending = settings.seconds("--drain-delay") + settings.seconds("--drain-timeout") + 5;
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() >= ending);
    let ready = &container["readinessProbe"];
    let failing =
        ready["periodSeconds"].as_u64().unwrap() * ready["failureThreshold"].as_u64().unwrap();
    assert!(failing < settings.seconds("--drain-delay"));
}

/// The variables that Envoy Gateway 1.9 gives the service (its file
/// `internal/infrastructure/kubernetes/ratelimit/resource.go`), without those of which the program
/// says that they have no effect, and one that neither service reads.
const OF_ENVOY_GATEWAY: [&str; 19] = [
    "RUNTIME_ROOT",
    "RUNTIME_SUBDIRECTORY",
    "LOG_LEVEL",
    "USE_STATSD",
    "CONFIG_TYPE",
    "CONFIG_GRPC_XDS_SERVER_URL",
    "CONFIG_GRPC_XDS_NODE_ID",
    "GRPC_SERVER_USE_TLS",
    "GRPC_SERVER_TLS_CERT",
    "GRPC_SERVER_TLS_KEY",
    "CONFIG_GRPC_XDS_SERVER_USE_TLS",
    "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
    "CONFIG_GRPC_XDS_CLIENT_TLS_KEY",
    "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
    "FORCE_START_WITHOUT_INITIAL_CONFIG",
    "REDIS_SOCKET_TYPE",
    "REDIS_URL",
    "USE_PROMETHEUS",
    "PROMETHEUS_ADDR",
];

/// Returns the names of the services of `kubernetes.yaml`, with their ports.
fn services(documents: &[Value]) -> Vec<(String, Vec<u64>)> {
    let of_kind = documents.iter().filter(|one| one["kind"] == "Service");
    of_kind
        .map(|service| {
            let ports = service["spec"]["ports"].as_array().unwrap().iter();
            let name = service["metadata"]["name"].as_str().unwrap().to_owned();
            (
                name,
                ports.map(|one| one["port"].as_u64().unwrap()).collect(),
            )
        })
        .collect()
}

/// Returns the duration of a text such as `20ms` or `0.020s`, in milliseconds.
fn milliseconds(text: &Value) -> f64 {
    let text = text.as_str().unwrap();
    match text.strip_suffix("ms") {
        Some(number) => number.parse().unwrap(),
        None => text.strip_suffix('s').unwrap().parse::<f64>().unwrap() * 1_000.0,
    }
}

#[test]
fn envoy_gateway_starts_the_program_with_variables_that_it_knows() {
    let settings = Settings::read();
    settings.assert_variables(OF_ENVOY_GATEWAY.into_iter());
    let [map, policy] = &*documents("examples/envoy/envoy-gateway.yaml") else {
        panic!("two documents")
    };
    let text = map["data"]["envoy-gateway.yaml"].as_str().unwrap();
    let gateway: Value = serde_saphyr::from_str(text).unwrap();
    assert_eq!(gateway["kind"], "EnvoyGateway");
    let container = &gateway["provider"]["kubernetes"]["rateLimitDeployment"]["container"];
    let image = container["image"].as_str().unwrap();
    let version = format!("{IMAGE}:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(image, version, "its schema asks for a tag");
    let added = container["env"].as_array().unwrap().iter();
    let added: Vec<_> = added.map(|one| one["name"].as_str().unwrap()).collect();
    settings.assert_variables(added.iter().copied());
    let limit = &gateway["rateLimit"];
    let redis = limit["backend"]["redis"]["url"].as_str().unwrap();
    let kubernetes = services(&documents("examples/envoy/kubernetes.yaml"));
    assert!(
        kubernetes.iter().any(|(name, ports)| {
            redis == format!("{name}.default.svc.cluster.local:{}", ports[0])
        }),
        "{redis}"
    );
    let deadline = settings.default_of("--deadline").to_owned();
    assert!(milliseconds(&limit["timeout"]) > milliseconds(&deadline.into()));
    assert_eq!(policy["kind"], "BackendTrafficPolicy");
    for rule in policy["spec"]["rateLimit"]["global"]["rules"]
        .as_array()
        .unwrap()
    {
        // What Envoy Gateway makes of it is a rule of the original, with one of its units.
        let unit = rule["limit"]["unit"].as_str().unwrap().to_lowercase();
        let text = format!(
            "{{domain: d, descriptors: [{{key: k, rate_limit: {{unit: {unit}, requests_per_unit: {}}}}}]}}",
            rule["limit"]["requests"]
        );
        RuleSet::parse(&text, Format::Yaml).unwrap_or_else(|errors| panic!("{text}: {errors}"));
    }
}

#[test]
fn istio_asks_a_service_with_an_address_about_rules_that_exist() {
    let settings = Settings::read();
    let [service, filter] = &*documents("examples/envoy/istio.yaml") else {
        panic!("two documents")
    };
    let kubernetes = documents("examples/envoy/kubernetes.yaml");
    let deployment = kubernetes
        .iter()
        .find(|one| one["kind"] == "Deployment")
        .unwrap();
    assert_eq!(
        service["spec"]["selector"],
        deployment["spec"]["selector"]["matchLabels"]
    );
    // Istio makes a cluster that cannot be asked of a service without an address.
    assert!(service["spec"].get("clusterIP").is_none());
    let (name, port) = (&service["metadata"]["name"], settings.port("--grpc-port"));
    // The name tells Istio the protocol.
    assert_eq!(service["spec"]["ports"][0]["name"], "grpc");
    assert_eq!(service["spec"]["ports"][0]["port"], port);

    let patches = filter["spec"]["configPatches"].as_array().unwrap();
    let limit = &patches[0]["patch"]["value"]["typed_config"];
    let host = format!("{}.default.svc.cluster.local", name.as_str().unwrap());
    let envoy = &limit["rate_limit_service"]["grpc_service"]["envoy_grpc"];
    assert_eq!(envoy["cluster_name"], format!("outbound|{port}||{host}"));
    assert_eq!(envoy["authority"], host);
    let deadline = settings.default_of("--deadline").to_owned();
    assert!(milliseconds(&limit["timeout"]) > milliseconds(&deadline.into()));

    let rules = kubernetes
        .iter()
        .find(|one| one["kind"] == "ConfigMap")
        .unwrap();
    let rules = rules["data"].as_object().unwrap().values().next().unwrap();
    let rules: Value = serde_saphyr::from_str(rules.as_str().unwrap()).unwrap();
    assert_eq!(limit["domain"], rules["domain"]);
    let keys = rules["descriptors"].as_array().unwrap().iter();
    let keys: Vec<_> = keys.map(|one| one["key"].as_str().unwrap()).collect();
    let asked = patches[1]["patch"]["value"]["rate_limits"]
        .as_array()
        .unwrap();
    let asked = asked.iter().map(|one| {
        let action = &one["actions"][0];
        let key = action["request_headers"]["descriptor_key"].as_str();
        key.unwrap_or_else(|| action.as_object().unwrap().keys().next().unwrap())
    });
    assert_eq!(asked.collect::<Vec<_>>(), keys);
}

/// Renders a template of the chart as Helm does. The templates hold names of values, as text or as
/// JSON, and nothing else.
fn rendered(template: &str, values: &Value) -> Vec<Value> {
    let name = format!("examples/envoy/chart/templates/{template}");
    let source = read(&name);
    let (first, actions) = source.split_once("{{ ").unwrap();
    let mut text = first.to_owned();
    for part in actions.split("{{ ") {
        let (action, rest) = part.split_once(" }}").unwrap();
        let path = action.strip_prefix("toJson ").unwrap_or(action);
        let value = match path.strip_suffix(" | sha256sum") {
            Some(_) => "a digest".into(),
            None if path == ".Release.Name" => "limits".into(),
            None => {
                let path = path
                    .strip_prefix(".Values")
                    .unwrap_or_else(|| panic!("{name}: {path}"));
                let value = values.pointer(&path.replace('.', "/"));
                value.unwrap_or_else(|| panic!("{name}: {path}")).clone()
            }
        };
        text += &match value.as_str() {
            Some(plain) if path == action || path.ends_with("sha256sum") => plain.to_owned(),
            _ => value.to_string(),
        };
        text += rest;
    }
    let parse =
        |text| serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    text.split("\n---\n").map(parse).collect()
}

#[test]
fn the_chart_makes_the_manifests_of_the_example() {
    let settings = Settings::read();
    let chart = documents("examples/envoy/chart/Chart.yaml").remove(0);
    for version in ["version", "appVersion"] {
        assert_eq!(chart[version], env!("CARGO_PKG_VERSION"));
    }
    let values = documents("examples/envoy/chart/values.yaml").remove(0);
    assert_eq!(
        values["image"],
        format!("{IMAGE}:{}", env!("CARGO_PKG_VERSION"))
    );
    let [env, rules] = &*rendered("settings.yaml", &values) else {
        panic!("two documents")
    };
    let [deployment] = &*rendered("deployment.yaml", &values) else {
        panic!("one document")
    };
    let all = rendered("service.yaml", &values);
    let kubernetes = documents("examples/envoy/kubernetes.yaml");
    let of_kind = |all: &[Value], kind: &str| {
        let found = all.iter().find(|one| one["kind"] == kind);
        found.unwrap_or_else(|| panic!("{kind}")).clone()
    };

    // The pod is that of the manifests, except where its settings come from.
    let manifest = of_kind(&kubernetes, "Deployment");
    let (mut ours, mut theirs) = (
        deployment["spec"]["template"]["spec"].clone(),
        manifest["spec"]["template"]["spec"].clone(),
    );
    for pod in [&mut ours, &mut theirs] {
        pod.as_object_mut().unwrap().remove("volumes");
        let container = pod["containers"][0].as_object_mut().unwrap();
        for field in ["env", "envFrom", "image", "imagePullPolicy", "volumeMounts"] {
            container.remove(field);
        }
    }
    assert_eq!(ours, theirs);
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(
        container["envFrom"][0]["configMapRef"]["name"],
        env["metadata"]["name"]
    );
    assert_eq!(
        pod["volumes"][0]["configMap"]["name"],
        rules["metadata"]["name"]
    );
    assert_eq!(
        container["volumeMounts"][0]["mountPath"],
        container["args"][1]
    );
    assert_eq!(
        container["envFrom"][1]["secretRef"]["name"],
        values["secret"]
    );
    assert_eq!(pod["volumes"][1]["secret"]["secretName"], values["secret"]);
    assert!(
        read("examples/envoy/chart/values.yaml")
            .contains(container["volumeMounts"][1]["mountPath"].as_str().unwrap())
    );

    let variables = env["data"].as_object().unwrap().iter();
    let variables: Vec<_> = variables
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
        .collect();
    settings.assert_variables(variables.iter().map(|(name, _)| name.as_str()));
    start(&variables);
    assert_eq!(rules["data"], of_kind(&kubernetes, "ConfigMap")["data"]);

    let spec = |mut service: Value| {
        // The labels of a release have its name.
        service["spec"].as_object_mut().unwrap().remove("selector");
        service["spec"].clone()
    };
    for kind in ["Service", "PodDisruptionBudget"] {
        assert_eq!(
            spec(of_kind(&all, kind)),
            spec(of_kind(&kubernetes, kind)),
            "{kind}"
        );
    }
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(of_kind(&all, "Service")["spec"]["selector"], *labels);
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], *labels);
}
