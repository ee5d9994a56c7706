//! Rate limits in files, which change while the service runs.
//!
//! The rules have the language of Envoy's rate limit service. A request is described by
//! *descriptors*: lists of keys and values, such as `tenant=acme`. The descriptors of the file form
//! a tree that gives each list a limit.
//!
//! Use the `tollgate` crate alone for limits that are constants. **Start with its
//! [guide](tollgate::guide)**, about algorithms, outages and production.
//!
//! ```
//! use tollgate::MemoryStore;
//! use tollgate_rules::{Descriptor, Format, RuleLimiter, RuleSet, Rules};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rules = RuleSet::parse(
//!     "
//!     domain: shop
//!     descriptors:
//!       - key: tenant                 # every tenant, each with its own counter
//!         rate_limit: {unit: minute, requests_per_unit: 2}
//!       - key: tenant
//!         value: internal             # an exception: no limit
//!       - key: tenant
//!         value: gold
//!         rate_limit: {quota: 6000/min burst 200}
//!         descriptors:
//!           - key: route
//!             value: /export*
//!             share_threshold: true   # one counter for all that match: a client may add any suffix
//!             rate_limit: {limits: [{quota: 1/s}, {quota: 20/h}]}
//!     ",
//!     Format::Yaml,
//! )?;
//! let limiter = RuleLimiter::new(Rules::new(rules), MemoryStore::new());
//!
//! let request = [Descriptor::from([("tenant", "acme")])];
//! assert!(limiter.check("shop", &request, 1).await?.is_allowed());
//! assert!(limiter.check("shop", &request, 1).await?.is_allowed());
//! assert!(limiter.check("shop", &request, 1).await?.is_denied());
//!
//! let request = [Descriptor::from([("tenant", "internal")])];
//! assert!(limiter.check("shop", &request, 1_000).await?.is_allowed());
//! # Ok(()) }
//! ```
//!
//! # What do you want to do?
//!
//! | goal | use |
//! |---|---|
//! | check files, and see every mistake with its place | [`RuleSet::parse`], [`RuleSet::load`] |
//! | replace rules while requests run | [`Rules`], and `Rules::watch` for files that change |
//! | check a request | [`RuleLimiter::check`], with the [`Descriptor`]s that it has |
//! | limit HTTP or gRPC in a layer | `RuleLimiter::for_requests`, and `Descriptors` made from the head (feature `http`) |
//! | see which rule applies, and why | [`RuleSet::explain`], or the command `tollgate explain` |
//! | bring a limit into force step by step | the field `enforce` |
//! | take the limits of Envoy's service, or of a Spring Cloud Gateway | [`Compat`]; the module `spring` |
//! | take limits from a database | [`TenantLimiters`](tollgate::tenants::TenantLimiters) of the crate `tollgate` |
//!
//! # Files
//!
//! A file is one mapping in YAML, JSON or TOML. A mistake is reported with its line, column and
//! field. One mistake refuses the whole load. Fields marked with + are additions of Tollgate:
//! [`Compat::Envoy`] refuses them.
//!
//! | field | of | meaning |
//! |---|---|---|
//! | `domain` | file | the name under which requests find these rules |
//! | `descriptors` | file, descriptor | the rules of one level |
//! | `compat` + | file | `native` or `envoy`: see [`Compat`] |
//! | `priorities` + | file | classes of requests, each with the share of every limit that it may spend: see [`PriorityClass`] |
//! | `fair_shares` + | file | each customer gets the same share of every limit, see [below](#fair-shares) |
//! | `networks` + | file | clients that are never limited or never served, see [below](#networks), feature `http` |
//! | `rate_limits` + | file | how descriptors are made from requests: see `Descriptors`, feature `http` |
//! | `key` | descriptor | the key of an entry |
//! | `value` | descriptor | the value of an entry, or a pattern in which `*` stands for any characters; without it, any value |
//! | `rate_limit` | descriptor | the limit; without it, a descriptor that ends here is not limited |
//! | `shadow_mode` | descriptor | requests over the limit pass and are counted |
//! | `enforce` + | descriptor | the share of the keys for which the limit is in force, as in `25%`; the others are in shadow mode |
//! | `quota_mode` | descriptor | the limit denies only together with all other quotas of the request |
//! | `share_threshold` | descriptor | `true`: all values that match the pattern share one counter; otherwise each has its own, and **a client that can choose the value has no limit** |
//! | `detailed_metric`, `value_to_metric` | descriptor | adds values of requests to the names of [metrics](Match::metric_name) |
//! | `metadata` | descriptor | any fields, returned for requests that pass |
//! | `prefix_v6` + | descriptor | the bits of an IPv6 address that have one counter, 32 to 128 |
//! | `on_outage` + | descriptor | `allow`, `fail` or `local`: the answer while the store is away |
//! | `name`, `ceiling`, `key`, `value` + | class | the name of a class, its share as in `60%`, and the entry that its requests have |
//! | `key`, `weights` + | fair shares | the key of the entry whose value is the customer, and how many shares a customer gets, 1 to 1000, as in `{acme: 4}`; without it, one |
//! | `unit`, `requests_per_unit` | limit | an amount for each window: see [`Unit`]; 0 denies every request |
//! | `unlimited` | limit | nothing is counted |
//! | `name`, `replaces` | limit | where this limit is enforced for a request, the limits named in `replaces` do not apply |
//! | `quota` + | limit | an amount and a period, with a burst or without, as in `100/10m burst 20`: see [`Quota`](tollgate::Quota) |
//! | `window` + | limit | any period in place of `unit`, as in `10m` |
//! | `burst` + | limit | the units that can be spent at once, which may also stand in `quota`; the limit is a token bucket then, also where they are as many as the amount |
//! | `algorithm` + | limit | an [`Algorithm`](tollgate::Algorithm) in place of `fixed_window`, or of `token_bucket` with a burst |
//! | `time_zone` + | limit | the zone in which a day, week, month or year of `unit` begins, as in `Europe/Berlin` or `+05:30` |
//! | `begins` + | limit | beside `time_zone`: the local time at which a period begins, as in `2026-01-17T09:30`; with `window: 30d` in place of `unit` every 30 days |
//! | `lease` + | limit | `true`, or `generation` and `share`: replicas take units in advance, see [below](#leases) |
//! | `unranked` + | limit | `true`: the limit is whole for every class of `priorities` and for every customer, see [`Policy::unranked`](tollgate::Policy::unranked) |
//! | `hidden` + | limit | `true`: the limit is enforced, and no header field and no problem document shows it, see [`Policy::hidden`](tollgate::Policy::hidden) |
//! | `limits` + | limit | up to 8 limits that are charged together |
//!
//! A descriptor of a request finds its limit entry by entry: the first entry among the
//! `descriptors` of the file, the next one among the `descriptors` of the rule that was found, and
//! so on. The rule of the **last** entry has the limit. A descriptor with more entries than there
//! are levels has none. So give a request one descriptor for each of its limits. Give it another
//! one for its class, where no other descriptor has that entry. [`RuleSet::find`] has the details.
//!
//! The name of a policy is the `name` of the limit, or else the path of the descriptor, with the
//! period for one of several `limits`. A name of more than 64 characters, or with others than
//! `A-Z a-z 0-9 - _ . /`, is changed and ends in a digest. Clients see the name in header fields,
//! and the counters belong to it. So a rule whose amount changes continues its counters.
//!
//! Without a time zone, windows start at multiples of their length since the Unix epoch, in UTC,
//! and a month has 30 days. With one, they are periods of the calendar: a day from local midnight,
//! a week from Monday, a month from its first day. Write `time_zone: UTC` for calendar months in
//! UTC.
//!
//! # Leases
//!
//! A limit with `lease: true` is [leased](tollgate::Policy::leased): a replica takes units of a
//! busy counter in advance, and spends them without a call to Redis.
//! `lease: {generation: 2s, share: 16}` sets the terms of the [`Lease`](tollgate::Lease). Of
//! several `limits`, all are leased, or none. A leased limit is not decided in one step with limits
//! that are not leased. A limit that becomes leased begins with fresh counters. A domain with a
//! leased limit that is ranked must not have a class with a `ceiling` below 100%, because units
//! that are taken in advance have no priority.
//!
//! # Fair shares
//!
//! With `fair_shares: {key: tenant}`, each tenant gets the same share of every limit that tenants
//! share: see [`LimiterBuilder::fair_shares`](tollgate::LimiterBuilder::fair_shares). The tenant of
//! a request is the value of its first entry with this key. Requests without one have the share of
//! one tenant together. Limits that are shared are buckets with a `burst` of 10 or more, and not
//! leased. A limit below an entry `tenant` belongs to one tenant, and says `unranked: true`.
//!
//! # Networks
//!
//! ```yaml
//! networks:
//!   allow: [10.0.0.0/8, 192.0.2.7]   # never limited
//!   deny: ['2001:db8:bad::/48']      # never served
//!   deny_file: blocked.txt           # one network in each line, comments after #
//! ```
//!
//! `allow_file` is the same for allowed networks. A relative path begins at the directory of the
//! rules. The files are watched (`Rules::watch`) and reloaded together with the rules, and a
//! mistake in them refuses the load. When several networks contain an address, the smallest one
//! decides.
//!
//! A layer reads the address of the client with `ClientIp`, and answers a denied client with 403. A
//! [`RuleLimiter`] and the service for Envoy read the entry `remote_address` of the descriptors,
//! and deny the request. An allowed or denied request spends nothing. In shadow mode of a layer, a
//! denied client passes.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `calendar` | yes | the fields `time_zone` and `begins`: windows of the calendar |
//! | `toml` | yes | files that end in `.toml` |
//! | `watch` | yes | `Rules::watch` and `Rules::reload_on_hangup` |
//! | `metrics` | no | the [metrics](#metrics) below, through the `metrics` facade |
//! | `http` | no | `Descriptors`, made from the heads of HTTP and gRPC requests, and `RequestRules`, the limits of a layer |
//! | `axum` | no | `http`, with the matched route and the peer's address of axum |
//! | `tonic` | no | `http`, with the peer's address of tonic |
//! | `spring` | no | `spring`, which converts the file of a Spring Cloud Gateway; for tools, not for services |
//!
//! # Metrics
//!
//! With the feature `metrics`, [`RuleLimiter`] counts the units of each rule, and [`Rules`] counts
//! its loads. Install the recorder before the rules are loaded. The label `rule` is the [name of
//! the rule](Rule::metric_name) in the file: no label value comes from a request. The first 1000
//! names of a [`Rules`] have counters of their own, and all further names are counted as `other`.
//! Limits that requests bring along ([`LimitOverride`]) are counted as `override`. [`Usage`]
//! explains *within*, *near* and *over*, which mean the same in Envoy's service.
//!
//! | metric | labels | meaning |
//! |---|---|---|
//! | `tollgate_rule_units_total` | `rule` | units that requests asked for |
//! | `tollgate_rule_units_within_total` | `rule` | units of checks within the limit |
//! | `tollgate_rule_units_near_total` | `rule` | units above four fifths of the limit, and not over it |
//! | `tollgate_rule_units_over_total` | `rule` | units over the limit, those in shadow mode included |
//! | `tollgate_rule_units_shadow_total` | `rule` | units over the limit that passed, because the rule is in shadow mode or not enforced for the key |
//! | `tollgate_rule_loads_total` | `outcome` | loads of rules: `succeeded` or `failed` |
//! | `tollgate_rules_refused` | | 1 while the files are refused and older rules are in force, 0 otherwise |
//! | `tollgate_rules_since_timestamp_seconds` | | the Unix time since which the rules in force have their content, so `time()` minus it is their age |
//!
//! [`RuleLimiterBuilder::denied_keys`] shows which keys are denied most.

// Nothing but re-exports and the pages for users stands here: each room has its own folder or file.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "http")]
mod actions;
mod compat;
mod compile;
mod descriptor;
mod document;
mod error;
mod fair_shares;
mod limiter;
mod lint;
mod load;
mod matching;
mod metrics;
mod names;
#[cfg(feature = "http")]
mod networks;
mod pattern;
mod priority;
mod reload;
mod rule;
mod rule_set;
mod selector;
#[cfg(feature = "spring")]
pub mod spring;
mod unit;
mod verdict;

#[cfg(feature = "http")]
pub use actions::{Actions, ClientIp, Descriptors, HeaderMatch, RequestPart};

pub use compat::Compat;
pub use compile::RuleSetBuilder;
pub use descriptor::{Descriptor, DescriptorEntry, LimitOverride};
pub use document::{Format, Limits};
pub use error::{RuleError, RuleErrorKind, RuleErrors};
#[cfg(feature = "http")]
pub use limiter::RequestRules;
pub use limiter::{CheckError, RuleDecision, RuleLimiter, RuleLimiterBuilder};
pub use lint::{RuleWarning, RuleWarningKind};
pub use matching::{Attempt, AttemptOutcome, Explanation, LevelTrace, Match};
pub use metrics::Usage;
pub use priority::PriorityClass;
#[cfg(feature = "watch")]
pub use reload::ReloadGuard;
pub use reload::{LoadCounts, Rules};
pub use rule::{Limit, Rule, RuleMetadata};
pub use rule_set::{RuleSet, level::MatchedBy};
pub use unit::{Unit, UnknownUnit};
pub use verdict::{
    Code, CurrentLimit, DescriptorOutcome, GlobalModes, Plan, Planned, RequestError, Status,
    Treatment, Verdict,
};

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
