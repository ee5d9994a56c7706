//! The order of equal parts. Processes of a region are alike, and so are the regions: states that
//! differ in their names alone are one.

use super::{REGIONS, Setting, World};

impl World {
    /// Puts processes and regions in order.
    pub(super) fn order(&mut self, setting: &Setting) {
        let count = setting.processes;
        for region in 0..REGIONS {
            self.processes[region * count..][..count].sort_unstable();
        }
        let [first, second] = &self.regions;
        if (second, &self.processes[count..]) < (first, &self.processes[..count]) {
            self.regions.swap(0, 1);
            self.processes.rotate_left(count);
            let homes = [&mut self.home, &mut self.home_copy];
            for home in homes.into_iter().chain(self.old_home.as_mut()) {
                home.rename(|region| 1 - region);
            }
        }
    }
}
