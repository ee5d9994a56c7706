//! The options of a store that stand in its URL.
//! The rest of a URL is read in `source.rs`, or by the client library.

use std::time::Duration;

use tollgate_core::{Error, Quota};

/// The options of a store that stand in its URL, as in `redis://host/?prefix=shop`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UrlOptions {
    pub(super) prefix: Option<String>,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) deny_cache_cap: Option<Duration>,
}

const EXPECTED: &str = "expected prefix, connect_timeout, deny_cache_cap or protocol";

impl UrlOptions {
    /// Takes the options out of a URL. Those of the client stay in it.
    ///
    /// An option that is not known is refused with its name and its value. Nothing is shown where a
    /// part of a password may stand in the query: a password that is not percent-encoded may
    /// contain a question mark, or a number sign. What stands before it would count as host and
    /// port, which errors show.
    pub(super) fn take_from(url: &str) -> Result<(String, Self), Error> {
        let (url, fragment) = url.split_at(url.find('#').unwrap_or(url.len()));
        if fragment.contains(['@', '/', ':']) {
            return Err(unreadable());
        }
        let Some((base, query)) = url.split_once('?') else {
            return Ok((format!("{url}{fragment}"), Self::default()));
        };
        if query.contains(['@', '/', ':']) {
            return Err(unreadable());
        }
        let has_socket = base.starts_with("unix:") || base.starts_with("redis+unix:");
        let (mut options, mut left) = (Self::default(), Vec::new());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                "prefix" => options.prefix = Some(plain(name, value)?),
                "connect_timeout" => options.connect_timeout = Some(duration(name, value)?),
                "deny_cache_cap" => options.deny_cache_cap = Some(duration(name, value)?),
                "protocol" => left.push(option),
                "db" | "user" | "pass" if has_socket => left.push(option),
                _ => {
                    let is_secret = ["pass", "secret", "token", "auth"]
                        .iter()
                        .any(|part| name.contains(part));
                    let got = if is_secret {
                        name.to_owned()
                    } else {
                        format!("{name}={value}")
                    };
                    return Err(Error::config(format!(
                        "the redis URL has an unknown option, {EXPECTED}, got {got:?}"
                    )));
                }
            }
        }
        let query = if left.is_empty() {
            String::new()
        } else {
            format!("?{}", left.join("&"))
        };
        Ok((format!("{base}{query}{fragment}"), options))
    }

    /// Refuses the options of the store in a URL that is not the only one: two could differ. Those
    /// of the client may stay.
    pub(super) fn refuse_in(url: &str) -> Result<(), Error> {
        let (_, options) = Self::take_from(url)?;
        let Some(name) = options.first() else {
            return Ok(());
        };
        Err(Error::config(format!(
            "the option {name} must not stand in server_url, or in a URL of a list: set \
             RedisStoreBuilder::{name}, or use one redis+sentinel:// or redis+cluster:// URL"
        )))
    }

    /// Returns the name of the first option that is set.
    fn first(&self) -> Option<&'static str> {
        let Self {
            prefix,
            connect_timeout,
            deny_cache_cap,
        } = self;
        let prefix = prefix.as_ref().map(|_| "prefix");
        prefix
            .or(connect_timeout.map(|_| "connect_timeout"))
            .or(deny_cache_cap.map(|_| "deny_cache_cap"))
    }
}

/// Reports a URL that is not valid. Shows neither the URL nor the words of the parser: both may
/// contain a password.
pub(super) fn unreadable() -> Error {
    Error::config(
        "the redis URL is not valid: expected redis://[user:password@]host[:port][/db], rediss://…, \
         redis+unix:///path, redis+sentinel://host,host/master or redis+cluster://host,host",
    )
}

/// Reports a URL that is not valid, and names the part that is wrong where that is the port or the
/// database. Shows neither: where a host is missing, the password stands in the place of the port.
pub(super) fn unreadable_part(url: &str) -> Error {
    let of_part = |part| Error::config(format!("the redis URL is not valid: {part}"));
    let Some((scheme, rest)) = url.split_once("://") else {
        return unreadable();
    };
    let (rest, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    if scheme.contains("unix") {
        let mut options = query.trim_start_matches('?').split('&');
        let is_wrong = |option: &str| {
            let db = option.strip_prefix("db=");
            db.is_some_and(|db| db.parse::<i64>().is_err())
        };
        return match options.any(is_wrong) {
            true => of_part("its option db must be a number"),
            false => unreadable(),
        };
    }
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    // A password with a slash that is not percent-encoded ends here.
    if database.contains('@') {
        return unreadable();
    }
    let host = authority.rsplit('@').next().unwrap_or_default();
    // A colon in brackets belongs to an IPv6 address.
    let port = host.rsplit(']').next().and_then(|end| end.rsplit_once(':'));
    if port.is_some_and(|(_, port)| port.parse::<u16>().is_err()) {
        return of_part("its port must be a number of 1 to 65535");
    }
    let database = database.trim_end_matches('/');
    match !database.is_empty() && database.parse::<i64>().is_err() {
        true => of_part("its database must be a number, as in redis://host:6379/1"),
        false => unreadable(),
    }
}

/// Returns a value that is taken as it stands.
fn plain(name: &str, value: &str) -> Result<String, Error> {
    match value.contains('%') {
        true => Err(Error::config(format!(
            "the option {name} of the redis URL must have no %, got {value:?}"
        ))),
        false => Ok(value.to_owned()),
    }
}

/// Reads a duration such as `500ms`. `0` is zero.
fn duration(name: &str, value: &str) -> Result<Duration, Error> {
    if value == "0" {
        return Ok(Duration::ZERO);
    }
    Quota::parse_period(value).map_err(|error| {
        Error::config(format!(
            "the option {name} of the redis URL must be a time as in 500ms: {error}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::ErrorKind;

    fn taken(url: &str) -> (String, UrlOptions) {
        UrlOptions::take_from(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn options_of_the_store_are_taken_and_those_of_the_client_stay() {
        let all = "rediss://u:p@h:1/2?prefix=shop&protocol=resp3&connect_timeout=500ms&deny_cache_cap=0#insecure";
        let options = UrlOptions {
            prefix: Some("shop".to_owned()),
            connect_timeout: Some(Duration::from_millis(500)),
            deny_cache_cap: Some(Duration::ZERO),
        };
        assert_eq!(
            taken(all),
            (
                "rediss://u:p@h:1/2?protocol=resp3#insecure".to_owned(),
                options
            )
        );
        for url in [
            "redis://h",
            "redis://h/1#insecure",
            "redis+unix:///s?db=1&user=u&pass=p",
        ] {
            assert_eq!(taken(url), (url.to_owned(), UrlOptions::default()));
        }
        assert_eq!(
            taken("redis+cluster://a,b?prefix=x").0,
            "redis+cluster://a,b"
        );
    }

    #[test]
    fn an_option_of_the_store_is_refused_by_its_name_in_a_url_of_a_list() {
        for (name, value) in [
            ("prefix", "shop"),
            ("connect_timeout", "2s"),
            ("deny_cache_cap", "0"),
        ] {
            let url = format!("redis://:hunter2@h?protocol=resp3&{name}={value}");
            let message = UrlOptions::refuse_in(&url).unwrap_err().to_string();
            assert!(
                message.starts_with(&format!("the option {name} must not stand in server_url"))
                    && message.contains(&format!("set RedisStoreBuilder::{name}")),
                "{message}"
            );
        }
        assert!(UrlOptions::refuse_in("redis://h?prefx=shop").is_err());
        for url in ["redis://h?protocol=resp3", "unix:///s?db=1&user=u&pass=p"] {
            assert!(UrlOptions::refuse_in(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn a_wrong_port_or_database_is_named_and_no_part_of_the_url_is_shown() {
        let (port, database) = (
            "its port must be a number of 1 to 65535",
            "its database must be a number, as in redis://host:6379/1",
        );
        for (url, part) in [
            ("redis://h:hunter2", port),
            ("redis://u:p@h:hunter2/1", port),
            ("redis://u:p@h:65536?protocol=resp3", port),
            ("rediss://[::1]:hunter2", port),
            ("redis://h/hunter2", database),
            ("redis://u:p@h:1/hunter2?protocol=resp3", database),
            ("redis://[::1]:7/1x", database),
            (
                "redis+unix:///s?user=u&db=hunter2",
                "its option db must be a number",
            ),
        ] {
            let error = unreadable_part(url);
            let expected = format!("the redis URL is not valid: {part}");
            assert_eq!(
                (error.kind(), error.to_string()),
                (ErrorKind::Config, expected)
            );
        }
        for url in [
            "redis://u:hunter2/x@h",
            "redis://:hunter2@[::1",
            "redis+unix:///s?db=1",
            "redis://h:1/1",
            "hunter2",
        ] {
            assert_eq!(
                unreadable_part(url).to_string(),
                unreadable().to_string(),
                "{url}"
            );
        }
    }

    #[test]
    fn an_unknown_option_is_refused_with_its_name_and_value_and_no_secret_is_shown() {
        let message = |url: &str| UrlOptions::take_from(url).unwrap_err().to_string();
        assert_eq!(
            message("redis://h/?prefx=shop"),
            "the redis URL has an unknown option, expected prefix, connect_timeout, deny_cache_cap or protocol, got \"prefx=shop\""
        );
        assert!(
            message("redis://h?connect_timeout=soon")
                .contains("the option connect_timeout of the redis URL")
        );
        assert!(message("redis://h?prefix=a%20b").ends_with("must have no %, got \"a%20b\""));
        for url in [
            "redis://h?password=hunter2",
            "redis://u:p?hunter2@h/",
            "redis://u:p?a=hunter2@h",
            "redis://h?pass=hunter2",
        ] {
            assert!(!message(url).contains("hunter2"), "{}", message(url));
        }
    }
}
