//! Makes the parts of the settings.
//! The order in which they are started and ended is in `run.rs`; the store is made in `store.rs`.

use std::{path::Path, sync::Arc, time::Duration};

use tokio::time::sleep;
use tollgate::limiter::DeniedKeys;
use tollgate_envoy::{
    Ads, AdsTls, Backoff, Component, GrpcListen, Health, LimitHeaderNames, NearLimit,
    RateLimitService, Server, Statsd, TlsFiles,
};
use tollgate_rules::{GlobalModes, RuleLimiter, RuleSet, RuleSetBuilder, Rules};

use super::{
    arguments::{
        AdsArguments, Arguments, ConfigType, ListenArguments, MetricsArguments, RuleArguments,
    },
    descriptors,
    failure::Failure,
    store::{OpenStore, outage},
};

/// The time between two looks at whether rules are loaded.
const LOOK: Duration = Duration::from_millis(100);

/// Returns the options of rules, of which the store has to accept each.
pub(crate) fn rule_options(settings: &RuleArguments, store: &OpenStore) -> RuleSetBuilder {
    RuleSet::builder()
        .compat(settings.compat.into())
        .merge_domains(settings.merge_domain_config)
        .accepted_by(Arc::clone(&store.store))
}

/// Loads the rules. Those of a control plane come later.
pub(crate) fn rules(settings: &RuleArguments, options: RuleSetBuilder) -> Result<Rules, Failure> {
    if settings.config_type == ConfigType::GrpcXdsSotw {
        return Ok(Rules::empty(options, None));
    }
    let path = settings.path();
    if !settings.force_start_without_initial_config {
        if !path.exists() {
            return Err(Failure::new(format_args!(
                "the rules {} do not exist, set --rules",
                path.display()
            )));
        }
        return Rules::load_with(options, path).map_err(Failure::new);
    }
    let rules = Rules::empty(options, Some(path));
    // The mistakes are logged, and the service starts without rules.
    let _ = rules.reload();
    Ok(rules)
}

/// Sets the health of rules, until the future is dropped.
pub(crate) async fn watch_rules(rules: Rules, needs_domain: bool, health: Health) {
    let mut was_healthy = false;
    loop {
        let is_healthy =
            rules.loads().succeeded > 0 && !(needs_domain && rules.current().domains().len() == 0);
        if is_healthy != was_healthy {
            health.set(Component::Rules, is_healthy).await;
            was_healthy = is_healthy;
        }
        sleep(LOOK).await;
    }
}

/// Returns the service.
pub(crate) fn service(
    settings: &Arguments,
    rules: Rules,
    store: &OpenStore,
    denied_keys: Option<DeniedKeys>,
) -> Result<RateLimitService, Failure> {
    let modes = GlobalModes {
        shadow: settings.rules.shadow_mode,
        quota: settings.rules.quota_mode,
    };
    let mut limiter = RuleLimiter::builder(rules, Arc::clone(&store.store))
        .name("envoy")
        .on_outage(outage(settings.store.on_outage))
        .modes(modes)
        .deadline(settings.store.deadline);
    if let Some(denied_keys) = denied_keys {
        limiter = limiter.denied_keys(denied_keys);
    }
    let answers = &settings.answers;
    let mut service = RateLimitService::builder(limiter.build())
        // Where every request passes, no limit is shown.
        .standard_headers(answers.standard_headers && !settings.rules.shadow_mode)
        .dynamic_metadata(answers.response_dynamic_metadata)
        .max_descriptors(settings.listen.max_descriptors)
        .max_message_bytes(settings.listen.max_message_bytes);
    if answers.limit_response_headers_enabled {
        let names = LimitHeaderNames::new(
            &answers.limit_limit_header,
            &answers.limit_remaining_header,
            &answers.limit_reset_header,
        );
        let names = names.map_err(|error| {
            Failure::new(format_args!("a name of a header field is wrong: {error}"))
        })?;
        service = service.limit_headers(names);
    }
    // Where every request passes, no limit denies.
    if !(answers.near_limit_header.is_empty() || settings.rules.shadow_mode) {
        let near = NearLimit::new(&answers.near_limit_header)
            .map_err(|error| Failure::new(format_args!("near_limit_header: {error}")))?;
        service = service.near_limit(near.share(answers.near_limit_share));
    }
    Ok(service.build())
}

/// Opens the ports.
pub(crate) async fn server(
    settings: &ListenArguments,
    service: RateLimitService,
    health: Health,
    metrics: Option<(String, u16, axum::Router)>,
    console: Option<(String, u16, axum::Router)>,
) -> Result<Server, Failure> {
    let grpc = match present(&settings.grpc_uds) {
        Some(path) => GrpcListen::Unix(path.to_owned()),
        None => GrpcListen::Tcp(settings.grpc_host.clone(), settings.grpc_port),
    };
    let mut server = Server::builder(service, health)
        .grpc(grpc)
        .http(settings.host.clone(), settings.port)
        .debug(settings.debug_host.clone(), settings.debug_port)
        .max_connection_age(
            settings.grpc_max_connection_age,
            settings.grpc_max_connection_age_grace,
        )
        .idle_timeout(settings.idle_timeout)
        .max_connections(
            settings
                .max_connections
                .unwrap_or_else(descriptors::connections),
        )
        .max_streams(settings.max_streams)
        .drain_timeout(settings.drain_timeout);
    if let Some((host, port, routes)) = metrics {
        server = server.metrics(host, port, routes);
    }
    if let Some((host, port, routes)) = console {
        server = server.console(host, port, routes);
    }
    if settings.grpc_server_use_tls {
        server = server.tls(TlsFiles {
            certificate: settings.grpc_server_tls_cert.clone(),
            key: settings.grpc_server_tls_key.clone(),
            client_authorities: present(&settings.grpc_client_tls_cacert).map(Path::to_owned),
            client_name: Some(settings.grpc_client_tls_san.clone()).filter(|name| !name.is_empty()),
        });
    }
    server.bind().await.map_err(Failure::new)
}

/// Returns the client of the control plane.
pub(crate) fn ads(settings: &AdsArguments, rules: RuleSetBuilder) -> Ads {
    let jitter = if settings.xds_client_backoff_jitter {
        settings.xds_client_backoff_random_factor
    } else {
        0.0
    };
    let mut ads = Ads::new(settings.config_grpc_xds_server_url.clone())
        .rules(rules)
        .node_id(settings.config_grpc_xds_node_id.clone())
        .node_metadata(settings.config_grpc_xds_node_metadata.0.clone())
        .headers(settings.config_grpc_xds_client_additional_headers.0.clone())
        .backoff(Backoff {
            initial: settings.xds_client_backoff_initial_interval,
            max: settings.xds_client_backoff_max_interval,
            jitter,
        })
        .max_message_bytes(settings.xds_client_max_msg_size_in_bytes);
    if settings.config_grpc_xds_server_use_tls {
        let identity = present(&settings.config_grpc_xds_client_tls_cert).map(|path| {
            (
                path.to_owned(),
                settings.config_grpc_xds_client_tls_key.clone(),
            )
        });
        ads = ads.tls(AdsTls {
            authorities: present(&settings.config_grpc_xds_server_tls_cacert).map(Path::to_owned),
            identity,
            name: Some(settings.config_grpc_xds_server_tls_san.clone())
                .filter(|name| !name.is_empty()),
        });
    }
    ads
}

/// Returns the exporter for statsd, unless it is off.
pub(crate) fn statsd(settings: &MetricsArguments) -> Option<Statsd> {
    let statsd = Statsd::new(
        settings.statsd_host.clone(),
        settings.statsd_port,
        settings.statsd_protocol.into(),
    )
    .interval(settings.stats_flush_interval)
    .tags(settings.extra_tags.0.clone());
    settings.sends_to_statsd().then_some(statsd)
}

/// Returns a path that is not empty.
fn present(path: &Path) -> Option<&Path> {
    (!path.as_os_str().is_empty()).then_some(path)
}
