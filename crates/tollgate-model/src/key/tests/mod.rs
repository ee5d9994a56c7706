mod branches;

use std::net::{IpAddr, Ipv4Addr};

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Bytes(Vec<u8>),
    Number(u64),
    Address(IpAddr),
}

fn encode(parts: &[Part]) -> Key {
    let one = |part: &Part| match part {
        Part::Bytes(bytes) => Key::bytes(bytes),
        Part::Number(number) => Key::from(*number),
        Part::Address(address) => Key::from(*address),
    };
    parts[1..]
        .iter()
        .fold(one(&parts[0]), |key, part| key.join(one(part)))
}

fn decode(text: &str) -> Vec<Part> {
    text.split(',')
        .map(|part| match part.as_bytes() {
            b"%" => Part::Bytes(Vec::new()),
            [b'#', ..] => Part::Number(part[1..].parse().unwrap()),
            [b'*', ..] => Part::Address(part[1..].parse().unwrap()),
            _ => {
                let (mut bytes, mut rest) = (Vec::new(), part.as_bytes());
                while let [first, tail @ ..] = rest {
                    rest = tail;
                    bytes.push(if *first == b'%' {
                        rest = &tail[2..];
                        u8::from_str_radix(std::str::from_utf8(&tail[..2]).unwrap(), 16).unwrap()
                    } else {
                        *first
                    });
                }
                Part::Bytes(bytes)
            }
        })
        .collect()
}

fn encode_levels(levels: &[Vec<Part>]) -> Key {
    levels[1..]
        .iter()
        .fold(encode(&levels[0]), |key, level| key.child(encode(level)))
}

fn decode_levels(text: &str) -> Vec<Vec<Part>> {
    text.split('>').map(decode).collect()
}

fn levels() -> impl Strategy<Value = Vec<Vec<Part>>> {
    prop::collection::vec(prop::collection::vec(part(), 1..3), 1..=MAX_LEVELS)
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..8).prop_map(Part::Bytes),
        "[a-z{},%#*~!()>^ .:]{0,8}".prop_map(|text| Part::Bytes(text.into_bytes())),
        any::<u64>().prop_map(Part::Number),
        any::<u32>().prop_map(|bits| Part::Address(IpAddr::V4(bits.into()))),
    ]
}

proptest! {
    #[test]
    fn decoding_returns_the_parts(parts in prop::collection::vec(part(), 1..4)) {
        let key = encode(&parts);
        if !key.encoded().starts_with('!') {
            prop_assert_eq!(decode(key.encoded()), parts);
        }
    }

    #[test]
    fn the_text_is_short_and_cannot_choose_the_hash_slot(parts in prop::collection::vec(part(), 1..9)) {
        let key = encode(&parts);
        prop_assert!((1..=64).contains(&key.encoded().len()));
        let safe = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
        prop_assert!(key.encoded().bytes().all(safe));
    }
}

proptest! {
    /// A part that is written behind the text of a key gives the key that is made of the whole text.
    #[test]
    fn parts_that_fit_in_place_are_joined_as_any_others(
        parts in prop::collection::vec(part(), 1..4),
        others in prop::collection::vec(part(), 1..4),
        long in 0..70_usize,
    ) {
        let text = "x".repeat(long + 1);
        for part in [encode(&others), Key::new(text), encode(&others).join("y".repeat(long + 1))] {
            let key = encode(&parts);
            let (whole, joined) = (key.clone().joined(part.as_bytes()), key.join(part));
            prop_assert_eq!(joined.encoded(), whole.encoded());
            prop_assert_eq!((joined.text, joined.len, joined.levels), (whole.text, whole.len, whole.levels));
        }
    }

    #[test]
    fn decoding_returns_the_levels(levels in levels()) {
        let key = encode_levels(&levels);
        prop_assert_eq!(key.levels(), levels.len());
        let is_digest = |level: &str| level.starts_with('!');
        if !key.encoded().split('>').any(is_digest) {
            prop_assert_eq!(decode_levels(key.encoded()), &levels[..]);
        }
        let texts: Vec<_> = key.each_level().map(<[u8]>::to_vec).collect();
        prop_assert_eq!(texts, levels.iter().map(|level| encode(level).as_bytes().to_vec()).collect::<Vec<_>>());
    }

    #[test]
    fn the_outer_levels_of_a_key_are_the_key_of_these_levels(levels in levels()) {
        let key = encode_levels(&levels);
        let mut parent = Some(key.clone());
        for count in (1..=levels.len()).rev() {
            let outer = encode_levels(&levels[..count]);
            prop_assert_eq!(parent.as_ref(), Some(&outer));
            prop_assert_eq!(key.level(count as u8).as_bytes(), outer.as_bytes());
            prop_assert_eq!(outer.outermost().to_vec(), encode(&levels[0]).as_bytes().to_vec());
            parent = parent.and_then(|key| key.parent());
        }
        prop_assert_eq!(parent, None);
        prop_assert_eq!(key.level(0).as_bytes(), key.as_bytes());
        let safe = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
        prop_assert!(key.encoded().bytes().all(safe));
    }
}

#[test]
fn a_part_beyond_four_levels_is_joined_to_the_innermost() {
    let four = Key::new("a").child("b").child("c").child("d");
    assert_eq!(four.clone().child("e").encoded(), "a>b>c>d,e");
    assert_eq!(four.clone().child("e"), four.join("e"));
    let nested = Key::new("d").child("e");
    assert_eq!(
        Key::new("a").child("b").child("c").child(nested).encoded(),
        "a>b>c>d,e"
    );
}

#[test]
fn parts_are_joined_to_the_innermost_level_and_levels_stay() {
    let nested = Key::new("a").child(("b", "c"));
    assert_eq!(nested.encoded(), "a>b,c");
    assert_eq!(nested.clone().join("d").encoded(), "a>b,c,d");
    assert_eq!(Key::from((nested.clone(), "d")).encoded(), "a>(b,c),d");
    assert_eq!(Key::new("GET").join(nested.clone()).encoded(), "GET,a>b,c");
    assert_eq!(Key::from(("GET", nested)).levels(), 2);
}

#[test]
fn each_level_has_a_text_of_at_most_64_bytes() {
    let long = "x".repeat(64);
    let key = Key::new(&long).child(&long).child(&long).child(&long);
    assert_eq!(key.encoded(), [&*long; 4].join(">"));
    let copy = key.clone();
    assert!(copy == key && copy.parent() != Some(key.clone()) && copy.parent().is_some());
    assert_eq!(
        key.join("more")
            .each_level()
            .map(<[u8]>::len)
            .collect::<Vec<_>>(),
        [64, 64, 64, 42]
    );
}

#[test]
fn a_secret_is_a_level_of_its_own_digest() {
    let secret = KeySecret::new("pepper");
    let key = Key::new("acme").child(Key::secret("sk_live", &secret));
    assert_eq!(
        key.encoded(),
        format!("acme>{}", Key::secret("sk_live", &secret).encoded())
    );
    assert_eq!(format!("{key:?}"), "Key(..)");
}

#[test]
fn keys_of_different_parts_differ() {
    let keys = [
        Key::from(("ab", "c")),
        Key::from(("a", "bc")),
        Key::from(("a.b", "c")),
        Key::from(("a", "b.c")),
        Key::from("a,b"),
        Key::from(("a", "b")),
        Key::from(("a", "b", "c")),
        Key::from(("a", ("b", "c"))),
        Key::from((("a", "b"), "c")),
        Key::from("(a,b)"),
        Key::from(""),
        Key::from(("", "")),
        Key::from("%"),
        Key::from("7"),
        Key::from(7_u64),
        Key::from("#7"),
        Key::from("127.0.0.1"),
        Key::from(IpAddr::from([127, 0, 0, 1])),
        Key::from("*127.0.0.1"),
        Key::secret("a", &KeySecret::new("s")),
        Key::from("\0"),
        Key::from("\r\n"),
        Key::bytes(&[0xff, 0xfe]),
        Key::from("x".repeat(64)),
        Key::from("x".repeat(65)),
        Key::from("x".repeat(1 << 20)),
        Key::from("x".repeat(65)).join("a"),
        Key::from(("x".repeat(65), "a", "b")),
        Key::from(("x".repeat(65), ("a", "b"))),
        Key::from((("x".repeat(65), "a"), "b")),
        Key::from(("a", "x".repeat(60), "b")),
        Key::from((("a", "x".repeat(60)), "b")),
        Key::from(("b", "a", "x".repeat(65))),
        Key::from(("b", ("a", "x".repeat(65)))),
        Key::new("a").child("b"),
        Key::new("a").child("b").child("c"),
        Key::new("a").child(("b", "c")),
        Key::from(("a", "b")).child("c"),
        Key::from("a>b"),
        Key::from("a>b").child("c"),
        Key::from(7_u64).child("b"),
        Key::new("a").child("x".repeat(65)),
        Key::new("a").child(("x".repeat(65), "b")),
        Key::new("x".repeat(65)).child("a"),
        Key::new("a").child("").child("b"),
        Key::new("a").with_branch("b"),
        Key::new("b").with_branch("a"),
        Key::new("a").with_branch("b").with_branch("c"),
        Key::from("a^b"),
        Key::from("a^b").with_branch("c"),
        Key::new("a").with_branch("b^c"),
        Key::new("a").child("b").with_branch("c"),
        Key::new("a").with_branch(Key::new("b").child("c")),
        Key::new("a").with_branch(("b", "c")),
        Key::new("a").with_branch("a"),
    ];
    for (at, key) in keys.iter().enumerate() {
        assert!(
            keys[..at].iter().all(|other| other != key),
            "{}",
            key.encoded()
        );
    }
}

#[test]
fn a_megabyte_becomes_a_short_digest() {
    assert_eq!(Key::from("x".repeat(1 << 20)).encoded().len(), 41);
}

#[test]
fn one_address_is_one_key_in_every_notation() {
    let key = |text: &str| Key::network(text.parse().unwrap(), 64);
    assert_eq!(key("::ffff:1.2.3.4"), key("1.2.3.4"));
    assert_eq!(
        key("::ffff:102:304"),
        Key::network("1.2.3.4".parse().unwrap(), 32)
    );
    assert_eq!(key("2001:DB8:0:0::1"), key("2001:db8::2"));
    assert_ne!(key("2001:db8:0:1::1"), key("2001:db8::1"));
    assert_eq!(
        Key::network("1.2.3.4".parse().unwrap(), 24).encoded(),
        "*1.2.3.0/24"
    );
    assert_eq!(
        Key::network("1.2.3.4".parse().unwrap(), 0).encoded(),
        "*0.0.0.0/0"
    );
}

#[test]
fn debug_shows_neither_key_nor_secret() {
    assert_eq!(
        format!("{:?} {:?}", Key::new("sk_live"), KeySecret::new("pepper")),
        "Key(..) KeySecret(..)"
    );
}

#[test]
fn only_these_bytes_need_no_escape() {
    for byte in 0..=255_u8 {
        let expected = byte.is_ascii_alphanumeric() || b"-_./:@+=|$&;?".contains(&byte);
        for at in [0, 7, 8, 15, 16, 31, 63] {
            let mut part = vec![b'a'; at + 1];
            part[at] = byte;
            assert_eq!(
                Key::bytes(&part).as_bytes() == part,
                expected,
                "{byte:#x} at {at}"
            );
        }
    }
}

#[test]
fn addresses_are_written_as_in_the_standard_library() {
    let every_octet = (0..=255).map(|octet| octet << 24 | octet << 8);
    for bits in every_octet.chain([0, 1, 0x0a09_6364, 0x7f00_0001, 0xc0a8_ff0a, u32::MAX]) {
        let address = Ipv4Addr::from_bits(bits);
        assert_eq!(
            Key::from(IpAddr::V4(address)).encoded(),
            format!("*{address}")
        );
        assert_eq!(
            Key::from(IpAddr::V4(address)),
            Key::from_text(format!("*{address}").as_bytes())
        );
        assert_eq!(Key::network(address.into(), 0).encoded(), "*0.0.0.0/0");
    }
}
