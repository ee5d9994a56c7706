//! One counter per [window](super::window). The windows start at multiples of W since the Unix
//! epoch.

use super::window::{Opening, Window};
use crate::Policy;

pub(crate) type State = Window<Aligned>;

/// Opens windows at multiples of their period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Aligned;

impl Opening for Aligned {
    #[inline]
    fn settle(policy: &Policy, start_us: u64, count: u64, now_us: u64) -> (u64, u64, bool) {
        let period = policy.quota_ref().period_us();
        let current = now_us - now_us % period;
        if start_us < current || count == 0 {
            (current, 0, false)
        } else if start_us > now_us + period {
            // Impossibly far ahead: the clock went back by more than a window.
            (current, count, true)
        } else {
            // The current window, or the next one when the clock went back a little, or a start
            // that was aligned to another period.
            let at = start_us.max(now_us);
            (at - at % period, count, false)
        }
    }
}
