//! Target: the parts of a key.

use std::{net::IpAddr, sync::LazyLock};

use proptest::prelude::*;
use tollgate::{Key, KeySecret};

use crate::{
    addresses::{any_address, canonical},
    equal, hold,
};

/// The law: decoding the text gives the parts back, and other parts are another key.
#[test]
fn a_key_decodes_to_its_parts_and_to_no_others() {
    hold(&inputs(), |(part, edit)| law(&part, edit));
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Bytes(Vec<u8>),
    Number(u64),
    /// A network whose prefix covers all bits.
    Network(IpAddr, u8),
    KeySecret(Vec<u8>),
    Several(Vec<Self>),
    /// A digest of a long or secret part, which cannot be decoded.
    Opaque,
}

/// A change of the parts to similar ones.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Byte(u8),
    Shift,
    Nest,
    AsText,
    Encoded,
}

static PEPPER: LazyLock<KeySecret> = LazyLock::new(|| KeySecret::new("pepper"));

fn inputs() -> impl Strategy<Value = (Part, Edit)> {
    let leaf = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..12).prop_map(Part::Bytes),
        4 => "[a-z0-9{},()%#*~! .:/]{0,10}".prop_map(|text| Part::Bytes(text.into_bytes())),
        1 => prop::collection::vec(any::<u8>(), 20..80).prop_map(Part::Bytes),
        // Around the length at which a digest begins.
        1 => (60_usize..68).prop_map(|len| Part::Bytes(vec![b'x'; len])),
        2 => prop_oneof![any::<u64>(), 0_u64..100].prop_map(Part::Number),
        2 => (any_address(), any::<u8>()).prop_map(|(address, prefix)| Part::Network(address, prefix)),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Part::KeySecret),
    ];
    let tree = leaf.prop_recursive(2, 9, 4, |inner| {
        prop::collection::vec(inner, 2..=4).prop_map(Part::Several)
    });
    let edit = prop_oneof![
        any::<u8>().prop_map(Edit::Byte),
        Just(Edit::Shift),
        Just(Edit::Nest),
        Just(Edit::AsText),
        Just(Edit::Encoded)
    ];
    (tree, edit)
}

fn law(part: &Part, edit: Edit) -> Result<(), String> {
    let key = encode(part);
    let text = key.encoded();
    let is_safe = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
    equal(
        "whether the text is short and safe",
        (1..=64).contains(&text.len()) && text.bytes().all(is_safe),
        true,
    )?;
    let decoded = decode(text).ok_or_else(|| format!("{text:?} is no text of a key"))?;
    if !text.contains('!') {
        equal("the parts", &decoded, &as_decoded(part))?;
    }
    let other = changed(part, edit);
    let is_same = normal(&other) == normal(part);
    equal(
        &format!("whether {other:?} is the same key"),
        encode(&other) == key,
        is_same,
    )
}

fn encode(part: &Part) -> Key {
    match part {
        Part::Bytes(bytes) => Key::bytes(bytes),
        Part::Number(number) => Key::from(*number),
        Part::Network(address, prefix) => Key::network(*address, *prefix),
        Part::KeySecret(bytes) => Key::secret(bytes, &PEPPER),
        Part::Opaque => Key::new("opaque"),
        Part::Several(parts) => match parts.iter().map(encode).collect::<Vec<_>>().as_slice() {
            [a, b] => Key::from((a, b)),
            [a, b, c] => Key::from((a, b, c)),
            [a, b, c, d] => Key::from((a, b, c, d)),
            other => unreachable!("{} parts", other.len()),
        },
    }
}

/// Returns the parts in normal form: a mapped address is its IPv4 address, bits beyond the prefix
/// are zero.
fn normal(part: &Part) -> Part {
    match part {
        Part::Several(parts) => Part::Several(parts.iter().map(normal).collect()),
        Part::Network(address, prefix) => match canonical(*address) {
            IpAddr::V4(v4) => {
                let bits = (*prefix).min(32);
                Part::Network(
                    IpAddr::V4(
                        (v4.to_bits() & u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0))
                            .into(),
                    ),
                    bits,
                )
            }
            IpAddr::V6(v6) => {
                let bits = (*prefix).min(128);
                Part::Network(
                    IpAddr::V6(
                        (v6.to_bits() & u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0))
                            .into(),
                    ),
                    bits,
                )
            }
        },
        other => other.clone(),
    }
}

/// Returns the parts as they are decoded.
fn as_decoded(part: &Part) -> Part {
    match normal(part) {
        Part::Several(parts) => Part::Several(parts.iter().map(as_decoded).collect()),
        Part::KeySecret(_) => Part::Opaque,
        other => other,
    }
}

fn changed(part: &Part, edit: Edit) -> Part {
    match (edit, part) {
        (Edit::Byte(byte), Part::Bytes(bytes)) if !bytes.is_empty() => {
            let mut bytes = bytes.clone();
            let at = usize::from(byte) % bytes.len();
            bytes[at] = byte;
            Part::Bytes(bytes)
        }
        (Edit::Shift, Part::Several(parts)) => {
            let mut parts = parts.clone();
            if let [Part::Bytes(one), Part::Bytes(two), ..] = parts.as_mut_slice() {
                two.splice(0..0, one.pop());
            }
            Part::Several(parts)
        }
        (Edit::Nest, Part::Several(parts)) => match parts.as_slice() {
            [Part::Several(inner), rest @ ..] if inner.len() + rest.len() <= 4 => {
                Part::Several([inner, rest].concat())
            }
            [one, two, rest @ ..] if !rest.is_empty() => {
                Part::Several([&[Part::Several(vec![one.clone(), two.clone()])], rest].concat())
            }
            _ => part.clone(),
        },
        (Edit::AsText, Part::Number(number)) => Part::Bytes(number.to_string().into_bytes()),
        (Edit::AsText, Part::Network(address, _)) => Part::Bytes(address.to_string().into_bytes()),
        (Edit::AsText, Part::Bytes(bytes)) => {
            match std::str::from_utf8(bytes)
                .ok()
                .and_then(|text| text.parse().ok())
            {
                Some(number) => Part::Number(number),
                None => Part::KeySecret(bytes.clone()),
            }
        }
        // The text of the key, as a part.
        (Edit::Encoded, part) => {
            Part::Bytes(encode(part).encoded().as_bytes().to_vec()).unless_same(part)
        }
        (_, Part::Several(parts)) => {
            let mut parts = parts.clone();
            parts[0] = changed(&parts[0], edit);
            Part::Several(parts)
        }
        (_, part) => part.clone(),
    }
}

impl Part {
    /// A part of plain bytes is encoded as itself.
    fn unless_same(self, part: &Self) -> Self {
        if self == *part { part.clone() } else { self }
    }
}

/// Reads the text of a key: `,` between parts, `( )` around several, `%xx` for bytes, `#` before
/// numbers, `*` before networks.
fn decode(text: &str) -> Option<Part> {
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, byte) in text.bytes().chain([b',']).enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(decode_part(&text[from..at])?);
                from = at + 1;
            }
            _ => {}
        }
    }
    match parts.len() {
        0 => None,
        1 => parts.pop(),
        _ => Some(Part::Several(parts)),
    }
}

fn decode_part(text: &str) -> Option<Part> {
    match *text.as_bytes() {
        [] => None,
        [b'%'] => Some(Part::Bytes(Vec::new())),
        [b'(', .., b')'] => decode(&text[1..text.len() - 1])
            .filter(|part| matches!(part, Part::Several(_) | Part::Opaque)),
        [b'#', ..] => text[1..].parse().ok().map(Part::Number),
        [b'!', b'!', ref hex @ ..] | [b'~' | b'!', ref hex @ ..] => {
            (hex.len() == 40 && hex.iter().all(u8::is_ascii_hexdigit)).then_some(Part::Opaque)
        }
        [b'*', ..] => {
            let (address, prefix) = text[1..]
                .split_once('/')
                .map_or((&text[1..], None), |(it, bits)| (it, Some(bits)));
            let address: IpAddr = address.parse().ok()?;
            let width = if address.is_ipv4() { 32 } else { 128 };
            Some(Part::Network(
                address,
                prefix.map_or(Some(width), |bits| bits.parse().ok())?,
            ))
        }
        ref bytes => {
            let (mut decoded, mut rest) = (Vec::new(), bytes);
            while let Some((&first, tail)) = rest.split_first() {
                rest = tail;
                decoded.push(if first == b'%' {
                    let (hex, tail) = tail.split_at_checked(2)?;
                    rest = tail;
                    u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?
                } else {
                    first
                });
            }
            Some(Part::Bytes(decoded))
        }
    }
}
