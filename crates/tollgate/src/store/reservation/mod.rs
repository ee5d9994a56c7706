mod id;
mod record;
mod records;
mod settlement;

pub use id::ReservationId;
pub(crate) use record::{Change, Record, Reserved};
pub(crate) use records::Records;
pub use settlement::Settlement;
