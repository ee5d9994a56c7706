//! Target: the header `Forwarded` (RFC 7239) with its pairs, quotes and escapes.

use std::net::IpAddr;

use proptest::prelude::*;
use tollgate_tower::key::ForwardedIp;

use crate::{
    addresses::{Belief, backward, dressed, parts, read},
    equal, hold,
};

/// The law: the client is the one that a reading of the whole list finds, and a torn quote names
/// nobody.
#[test]
fn the_client_of_forwarded_elements_is_the_one_of_the_reference() {
    hold(&inputs(), |(lines, belief)| law(&lines, belief));
}

fn inputs() -> impl Strategy<Value = (Vec<Vec<u8>>, Belief)> {
    let node = || dressed().prop_map(|(_, text)| text);
    let piece = prop_oneof![
        4 => (prop::sample::select(vec!["for=", "For=", "FOR =", "for= ", "by=", "proto=", "xfor="]), node())
            .prop_map(|(name, node)| format!("{name}{node}")),
        4 => (prop::sample::select(vec!["for=", "fOr=", "host="]), node()).prop_map(|(name, node)| format!("{name}\"{node}\"")),
        // Each character escaped.
        1 => node().prop_map(|node| format!("for=\"{}\"", node.chars().flat_map(|it| ['\\', it]).collect::<String>())),
        1 => prop::sample::select(vec!["", "for", "for=", "for=\"\"", "for=unknown", "for=_hidden", "proto=https", "=", "\"", "\\", "for=\"", "for=1.1.1.1\"", "for=\"1.1.1.1\"x", "host=\"a,b;for=1.1.1.1\"", "=\"a\"", "for=\"a\\\""])
            .prop_map(str::to_owned),
        1 => "[a-z0-9=;,\"\\\\. :\\[\\]]{0,8}",
    ];
    let piece = prop_oneof![12 => piece.prop_map(String::into_bytes), 1 => prop::collection::vec(any::<u8>(), 0..4)];
    let separator = prop::sample::select(vec![",", ";", ", ", " ; ", ",,", ";,", ";;", "\t,"]);
    let line = prop::collection::vec((piece, separator, any::<bool>()), 0..6).prop_map(|pieces| {
        let last = pieces.len();
        let mut line = Vec::new();
        for (at, (piece, separator, ends)) in pieces.into_iter().enumerate() {
            line.extend_from_slice(&piece);
            if at + 1 < last || ends {
                line.extend_from_slice(separator.as_bytes());
            }
        }
        line
    });
    (prop::collection::vec(line, 0..4), Belief::strategy())
}

fn law(lines: &[Vec<u8>], belief: Belief) -> Result<(), String> {
    let extractor = ForwardedIp::forwarded(belief.trusted());
    let found = extractor
        .address(&parts("forwarded", lines))
        .map_err(|error| error.to_string())?;
    let hops: Vec<_> = backward(lines)
        .flat_map(|line| elements(line).into_iter().rev().collect::<Vec<_>>())
        .collect();
    equal("the client", found, belief.client(&hops))
}

/// A character of a line: one that is part of the syntax, or one that was quoted or escaped.
#[derive(Clone, Copy, PartialEq)]
enum Piece {
    Plain(u8),
    Open,
    Close,
    Quoted(u8),
}

/// Reads the nodes of a line in two steps: first the quotes, then the structure. RFC 7239 §4 and
/// RFC 9110 §5.6.
fn elements(line: &[u8]) -> Vec<Option<IpAddr>> {
    let Some(pieces) = quotes(line) else {
        return vec![None];
    };
    let elements: Option<Vec<_>> = pieces
        .split(|it| *it == Piece::Plain(b','))
        .map(element)
        .collect();
    elements.map_or(vec![None], |elements| {
        elements.into_iter().flatten().collect()
    })
}

/// Returns nothing where a quote is not closed.
fn quotes(line: &[u8]) -> Option<Vec<Piece>> {
    let (mut pieces, mut is_open, mut is_escaped) = (Vec::new(), false, false);
    for &byte in line {
        pieces.push(match (is_open, is_escaped, byte) {
            (true, true, byte) => {
                is_escaped = false;
                Piece::Quoted(byte)
            }
            (true, false, b'\\') => {
                is_escaped = true;
                continue;
            }
            (true, false, b'"') => {
                is_open = false;
                Piece::Close
            }
            (true, false, byte) => Piece::Quoted(byte),
            (false, _, b'"') => {
                is_open = true;
                Piece::Open
            }
            (false, _, byte) => Piece::Plain(byte),
        });
    }
    (!is_open).then_some(pieces)
}

/// Reads the node of an element: an address, another text, or nothing. The outer `None` stands for
/// a quote that does not enclose a value.
#[expect(clippy::option_option, reason = "three answers and a torn line")]
fn element(pieces: &[Piece]) -> Option<Option<Option<IpAddr>>> {
    let (mut nodes, mut is_malformed, mut is_empty) = (Vec::new(), false, true);
    for pair in pieces.split(|it| *it == Piece::Plain(b';')) {
        let equals = pair.iter().position(|it| *it == Piece::Plain(b'='));
        let name = trim(&pair[..equals.unwrap_or(pair.len())]);
        if name.iter().any(|it| !matches!(it, Piece::Plain(_))) {
            return None;
        }
        let Some(equals) = equals else {
            is_malformed |= !name.is_empty();
            is_empty &= name.is_empty();
            continue;
        };
        is_empty = false;
        let value = trim(&pair[equals + 1..]);
        let is_quoted = value.first() == Some(&Piece::Open);
        let inside = if is_quoted {
            value.get(1..value.len() - 1)?
        } else {
            value
        };
        if is_quoted && value.last() != Some(&Piece::Close)
            || inside
                .iter()
                .any(|it| matches!(it, Piece::Open | Piece::Close))
        {
            return None;
        }
        let is_for = text(name).eq_ignore_ascii_case(b"for");
        if is_for {
            nodes.push(read(&text(inside)));
        }
    }
    Some(match nodes.as_slice() {
        [] if is_empty => None,
        [node] if !is_malformed => Some(*node),
        _ => Some(None),
    })
}

fn text(pieces: &[Piece]) -> Vec<u8> {
    let byte = |it: &Piece| match it {
        Piece::Plain(byte) | Piece::Quoted(byte) => Some(*byte),
        Piece::Open | Piece::Close => None,
    };
    pieces.iter().filter_map(byte).collect()
}

fn trim(pieces: &[Piece]) -> &[Piece] {
    let is_blank = |it: &Piece| matches!(it, Piece::Plain(byte) if byte.is_ascii_whitespace());
    let from = pieces
        .iter()
        .position(|it| !is_blank(it))
        .unwrap_or(pieces.len());
    let until = pieces
        .iter()
        .rposition(|it| !is_blank(it))
        .map_or(from, |at| at + 1);
    &pieces[from..until]
}
