//! The options of a store of several regions that stand in its two URLs, so that two variables do.
//! Those that each server has are read in `tollgate-redis`, and what the options do is in `builder.rs`.

use std::time::Duration;

use tollgate_core::{Error, Quota};

use crate::{Durability, RegionalStore, RegionalStoreBuilder};

impl RegionalStore {
    /// Returns a builder for a store that two URLs name, with the options that stand in them: that of
    /// the server of the region, and that of the home.
    ///
    /// Take it where a service is set up by variables. Each URL may have the options of a
    /// [`RedisStore`](tollgate_redis::RedisStore), such as `prefix`, and:
    ///
    /// | option | of the URL | sets |
    /// |---|---|---|
    /// | `region=eu` | of the region | [`region`](RegionalStoreBuilder::region) |
    /// | `replicas=1` | of the home | [`Durability::Replicas`] |
    /// | `durability=trust` | of the home | [`Durability::Trust`] |
    /// | `round_trip=80ms` | of the home | [`round_trip`](RegionalStoreBuilder::round_trip) |
    ///
    /// ```
    /// use tollgate_regions::RegionalStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate_core::Error> {
    /// let local = "redis://eu.example/?prefix=shop&region=eu";
    /// let home = "redis+sentinel://us-1.example,us-2.example/limits?prefix=shop&replicas=1&round_trip=80ms";
    /// assert!(RegionalStore::builder_from_urls(local, home)?.build().is_ok());
    ///
    /// let unnamed = RegionalStore::builder_from_urls("redis://eu.example/", home)?.build();
    /// assert_eq!(unnamed.unwrap_err().to_string(), "the region has no name");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](tollgate_core::ErrorKind::Config) when the value of an option is not
    /// valid. [`build`](RegionalStoreBuilder::build) reports the rest.
    pub fn builder_from_urls(
        local: impl AsRef<str>,
        home: impl AsRef<str>,
    ) -> Result<RegionalStoreBuilder, Error> {
        let (local, [region]) = taken(local.as_ref(), ["region"]);
        let names = ["replicas", "durability", "round_trip"];
        let (home, [replicas, durability, round_trip]) = taken(home.as_ref(), names);
        let mut builder = Self::builder(local, home);
        if let Some(region) = region {
            builder = builder.region(region);
        }
        if let Some(durability) = guard(replicas.as_deref(), durability.as_deref())? {
            builder = builder.durability(durability);
        }
        if let Some(text) = round_trip {
            builder = builder.round_trip(time(&text)?);
        }
        Ok(builder)
    }
}

/// Takes options out of the query of a URL. Returns the URL without them, and their values.
///
/// A query in which a part of a password may stand is left as it is: the client refuses it, and
/// shows nothing of it.
fn taken<const N: usize>(url: &str, names: [&str; N]) -> (String, [Option<String>; N]) {
    let mut values = [const { None }; N];
    let (rest, fragment) = url.split_at(url.find('#').unwrap_or(url.len()));
    let Some((base, query)) = rest.split_once('?') else {
        return (url.to_owned(), values);
    };
    if query.contains(['@', '/', ':']) {
        return (url.to_owned(), values);
    }
    let mut left = Vec::new();
    for option in query.split('&') {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match names.iter().position(|known| *known == name) {
            Some(place) => values[place] = Some(value.to_owned()),
            None => left.push(option),
        }
    }
    let query = match left.is_empty() {
        true => String::new(),
        false => format!("?{}", left.join("&")),
    };
    (format!("{base}{query}{fragment}"), values)
}

fn guard(replicas: Option<&str>, durability: Option<&str>) -> Result<Option<Durability>, Error> {
    match (replicas, durability) {
        (Some(count), None) => match count.parse() {
            Ok(count) => Ok(Some(Durability::Replicas(count))),
            Err(_) => Err(Error::config(format!(
                "the option replicas of the home's URL must be a number, got {count:?}"
            ))),
        },
        (None, Some("trust")) => Ok(Some(Durability::Trust)),
        (None, None) => Ok(None),
        (None, Some(other)) => Err(Error::config(format!(
            "the option durability of the home's URL must be trust, got {other:?}"
        ))),
        (Some(_), Some(_)) => Err(Error::config(
            "the home's URL has the options replicas and durability, expected one of them",
        )),
    }
}

fn time(text: &str) -> Result<Duration, Error> {
    Quota::parse_period(text).map_err(|error| {
        Error::config(format!(
            "the option round_trip of the home's URL must be a time as in 80ms: {error}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "redis://127.0.0.1:1/?region=eu";

    fn refused(local: &str, home: &str) -> String {
        let built = RegionalStore::builder_from_urls(local, home).and_then(|it| it.build());
        built.map(drop).expect_err("a wrong option").to_string()
    }

    #[test]
    fn options_are_taken_and_all_others_stay_in_the_url() {
        let (url, [region]) = taken(
            "redis://u:p@h/1?prefix=a&region=eu&protocol=resp3#x",
            ["region"],
        );
        assert_eq!(url, "redis://u:p@h/1?prefix=a&protocol=resp3#x");
        assert_eq!(region.as_deref(), Some("eu"));
        for url in ["redis://h", "redis://:p?region=x@h", "redis://h?db=1"] {
            assert_eq!(taken(url, ["region"]), (url.to_owned(), [None]), "{url}");
        }
    }

    #[test]
    fn the_guard_of_the_home_is_one_of_two_options() {
        let of = |one, other| guard(one, other).expect("a guard");
        assert_eq!(of(Some("2"), None), Some(Durability::Replicas(2)));
        assert_eq!(of(None, Some("trust")), Some(Durability::Trust));
        assert_eq!(of(None, None), None);
    }

    #[test]
    fn a_wrong_option_is_refused_by_its_name_and_its_value() {
        let home = |query: &str| format!("redis://127.0.0.1:1/?{query}");
        for (query, reason) in [
            (
                "replicas=all",
                "replicas of the home's URL must be a number, got \"all\"",
            ),
            ("replicas=0", "durability names no replica"),
            ("durability=drain", "must be trust, got \"drain\""),
            ("replicas=1&durability=trust", "expected one of them"),
            ("replicas=1&round_trip=fast", "must be a time as in 80ms"),
            ("replicas=1&round_trip=11s", "at most 10s, got 11s"),
            ("replicas=1&region=eu", "unknown option"),
            ("", "durability is not set"),
        ] {
            let error = refused(LOCAL, &home(query));
            assert!(error.contains(reason), "{query}: {error}");
        }
        let error = refused("redis://:hunter2?region=eu@h", &home("replicas=1"));
        assert!(!error.contains("hunter2"), "{error}");
    }
}
