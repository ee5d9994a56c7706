//! Turns the resources that a control plane has sent into rules.
//! What a rule means is not decided here: a resource becomes the text of a file, which
//! tollgate-rules reads.

use prost::Message;
use prost_types::{Any, ListValue, Struct, Value, value::Kind};
use serde_json::{Map, Number, Value as Json};
use tollgate::ForeignText;
use tollgate_rules::{Format, RuleSet, RuleSetBuilder, Rules};

use crate::proto::config::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit};

/// The type of the resources.
pub(super) const TYPE_URL: &str =
    "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// Checks the resources of a response as one set. The error is sent to the control plane.
pub(super) fn rule_set(
    options: &RuleSetBuilder,
    resources: &[Any],
    rules: &Rules,
) -> Result<RuleSet, String> {
    let configs: Vec<_> = resources.iter().map(config).collect::<Result<_, _>>()?;
    let texts: Vec<_> = configs
        .iter()
        .map(|config| (name(config), file(config).to_string()))
        .collect();
    let texts = texts
        .iter()
        .map(|(name, text)| (name, text.as_str(), Format::Json));
    options.parse_all(texts).map_err(|errors| {
        rules.refuse(&errors);
        errors.to_string()
    })
}

fn config(resource: &Any) -> Result<RateLimitConfig, String> {
    if resource.type_url != TYPE_URL {
        return Err(format!(
            "expected a resource of the type {TYPE_URL}, got {:?}",
            resource.type_url
        ));
    }
    RateLimitConfig::decode(resource.value.as_slice())
        .map_err(|error| format!("the resource is damaged: {error}"))
}

/// Returns the name of a resource in messages.
fn name(config: &RateLimitConfig) -> String {
    let names = [&config.name, &config.domain];
    names.into_iter().find(|name| !name.is_empty()).map_or_else(
        || "resource".to_owned(),
        |name| ForeignText(name).to_string(),
    )
}

/// Returns the file with the same rules.
fn file(config: &RateLimitConfig) -> Json {
    let mut file = Map::new();
    file.insert("domain".to_owned(), config.domain.clone().into());
    file.insert(
        "descriptors".to_owned(),
        config.descriptors.iter().map(descriptor).collect(),
    );
    Json::Object(file)
}

fn descriptor(message: &RateLimitDescriptor) -> Json {
    let mut fields = Map::new();
    fields.insert("key".to_owned(), message.key.clone().into());
    // The message has no difference between an empty value and none.
    if !message.value.is_empty() {
        fields.insert("value".to_owned(), message.value.clone().into());
    }
    if let Some(policy) = &message.rate_limit {
        fields.insert("rate_limit".to_owned(), rate_limit(policy));
    }
    for (name, is_on) in [
        ("shadow_mode", message.shadow_mode),
        ("detailed_metric", message.detailed_metric),
        ("quota_mode", message.quota_mode),
    ] {
        if is_on {
            fields.insert(name.to_owned(), true.into());
        }
    }
    if !message.descriptors.is_empty() {
        fields.insert(
            "descriptors".to_owned(),
            message.descriptors.iter().map(descriptor).collect(),
        );
    }
    if let Some(metadata) = &message.metadata {
        fields.insert("metadata".to_owned(), object(metadata));
    }
    Json::Object(fields)
}

fn rate_limit(policy: &RateLimitPolicy) -> Json {
    let mut fields = Map::new();
    match policy.unit() {
        // An unlimited policy has no unit. In any other one, a missing unit is reported by the
        // check of the rules.
        RateLimitUnit::Unknown => {}
        unit => drop(fields.insert("unit".to_owned(), unit.as_str_name().into())),
    }
    if policy.unlimited {
        fields.insert("unlimited".to_owned(), true.into());
    }
    if !policy.unlimited || policy.requests_per_unit > 0 {
        fields.insert(
            "requests_per_unit".to_owned(),
            policy.requests_per_unit.into(),
        );
    }
    if !policy.name.is_empty() {
        fields.insert("name".to_owned(), policy.name.clone().into());
    }
    if !policy.replaces.is_empty() {
        let replaces = policy.replaces.iter().map(|replaced| {
            Json::Object(Map::from_iter([(
                "name".to_owned(),
                Json::from(replaced.name.clone()),
            )]))
        });
        fields.insert("replaces".to_owned(), replaces.collect());
    }
    Json::Object(fields)
}

fn object(message: &Struct) -> Json {
    Json::Object(
        message
            .fields
            .iter()
            .map(|(name, field)| (name.clone(), value(field)))
            .collect(),
    )
}

fn value(message: &Value) -> Json {
    match &message.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::BoolValue(value)) => Json::Bool(*value),
        Some(Kind::NumberValue(value)) => Number::from_f64(*value).map_or(Json::Null, Json::Number),
        Some(Kind::StringValue(text)) => Json::String(text.clone()),
        Some(Kind::ListValue(ListValue { values })) => values.iter().map(value).collect(),
        Some(Kind::StructValue(message)) => object(message),
    }
}
