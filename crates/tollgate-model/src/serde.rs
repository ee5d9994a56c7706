//! Serializes values as their text.
//! The texts are read and written where the values are defined, such as `quota/text/`.

use std::{fmt, marker::PhantomData, str::FromStr};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

use crate::{Algorithm, Quota};

/// Reads a value from its text.
struct FromText<T> {
    expected: &'static str,
    value: PhantomData<T>,
}

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for FromText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! as_text {
    ($type:ty, $expected:literal, $serialize:literal, $deserialize:literal) => {
        impl Serialize for $type {
            #[doc = $serialize]
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            #[doc = $deserialize]
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(FromText {
                    expected: $expected,
                    value: PhantomData,
                })
            }
        }
    };
}

as_text!(
    Quota,
    "a quota such as \"100/min burst 20\"",
    "Serializes the quota as its text.",
    "Deserializes the quota from its text."
);
as_text!(
    Algorithm,
    "the name of an algorithm such as \"token_bucket\"",
    "Serializes the algorithm as its name.",
    "Deserializes the algorithm from its name."
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_serialized_as_their_text() {
        let quota = Quota::per_minute(100).with_burst(20);
        assert_eq!(
            serde_json::to_string(&quota).unwrap(),
            r#""100/min burst 20""#
        );
        assert_eq!(
            serde_json::from_str::<Quota>(r#""100\/min burst 20""#).unwrap(),
            quota
        );
        let buckets = Algorithm::SlidingBuckets { buckets: 6 };
        assert_eq!(
            serde_json::to_string(&buckets).unwrap(),
            r#""sliding_buckets(6)""#
        );
        assert_eq!(
            serde_json::from_str::<Algorithm>(r#""sliding_buckets(6)""#).unwrap(),
            buckets
        );
    }

    #[test]
    fn another_type_or_text_is_refused_with_what_is_right() {
        let error = serde_json::from_str::<Quota>("100")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(r#"expected a quota such as "100/min burst 20""#),
            "{error}"
        );
        let error = serde_json::from_str::<Quota>(r#""100""#)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(
                r#"quota "100", character 4: expected a slash, as in 100/min, got the end"#
            ),
            "{error}"
        );
    }
}
