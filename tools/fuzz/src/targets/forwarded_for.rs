//! Target: the header `X-Forwarded-For`, read from the right.

use std::net::IpAddr;

use proptest::prelude::*;
use tollgate_tower::key::ForwardedIp;

use crate::{
    addresses::{Belief, backward, canonical, dressed, is_proxy, parts, read},
    equal, hold,
};

/// The law: the client is the one that a reading of the whole list finds, and nobody's words move
/// the proxy's.
#[test]
fn the_client_of_a_forwarding_list_is_the_one_of_the_reference() {
    hold(&inputs(), |input| law(&input));
}

#[derive(Clone, Debug)]
struct Input {
    lines: Vec<Vec<u8>>,
    belief: Belief,
    /// The element that the nearest proxy appends, on the same line or another.
    client: (IpAddr, String),
    is_new_line: bool,
}

fn inputs() -> impl Strategy<Value = Input> {
    let item = prop_oneof![
        4 => dressed().prop_map(|(_, text)| text.into_bytes()),
        1 => prop::sample::select(vec!["", " ", "unknown", "_hidden", "\"", "1.2.3.4.5", "[::1", "::1]", "1.2.3.4:", "%", "for=1.1.1.1"])
            .prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
        1 => "[0-9a-f:.%\\[\\]_ \t]{0,12}".prop_map(String::into_bytes),
    ];
    let separator = prop::sample::select(vec![",", ", ", " ,\t", ",,", " "]);
    let line = prop::collection::vec((item, separator), 0..7).prop_map(|items| {
        items
            .iter()
            .flat_map(|(item, separator)| [item.as_slice(), separator.as_bytes()])
            .collect::<Vec<_>>()
            .concat()
    });
    let lines = prop::collection::vec(line, 0..4);
    (lines, Belief::strategy(), dressed(), any::<bool>()).prop_map(
        |(lines, belief, client, is_new_line)| Input {
            lines,
            belief,
            client,
            is_new_line,
        },
    )
}

fn law(input: &Input) -> Result<(), String> {
    let extractor = ForwardedIp::x_forwarded_for(input.belief.trusted());
    let client = |lines: &[Vec<u8>]| {
        extractor
            .address(&parts("x-forwarded-for", lines))
            .map_err(|error| error.to_string())
    };
    equal(
        "the client",
        client(&input.lines)?,
        reference(input.belief, &input.lines),
    )?;
    // The nearest proxy appends the address of its peer.
    let mut lines = input.lines.clone();
    let (address, text) = &input.client;
    match lines.last_mut().filter(|_| !input.is_new_line) {
        Some(last) => last.extend_from_slice(format!(",{text}").as_bytes()),
        None => lines.push(text.clone().into_bytes()),
    }
    let is_read = http::HeaderValue::from_bytes(lines.last().expect("one")).is_ok();
    let is_found = match input.belief {
        Belief::Networks => !is_proxy(canonical(*address)),
        Belief::Hops(hops) => hops == 1,
    };
    if is_read && is_found {
        equal("whom the proxy saw", client(&lines)?, canonical(*address))?;
    }
    Ok(())
}

/// Reads all elements of all lines.
fn reference(belief: Belief, lines: &[Vec<u8>]) -> IpAddr {
    let mut hops = Vec::new();
    for line in backward(lines) {
        let mut elements = Vec::new();
        let mut element = Vec::new();
        for &byte in line.iter().chain(b",") {
            if byte == b',' {
                elements.push(std::mem::take(&mut element));
            } else {
                element.push(byte);
            }
        }
        let is_blank = |element: &Vec<u8>| element.iter().all(u8::is_ascii_whitespace);
        hops.extend(
            elements
                .iter()
                .rev()
                .filter(|it| !is_blank(it))
                .map(|it| read(it)),
        );
    }
    belief.client(&hops)
}
