//! A stream of items that passes each on when its units are reserved.
//! Bytes of a body, which have to be cut into items first, are in `body.rs`.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_core::Stream;
use pin_project_lite::pin_project;
use tollgate_core::reservation::GrowthError;
use tollgate_tower::Meter;

use crate::gate::UnitGate;

/// Makes the last item of a response that is denied.
pub(crate) type LastItem<T> = Box<dyn FnOnce(GrowthError) -> Option<T> + Send>;

pin_project! {
    /// Passes the items of a stream on while their units are reserved, and ends where they are not.
    ///
    /// Each item is counted by the [`Meter`] of the reservation before it passes. An item of 0 units
    /// passes at once. The first item that is denied ends the stream: it is dropped with the inner
    /// stream, and [`end_with`](Self::end_with) may put another item in its place. With the meter of
    /// a reservation that does not grow, every item is counted and passes.
    ///
    /// The [page of the crate](crate) has an example.
    #[must_use = "streams do nothing unless polled"]
    pub struct MeteredStream<S: Stream, U> {
        // Dropped at the end, so that what the stream holds is released at once.
        #[pin]
        items: Option<S>,
        units: U,
        gate: UnitGate,
        // The item that is not counted yet, and its units.
        held: Option<(S::Item, u64)>,
        last: Option<LastItem<S::Item>>,
    }
}

impl<S: Stream, U: FnMut(&S::Item) -> u64> MeteredStream<S, U> {
    /// Creates a stream that counts by `meter`. `units` returns the units of an item.
    pub fn new(items: S, meter: &Meter, units: U) -> Self {
        Self {
            items: Some(items),
            units,
            gate: UnitGate::new(meter),
            held: None,
            last: None,
        }
    }

    /// Ends a denied stream with this item, which is not counted. `None` ends it without one, as by
    /// default.
    ///
    /// The closure gets the reason: [`GrowthError::retry_after`] says when the next slice would fit.
    pub fn end_with(
        mut self,
        last: impl FnOnce(GrowthError) -> Option<S::Item> + Send + 'static,
    ) -> Self {
        self.last = Some(Box::new(last));
        self
    }

    /// Waits for up to `max_wait` for the units of an item. By default, a denial ends the stream.
    ///
    /// A denial whose wait is longer ends the stream at once. With several meters, only the last
    /// one waits.
    pub fn wait(mut self, max_wait: Duration) -> Self {
        self.gate.wait(max_wait);
        self
    }

    /// Goes on with another meter when the reservation of the one before is denied. What that has
    /// left of its last slice goes back when it is settled.
    pub fn or(mut self, meter: &Meter) -> Self {
        self.gate.or(meter);
        self
    }
}

impl<S: Stream, U: FnMut(&S::Item) -> u64> Stream for MeteredStream<S, U> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        loop {
            let mut this = self.as_mut().project();
            if let Some((_, units)) = this.held {
                let outcome = ready!(this.gate.poll_take(cx, *units));
                let held = this.held.take();
                return Poll::Ready(match outcome {
                    Ok(()) => held.map(|(item, _)| item),
                    Err(error) => {
                        this.items.set(None);
                        this.last.take().and_then(|last| last(error))
                    }
                });
            }
            let Some(items) = this.items.as_mut().as_pin_mut() else {
                return Poll::Ready(None);
            };
            let Some(item) = ready!(items.poll_next(cx)) else {
                this.items.set(None);
                return Poll::Ready(None);
            };
            match (this.units)(&item) {
                0 => return Poll::Ready(Some(item)),
                units => *this.held = Some((item, units)),
            }
        }
    }
}

impl<S: Stream, U> fmt::Debug for MeteredStream<S, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeteredStream")
            .field("gate", &self.gate)
            .field("has_ended", &self.items.is_none())
            .finish_non_exhaustive()
    }
}
