//! Makes descriptors from the heads of requests, in the manner of Envoy's actions.
//! Descriptors that a caller brings along are in `descriptor/`, and need nothing of this room.

mod action;
mod descriptors;
mod request_part;

pub use action::{Actions, ClientIp, HeaderMatch};
pub use descriptors::Descriptors;
pub use request_part::RequestPart;
