//! Charges for each message of a stream, beyond the charge for the call: for streams that last.
//!
//! A layer charges a call once, when the client opens it. A stream can then carry any number of
//! messages at no further cost. There are two ways to charge the messages too:
//!
//! | | [`MessageLayer`] | [`charge_stream`] |
//! |---|---|---|
//! | where | in the layer, for all streams of a server or a service | in a handler, for one stream |
//! | when | before the message is passed on, while it is still encoded | after the message is decoded |
//! | cost of a message | one unit; the first message comes with the call | [any cost](ChargedStream::cost), from the first message on |
//! | changes to handlers | none | yes |
//!
//! Both hold a message back until the store has decided, and deny messages in the middle of a
//! stream. [`MessageCounterLayer`] only counts the messages of a response as they pass, for a cost
//! that is [reserved](tollgate_tower::RateLimitBuilder::reserve) and settled when the response
//! ends. [`metered`](metered()) ends a stream where a reservation that
//! [grows](tollgate_metered) is denied.
//!
//! You need the other types of this module only to write down the type of a layer, a service or a
//! body.

// Limits of calls as a whole are in `lib.rs`. Only charges for single messages belong in this
// folder.

mod body;
mod boundaries;
mod charge;
mod counter;
mod counter_layer;
mod layer;
mod metered;
mod service;
mod stream;

pub use body::MessageBody;
pub use charge::MessageCharge;
pub use counter::MessageCounter;
pub use counter_layer::{Count, CountedResponse, MessageCounterLayer, MessageCounterService};
pub use layer::MessageLayer;
pub use metered::{MeteredMessages, metered};
pub use service::{MessageService, ResponseFuture};
pub use stream::{ChargedStream, charge_stream};

#[cfg(test)]
mod tests;
