use bytes::Bytes;
use http_body::Body;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Marks the body types whose messages can be charged.
///
/// These are `tonic::body::Body` and, with the feature `axum`, `axum::body::Body`. The trait is sealed,
/// because the service builds a new body of the same type around the old one.
pub trait MessageBody:
    Body<Data = Bytes, Error: Into<BoxError>> + Default + Send + Sized + 'static + sealed::FromBody
{
}

mod sealed {
    use super::{Body, BoxError, Bytes};

    pub trait FromBody {
        fn from_body<B>(body: B) -> Self
        where
            B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
    }
}

impl MessageBody for tonic::body::Body {}

impl sealed::FromBody for tonic::body::Body {
    fn from_body<B>(body: B) -> Self
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self::new(body)
    }
}

#[cfg(feature = "axum")]
impl MessageBody for axum_core::body::Body {}

#[cfg(feature = "axum")]
impl sealed::FromBody for axum_core::body::Body {
    fn from_body<B>(body: B) -> Self
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self::new(body)
    }
}
