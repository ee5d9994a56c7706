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
    parts[1..].iter().fold(one(&parts[0]), |key, part| key.join(one(part)))
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

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..8).prop_map(Part::Bytes),
        "[a-z{},%#*~!() .:]{0,8}".prop_map(|text| Part::Bytes(text.into_bytes())),
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
    ];
    for (at, key) in keys.iter().enumerate() {
        assert!(keys[..at].iter().all(|other| other != key), "{}", key.encoded());
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
    assert_eq!(key("::ffff:102:304"), Key::network("1.2.3.4".parse().unwrap(), 32));
    assert_eq!(key("2001:DB8:0:0::1"), key("2001:db8::2"));
    assert_ne!(key("2001:db8:0:1::1"), key("2001:db8::1"));
    assert_eq!(Key::network("1.2.3.4".parse().unwrap(), 24).encoded(), "*1.2.3.0/24");
    assert_eq!(Key::network("1.2.3.4".parse().unwrap(), 0).encoded(), "*0.0.0.0/0");
}

#[test]
fn debug_shows_neither_key_nor_secret() {
    assert_eq!(format!("{:?} {:?}", Key::new("sk_live"), KeySecret::new("pepper")), "Key(..) KeySecret(..)");
}

#[test]
fn only_these_bytes_need_no_escape() {
    for byte in 0..=255_u8 {
        let expected = byte.is_ascii_alphanumeric() || b"-_./:@+=|$&;?".contains(&byte);
        for at in [0, 7, 8, 15, 16, 31, 63] {
            let mut part = vec![b'a'; at + 1];
            part[at] = byte;
            assert_eq!(Key::bytes(&part).as_bytes() == part, expected, "{byte:#x} at {at}");
        }
    }
}

#[test]
fn addresses_are_written_as_in_the_standard_library() {
    let every_octet = (0..=255).map(|octet| octet << 24 | octet << 8);
    for bits in every_octet.chain([0, 1, 0x0a09_6364, 0x7f00_0001, 0xc0a8_ff0a, u32::MAX]) {
        let address = Ipv4Addr::from_bits(bits);
        assert_eq!(Key::from(IpAddr::V4(address)).encoded(), format!("*{address}"));
        assert_eq!(Key::from(IpAddr::V4(address)), Key::from_text(format!("*{address}").as_bytes()));
        assert_eq!(Key::network(address.into(), 0).encoded(), "*0.0.0.0/0");
    }
}
