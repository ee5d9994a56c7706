//! One counter per [window](super::window). A window opens with the first request.

use super::window::{Opening, Window};
use crate::Policy;

pub(crate) type State = Window<Hit>;

/// Opens a window with the first request that finds none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Hit;

impl Opening for Hit {
    #[inline]
    fn settle(policy: &Policy, start_us: u64, count: u64, now_us: u64) -> (u64, u64, bool) {
        if start_us > now_us && count > 0 {
            (now_us, count, true)
        } else if count == 0 || now_us - start_us >= policy.quota_ref().period_us() {
            (now_us, 0, false)
        } else {
            (start_us, count, false)
        }
    }
}
