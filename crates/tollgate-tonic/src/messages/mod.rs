//! A charge for each message of a stream: as an option of the layer, and for a stream in a handler.

mod body;
mod frames;
mod layer;
mod service;
mod stream;
mod toll;

pub use body::CallBody;
pub(crate) use layer::Direction;
pub use layer::{ChargeMessages, Messages, MessagesLayer};
pub use service::{ChargedService, MessagesFuture};
pub use stream::{ChargedMessages, charge_messages};

#[cfg(test)]
mod tests;
