//! The options of a scan, and its counts as programs and people read them.
//! The scan itself is that of tollgate-operator. Its progress is shown in `progress.rs`.

use clap::Args;
use tollgate_operator::states::{Limits, Scan, Server};

use super::progress::ProgressOptions;

/// The options of commands that scan.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScanOptions {
    /// Sets how many keys the server looks at in one step, during which it does nothing else
    #[arg(long, default_value_t = 1_000, value_name = "KEYS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    count: u64,

    #[command(flatten)]
    progress: ProgressOptions,
}

impl ScanOptions {
    /// Returns a scan with these options.
    pub(crate) fn over<'s>(&self, server: &'s mut Server, limits: &'s Limits) -> Scan<'s> {
        let mut progress = self.progress.start();
        self.quietly_over(server, limits)
            .on_progress(move |at| progress.show(at))
    }

    /// Returns a scan with these options that shows no progress.
    pub(crate) fn quietly_over<'s>(&self, server: &'s mut Server, limits: &'s Limits) -> Scan<'s> {
        Scan::new(server, limits).count(self.count)
    }
}
