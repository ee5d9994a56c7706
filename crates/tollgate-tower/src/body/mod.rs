//! Response bodies that report how they ended: for what has to be held until a stream is over.
//!
//! A response is not over when its head is sent: the body may be a file, a stream of events, or a
//! gRPC stream. A [`GuardedBody`] holds a [`BodyGuard`] for as long as the body lives, and reports
//! to the guard, once, how the body ended. Frames and trailers pass unchanged.
//!
//! ```
//! use bytes::Buf;
//! use http_body_util::{BodyExt, Full};
//! use tollgate_tower::body::{BodyEnd, BodyGuard, GuardedBody};
//!
//! struct Traffic(u64, std::sync::mpsc::Sender<(u64, BodyEnd)>);
//!
//! impl BodyGuard for Traffic {
//!     fn on_data(&mut self, data: &dyn Buf) {
//!         self.0 += data.remaining() as u64;
//!     }
//!
//!     fn on_end(&mut self, end: BodyEnd) {
//!         let _ = self.1.send((self.0, end));
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let (sender, receiver) = std::sync::mpsc::channel();
//! let body = GuardedBody::new(Full::new(bytes::Bytes::from("hello")), Traffic(0, sender));
//! assert_eq!(body.collect().await.unwrap().to_bytes(), "hello");
//! assert_eq!(receiver.recv().unwrap(), (5, BodyEnd::Complete));
//! # }
//! ```

// Bodies of requests are in `drain/`. Nothing here knows a limit.

mod guard;
mod guarded;

pub use guard::{BodyEnd, BodyGuard, GuardFn, Held, guard_fn};
pub use guarded::{GuardedBody, guard_response};
