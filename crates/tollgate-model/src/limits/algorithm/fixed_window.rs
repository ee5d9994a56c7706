//! One counter per [window](super::window). The windows start at multiples of W since the Unix
//! epoch.
//! What all windows with one counter have in common is in `window.rs`.

use super::window::{Opening, Window};
use crate::Policy;

pub(crate) type FixedWindowState = Window<Aligned>;

/// Opens windows at multiples of their period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Aligned {
    start_us: u64,
}

impl Opening for Aligned {
    #[inline]
    fn advance(window: Window<Self>, policy: &Policy, now_us: u64) -> (Window<Self>, bool) {
        let (start_us, count) = (window.opening.start_us, window.count);
        let period = policy.quota_ref().period_us();
        let current = now_us - now_us % period;
        let (start_us, count, mended) = if start_us < current || count == 0 {
            (current, 0, false)
        } else if start_us > now_us + period {
            // Impossibly far ahead: the clock went back by more than a window.
            (current, count, true)
        } else {
            // The current window, or the next one when the clock went back a little, or a start
            // that was aligned to another period.
            let at = start_us.max(now_us);
            (at - at % period, count, false)
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
