use http::HeaderMap;

use super::{
    told::{append, remaining_in},
    *,
};

#[test]
fn seconds_are_rounded_up() {
    assert_eq!(seconds(Duration::ZERO), 0);
    assert_eq!(seconds(Duration::from_micros(1)), 1);
    assert_eq!(seconds(Duration::from_secs(1)), 1);
    assert_eq!(seconds(Duration::from_micros(1_000_001)), 2);
}

#[test]
fn members_are_added_to_all_lines_that_are_there() {
    let mut headers = HeaderMap::new();
    headers.append(RATELIMIT, HeaderValue::from_static(r#""a";r=1"#));
    headers.append(RATELIMIT, HeaderValue::from_static(r#""b";r=2"#));
    append(&mut headers, RATELIMIT, HeaderValue::from_static(r#""c";r=3"#));
    assert_eq!(headers.get_all(RATELIMIT).iter().collect::<Vec<_>>(), [r#""a";r=1, "b";r=2, "c";r=3"#]);
}

#[test]
fn what_is_left_is_found_in_every_dialect_of_single_values() {
    for (name, value, expected) in [
        ("x-ratelimit-remaining", "7", Some(7)),
        ("ratelimit-remaining", " 7 ", Some(7)),
        ("ratelimit", "limit=20, remaining=7, reset=1", Some(7)),
        ("ratelimit", r#""burst";r=7;t=1"#, None),
        ("x-ratelimit-remaining", "many", None),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        assert_eq!(remaining_in(&headers), expected, "{name}: {value}");
    }
}
