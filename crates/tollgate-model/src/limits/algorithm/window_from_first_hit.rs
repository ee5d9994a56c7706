//! One counter per [window](super::window). A window opens with the first request.
//! What all windows with one counter have in common is in `window.rs`.

use super::window::{Opening, Window};
use crate::Policy;

pub(crate) type WindowFromFirstHitState = Window<Hit>;

/// Opens a window with the first request that finds none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Hit {
    start_us: u64,
}

impl Opening for Hit {
    const BEGINS_WITH_UNITS: bool = true;

    #[inline]
    fn advance(window: Window<Self>, policy: &Policy, now_us: u64) -> (Window<Self>, bool) {
        let (start_us, count) = (window.opening.start_us, window.count);
        let (start_us, count, mended) = if start_us > now_us && count > 0 {
            (now_us, count, true)
        } else if count == 0 || now_us - start_us >= policy.quota_ref().period_us() {
            (now_us, 0, false)
        } else {
            (start_us, count, false)
        };
        let opening = Self { start_us };
        (Window { opening, count }, mended)
    }

    #[inline]
    fn of(start_us: u64, _end_us: u64) -> Self {
        Self { start_us }
    }

    #[inline]
    fn start_us(self) -> u64 {
        self.start_us
    }
}
