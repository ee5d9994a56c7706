//! Makes sources of Redis of the settings that Envoy's service has.
//! A URL in Tollgate's own form is read by the core, in `tollgate-redis/src/url_options.rs`.

use tollgate::redis::RedisSource;

use super::{
    arguments::{RedisType, SocketType, StoreArguments},
    failure::Failure,
};

/// A source, and the URL with user, password and TLS of servers that Sentinels name.
pub(crate) struct Source {
    pub(crate) source: RedisSource,
    pub(crate) server_url: Option<String>,
}

/// Returns the source at an address. No message shows the address: it may have a password.
pub(crate) fn source(address: &str, settings: &StoreArguments) -> Result<Source, Failure> {
    let user = user_part(&settings.redis_auth);
    let scheme = if settings.redis_tls {
        "rediss"
    } else {
        "redis"
    };
    let places: Vec<_> = address
        .split(',')
        .map(|place| place.trim())
        .filter(|place| !place.is_empty())
        .collect();
    let plain = |source: String| Source {
        source: source.into(),
        server_url: None,
    };
    match settings.redis_type {
        RedisType::Single if address.contains("://") => Ok(plain(with_user(address, &user))),
        RedisType::Single
            if settings.redis_socket_type == SocketType::Unix && address.starts_with('/') =>
        {
            let credentials = credentials(&settings.redis_auth);
            let pass = credentials.as_ref().map(|(user, password)| match user {
                Some(user) => format!("?user={}&pass={}", encoded(user), encoded(password)),
                None => format!("?pass={}", encoded(password)),
            });
            Ok(plain(format!(
                "redis+unix://{address}{}",
                pass.unwrap_or_default()
            )))
        }
        RedisType::Single => Ok(plain(format!("{scheme}://{user}{address}"))),
        RedisType::Cluster => {
            let nodes: Vec<_> = places.iter().map(|place| bare(place)).collect();
            // A URL for each node has the user of the first one.
            let first = places
                .first()
                .and_then(|place| place.split_once("://"))
                .and_then(|(_, rest)| rest.rsplit_once('@'));
            let user = if user.is_empty() {
                first
                    .map(|(user, _)| format!("{user}@"))
                    .unwrap_or_default()
            } else {
                user
            };
            Ok(plain(format!(
                "{scheme}+cluster://{user}{}",
                nodes.join(",")
            )))
        }
        RedisType::Sentinel => {
            let [master, sentinels @ ..] = places.as_slice() else {
                return Err(no_sentinels());
            };
            if sentinels.is_empty() {
                return Err(no_sentinels());
            }
            let own = user_part(&settings.redis_sentinel_auth);
            let urls = sentinels
                .iter()
                .map(|place| format!("{scheme}://{own}{}", bare(place)));
            let source = RedisSource::sentinel(urls.collect::<Vec<_>>(), *master);
            let server_url = (!user.is_empty() || settings.redis_tls)
                .then(|| format!("{scheme}://{user}server"));
            Ok(Source { source, server_url })
        }
    }
}

fn no_sentinels() -> Failure {
    Failure::new("--redis-url must be MASTER,SENTINEL,SENTINEL… with --redis-type SENTINEL")
}

/// Returns the user and the password of `USER:PASSWORD` or `PASSWORD`.
fn credentials(auth: &str) -> Option<(Option<&str>, &str)> {
    if auth.is_empty() {
        return None;
    }
    Some(
        auth.split_once(':')
            .map_or((None, auth), |(user, password)| (Some(user), password)),
    )
}

/// Returns the part of a URL before the host: `user:password@`, or nothing.
fn user_part(auth: &str) -> String {
    let part = |(user, password): (Option<&str>, &str)| {
        format!(
            "{}:{}@",
            encoded(user.unwrap_or_default()),
            encoded(password)
        )
    };
    credentials(auth).map(part).unwrap_or_default()
}

/// Adds the user to a URL that has none.
fn with_user(url: &str, user: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) if !rest.contains('@') => format!("{scheme}://{user}{rest}"),
        _ => url.to_owned(),
    }
}

/// Returns an address without scheme and user.
fn bare(place: &str) -> &str {
    let place = place.split_once("://").map_or(place, |(_, rest)| rest);
    place
        .rsplit_once('@')
        .map_or(place, |(_, place)| place)
        .trim_end_matches('/')
}

/// Percent-encodes all but letters and digits.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::command::arguments::Arguments;

    fn shown(arguments: &[&str]) -> Result<String, String> {
        let arguments = [&["tollgate-envoy"], arguments].concat();
        let settings = Arguments::try_parse_from(arguments)
            .unwrap_or_else(|error| panic!("{error}"))
            .store;
        let address = settings.redis_url.clone().unwrap();
        let made = source(&address, &settings).map_err(|failure| failure.to_string())?;
        let source = format!("{:?} {:?}", made.source, made.server_url);
        Ok(source)
    }

    /// A source shows nothing of its URL, so the text is tested.
    #[test]
    fn users_and_passwords_are_encoded() {
        assert_eq!(user_part("p@ss:w/rd"), "p%40ss:w%2Frd@");
        assert_eq!(user_part("secret"), ":secret@");
        assert_eq!(user_part(""), "");
        assert_eq!(with_user("redis://h:1", ":p@"), "redis://:p@h:1");
        assert_eq!(with_user("redis://u:q@h:1", ":p@"), "redis://u:q@h:1");
        assert_eq!(bare("redis://u:p@h:1/"), "h:1");
    }

    #[test]
    fn each_form_makes_a_source() {
        for arguments in [
            &["--redis-url=h:1", "--redis-socket-type=tcp"][..],
            &["--redis-url=/run/redis.sock", "--redis-auth=p"],
            &[
                "--redis-url=h:1,i:2",
                "--redis-type=cluster",
                "--redis-auth=u:p",
            ],
            &[
                "--redis-url=limits,h:1,i:2",
                "--redis-type=SENTINEL",
                "--redis-auth=p",
            ],
        ] {
            assert!(shown(arguments).is_ok(), "{arguments:?}");
        }
        assert!(
            shown(&["--redis-url=limits", "--redis-type=SENTINEL"])
                .unwrap_err()
                .contains("MASTER,SENTINEL")
        );
    }
}
