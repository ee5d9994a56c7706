//! Reads and writes messages in the JSON form of protobuf.
//! Which request has which answer is decided in `service/`; the routes are in `http.rs`.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use crate::proto::{
    DESCRIPTORS,
    ratelimit::{RateLimitRequest, RateLimitResponse},
};

struct Messages {
    request: MessageDescriptor,
    response: MessageDescriptor,
}

/// `None` cannot happen: a test reads the descriptors.
static MESSAGES: LazyLock<Option<Messages>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(DESCRIPTORS).ok()?;
    Some(Messages {
        request: pool.get_message_by_name("envoy.service.ratelimit.v3.RateLimitRequest")?,
        response: pool.get_message_by_name("envoy.service.ratelimit.v3.RateLimitResponse")?,
    })
});

/// Reads a request. `None` is a text that is no request.
pub(crate) fn request(text: &[u8]) -> Option<RateLimitRequest> {
    let descriptor = MESSAGES.as_ref()?.request.clone();
    let mut reader = serde_json::Deserializer::from_slice(text);
    let message = DynamicMessage::deserialize(descriptor, &mut reader).ok()?;
    reader.end().ok()?;
    message.transcode_to().ok()
}

/// Writes a response.
pub(crate) fn response(response: &RateLimitResponse) -> Option<Vec<u8>> {
    let mut message = DynamicMessage::new(MESSAGES.as_ref()?.response.clone());
    message.transcode_from(response).ok()?;
    serde_json::to_vec(&message).ok()
}
