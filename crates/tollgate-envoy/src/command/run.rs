//! Starts the parts, and ends them.
//! How each part is made of the settings is in `start.rs` and `store.rs`.

use std::{env, process::ExitCode};

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{runtime::Runtime, sync::oneshot, task::JoinSet};
#[cfg(feature = "console")]
use tollgate::limiter::DeniedKeys;
use tollgate_envoy::{Health, RateLimitService, Server};
use tollgate_rules::Rules;

#[cfg(feature = "console")]
use super::console;
use super::{
    arguments::{Arguments, ConfigType},
    environment,
    failure::Failure,
    file, log, metrics,
    signals::End,
    start,
    store::{self, OpenStore},
    values::host_and_port,
};

/// The keys that are counted for the console's list of those that are denied most.
#[cfg(feature = "console")]
const DENIED_KEYS: usize = 1_000;

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    let settings = match file::arguments(env::args_os()) {
        Ok(settings) => settings,
        Err(status) => return status,
    };
    log::start(settings.log_level, settings.log_format);
    environment::warn();
    match run(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.print(),
    }
}

fn run(settings: &Arguments) -> Result<(), Failure> {
    let runtime = Runtime::new()
        .map_err(|error| Failure::new(format_args!("cannot start the runtime: {error}")))?;
    let result = runtime.block_on(serve(settings));
    // A file that is being read does not delay the end.
    runtime.shutdown_background();
    result
}

async fn serve(settings: &Arguments) -> Result<(), Failure> {
    // From here on, a signal ends the program gracefully.
    let end = End::catch()?;
    let recorder = is_prometheus_on(settings)
        .then(metrics::install)
        .transpose()?;
    let store = store::open(&settings.store)?;
    let options = start::rule_options(&settings.rules, &store);
    let rules = start::rules(&settings.rules, options.clone())?;
    let is_file = settings.rules.config_type == ConfigType::File;
    let _files = is_file
        .then(|| rules.watch())
        .transpose()
        .map_err(Failure::new)?;
    let _hangups = is_file
        .then(|| rules.reload_on_hangup())
        .transpose()
        .map_err(Failure::new)?;
    #[cfg(feature = "console")]
    let (denied_keys, console) = {
        let denied_keys = DeniedKeys::new(DENIED_KEYS);
        let console = console::console(settings, &rules, &denied_keys)?;
        (console.is_some().then_some(denied_keys), console)
    };
    #[cfg(not(feature = "console"))]
    let (denied_keys, console) = (None, None);
    let service = start::service(settings, rules.clone(), &store, denied_keys)?;
    let health = Health::new().await;
    let page = page(settings, &service, recorder.as_ref())?;
    let server = start::server(
        &settings.listen,
        service.clone(),
        health.clone(),
        page,
        console,
    )
    .await?;
    print(settings, &rules, &store, &server);

    let leases = store.leases();
    let mut tasks = JoinSet::new();
    tasks.spawn(store.watch(health.clone()));
    let needs_domain = settings.rules.healthy_with_at_least_one_config_loaded;
    tasks.spawn(start::watch_rules(
        rules.clone(),
        needs_domain,
        health.clone(),
    ));
    if !is_file {
        tasks.spawn(start::ads(&settings.ads, options).run(rules.clone()));
    }
    let (counted, all_counted) = oneshot::channel::<()>();
    let statsd = start::statsd(&settings.metrics).map(|statsd| {
        let end = async move { drop(all_counted.await) };
        tokio::spawn(statsd.run(service.metrics().clone(), rules, end))
    });
    if let Some(recorder) = recorder {
        tasks.spawn(metrics::upkeep(recorder));
    }
    let served = server
        .run(end.wait(health, settings.listen.drain_delay))
        .await
        .map_err(Failure::new);
    leases.release().await;
    drop(counted);
    if let Some(statsd) = statsd {
        // A panic of the task was reported by its hook.
        let _ = statsd.await;
    }
    served
}

fn is_prometheus_on(settings: &Arguments) -> bool {
    settings.metrics.use_prometheus && !settings.metrics.disable_stats
}

/// Returns the place and the page of metrics, unless they are off.
fn page(
    settings: &Arguments,
    service: &RateLimitService,
    recorder: Option<&PrometheusHandle>,
) -> Result<Option<(String, u16, axum::Router)>, Failure> {
    let Some(recorder) = recorder else {
        return Ok(None);
    };
    let address = &settings.metrics.prometheus_addr;
    let (host, port) = host_and_port(address).ok_or_else(|| {
        Failure::new(format_args!(
            "--prometheus-addr must be HOST:PORT, got {address:?}"
        ))
    })?;
    let routes = metrics::router(
        &settings.metrics.prometheus_path,
        service.clone(),
        recorder.clone(),
    )?;
    Ok(Some((host, port, routes)))
}

/// Prints what is served. Programs that start this one read the ports there.
fn print(settings: &Arguments, rules: &Rules, store: &OpenStore, server: &Server) {
    println!("tollgate-envoy {}", env!("CARGO_PKG_VERSION"));
    let set = rules.current();
    let (domains, count, mode) = (set.domains().len(), set.rules().count(), set.compat());
    match rules.path() {
        Some(path) => println!(
            "rules: {} (domains: {domains}, rules: {count}, mode: {mode})",
            path.display()
        ),
        None => println!(
            "rules: the control plane at {}",
            settings.ads.config_grpc_xds_server_url
        ),
    }
    println!("store: {}", store.description());
    let tls = if settings.listen.grpc_server_use_tls {
        " with TLS"
    } else {
        ""
    };
    for (what, address) in server.pages() {
        println!("{what}: {address}");
    }
    println!("gRPC: {}{tls}", server.grpc());
}
