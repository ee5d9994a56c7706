//! Target: one address in all notations.

use std::net::IpAddr;

use proptest::prelude::*;
use tollgate::Key;
use tollgate_tower::{
    KeyExtractor,
    key::{ForwardedIp, Prefixes},
};

use crate::{
    addresses::{Belief, PEER, any_address, canonical, dressed, parts, read},
    equal, hold,
};

/// The law: a notation is read as std's parser reads it, every notation gives one address, and keys
/// are equal where networks are.
#[test]
fn an_address_has_one_key_in_every_notation() {
    hold(&inputs(), |input| law(&input));
}

#[derive(Clone, Debug)]
struct Input {
    dressed: (IpAddr, String),
    /// Another address: a random one, or one that differs in one bit.
    other: IpAddr,
    prefix: u8,
    /// A text that is hardly an address.
    text: Vec<u8>,
}

fn inputs() -> impl Strategy<Value = Input> {
    let text = prop_oneof![
        "[0-9a-fA-F:.]{0,24}".prop_map(String::into_bytes),
        (dressed(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|((_, text), at, byte)| {
            let mut bytes = text.into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        }),
        prop::collection::vec(any::<u8>(), 0..20),
    ];
    let other = prop_oneof![any_address().prop_map(Err), (0_u32..128).prop_map(Ok)];
    (dressed(), other, 32_u8..=128, text).prop_map(|(dressed, other, prefix, text)| {
        let flipped = |bit: u32| match dressed.0 {
            IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() ^ 1 << (bit % 32)).into()),
            IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() ^ 1 << bit).into()),
        };
        Input {
            other: other.map_or_else(|any| any, flipped),
            dressed,
            prefix,
            text,
        }
    })
}

fn law(input: &Input) -> Result<(), String> {
    let (address, text) = &input.dressed;
    equal(
        "a notation",
        address_of(text.as_bytes())?,
        Some(canonical(*address)),
    )?;
    let plain = canonical(*address).to_string();
    equal(
        "its canonical notation",
        address_of(plain.as_bytes())?,
        Some(canonical(*address)),
    )?;
    equal("any text", address_of(&input.text)?, read(&input.text))?;

    let key = |text: &str| key_of(text, input.prefix);
    let (one, other) = (key(text)?, key(&input.other.to_string())?);
    equal(
        "the key of another notation",
        key(&plain)?.encoded(),
        one.encoded(),
    )?;
    let are_one = network(*address, input.prefix) == network(input.other, input.prefix);
    equal("whether two addresses are one key", one == other, are_one)?;
    // The key names the network, and the network contains the address.
    let (written, prefix) = one
        .encoded()
        .trim_start_matches('*')
        .split_once('/')
        .unwrap_or((&one.encoded()[1..], "128"));
    let written: IpAddr = written
        .parse()
        .map_err(|error| format!("{}: {error}", one.encoded()))?;
    equal(
        "the network of the key",
        network(written, input.prefix),
        network(*address, input.prefix),
    )?;
    equal(
        "its prefix",
        prefix.parse(),
        Ok(if written.is_ipv4() { 128 } else { input.prefix }),
    )
}

/// Returns nothing where the address of the proxy is used instead.
fn address_of(text: &[u8]) -> Result<Option<IpAddr>, String> {
    let extractor = ForwardedIp::header("x-real-ip", Belief::Networks.trusted());
    let parts = parts("x-real-ip", &[text.to_vec()]);
    if parts.headers.is_empty() {
        // It is no valid header value, so no request carries it.
        return Ok(read(text));
    }
    let found = extractor
        .address(&parts)
        .map_err(|error| error.to_string())?;
    let is_read = found != IpAddr::V4(PEER) || read(text) == Some(found);
    Ok(is_read.then_some(found))
}

fn key_of(text: &str, prefix: u8) -> Result<Key, String> {
    let extractor = ForwardedIp::header("x-real-ip", Belief::Networks.trusted())
        .prefixes(Prefixes::ipv6([prefix]));
    let key = extractor
        .extract(&parts("x-real-ip", &[text.as_bytes().to_vec()]))
        .map_err(|error| error.to_string())?;
    key.ok_or_else(|| "an address is exempt".to_owned())
}

/// Returns the bits of the prefix.
fn network(address: IpAddr, prefix: u8) -> (bool, u128) {
    match canonical(address) {
        IpAddr::V4(v4) => (true, v4.to_bits().into()),
        IpAddr::V6(v6) => (
            false,
            v6.to_bits() >> (128 - u32::from(prefix)).min(127) >> u32::from(prefix == 0),
        ),
    }
}
