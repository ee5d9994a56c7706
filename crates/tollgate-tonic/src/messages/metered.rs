//! Messages of a stream that pass while their reservation grows, and the status that ends it.
//! How an item waits for its units is in tollgate-metered. Streams that are charged message by message
//! are in `stream.rs`.

use futures_core::Stream;
use tollgate_metered::MeteredStream;
use tollgate_tower::Meter;
use tonic::Status;

use crate::status::growth_status;

/// The stream that [`metered`] returns.
pub type MeteredMessages<S, T> = MeteredStream<S, fn(&Result<T, Status>) -> u64>;

/// Passes the messages of a response on while their units are reserved, and ends with the status of
/// the denial.
///
/// Use it in a handler behind a layer that reserves and
/// [grows](tollgate_tower::reservation::ReservationBuilder::growing). Each message costs a unit, and
/// an error of the stream none. A message passes whole or not at all. The stream that is denied ends
/// with `RESOURCE_EXHAUSTED` and `RetryInfo`: see [`growth_status`]. The
/// [options](MeteredStream::wait) of the returned stream make it wait, or go on at the cost of another
/// reservation.
///
/// For another cost of a message, use [`MeteredStream::new`] with
/// [`end_with`](MeteredStream::end_with) and `growth_status`.
///
/// ```
/// use tokio_stream::StreamExt;
/// use tollgate_tonic::messages::{MeteredMessages, metered};
/// use tollgate_tower::Meter;
/// use tonic::{Request, Response, Status};
///
/// type Lines = MeteredMessages<tokio_stream::Iter<std::vec::IntoIter<Result<String, Status>>>, String>;
///
/// async fn lines(request: Request<()>) -> Result<Response<Lines>, Status> {
///     let meter = request.extensions().get::<Meter>().cloned().unwrap_or_default();
///     let lines = vec![Ok("one".to_owned()), Ok("two".to_owned())];
///     Ok(Response::new(metered(tokio_stream::iter(lines), &meter)))
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// // Without a layer that grows, every message passes.
/// let lines: Vec<_> = lines(Request::new(())).await.unwrap().into_inner().collect().await;
/// assert_eq!(lines.len(), 2);
/// # }
/// ```
pub fn metered<S, T>(messages: S, meter: &Meter) -> MeteredMessages<S, T>
where
    S: Stream<Item = Result<T, Status>>,
    T: 'static,
{
    let units: fn(&Result<T, Status>) -> u64 = |message| u64::from(message.is_ok());
    MeteredStream::new(messages, meter, units).end_with(|error| Some(Err(growth_status(&error))))
}
