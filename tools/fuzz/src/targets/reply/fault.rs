//! Damages replies.

use proptest::{prelude::*, sample::Index};
use redis::Value;

/// A fault of the reply.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    None,
    Bare,
    Lost(Index),
    Twice(Index),
    Replaced(Index, Value),
    Other(Value),
    Bytes(Vec<(Index, u8)>),
}

pub(super) fn fault() -> impl Strategy<Value = Fault> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Value::Int),
        Just(Value::Nil),
        Just(Value::Okay),
        any::<bool>().prop_map(Value::Boolean),
        any::<f64>().prop_map(Value::Double),
        "[0-9-]{0,4}".prop_map(Value::SimpleString),
        prop::collection::vec(any::<u8>(), 0..24).prop_map(Value::BulkString),
    ];
    let value = leaf
        .prop_recursive(2, 8, 4, |inner| {
            prop::collection::vec(inner, 0..5).prop_map(Value::Array)
        })
        .boxed();
    prop_oneof![
        8 => Just(Fault::None),
        2 => Just(Fault::Bare),
        1 => any::<Index>().prop_map(Fault::Lost),
        1 => any::<Index>().prop_map(Fault::Twice),
        2 => (any::<Index>(), value.clone()).prop_map(|(at, value)| Fault::Replaced(at, value)),
        1 => value.prop_map(Fault::Other),
        2 => prop::collection::vec((any::<Index>(), any::<u8>()), 0..3).prop_map(Fault::Bytes),
    ]
}

impl Fault {
    pub(super) fn of(self, reply: Value) -> Value {
        let Value::Array(mut words) = reply else {
            return reply;
        };
        match self {
            Self::None => {}
            Self::Bare => return words.swap_remove(0),
            Self::Lost(at) => drop(words.remove(at.index(words.len()))),
            Self::Twice(at) => {
                let at = at.index(words.len());
                words.insert(at, words[at].clone());
            }
            Self::Replaced(at, value) => {
                let at = at.index(words.len());
                words[at] = value;
            }
            Self::Other(value) => return value,
            Self::Bytes(changes) => {
                let mut bytes = resp(&words);
                for (at, byte) in changes {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
                // The client closes the connection at bytes that are no reply.
                return redis::parse_redis_value(&bytes).unwrap_or(Value::Nil);
            }
        }
        Value::Array(words)
    }
}

/// Encodes the reply as the server sends it.
fn resp(words: &[Value]) -> Vec<u8> {
    let word = |word: &Value| {
        if let Value::Int(word) = word {
            format!(":{word}\r\n")
        } else {
            "_\r\n".to_owned()
        }
    };
    format!(
        "*{}\r\n{}",
        words.len(),
        words.iter().map(word).collect::<String>()
    )
    .into_bytes()
}
