//! Remembers the times of the test programs, and tells what is left of a run.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// The file in the target directory: a line for each program, `12 tests laws`.
const FILE: &str = "test-times";

/// The seconds that each program took the last time, by its title.
#[derive(Debug)]
pub(crate) struct Times {
    file: PathBuf,
    seconds: BTreeMap<String, u64>,
}

impl Times {
    /// Reads the times of the last run, if there was one.
    pub(crate) fn load(target: &Path) -> Self {
        let file = target.join(FILE);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let times = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(seconds, title)| Some((title.to_owned(), seconds.parse().ok()?)));
        Self {
            seconds: times.collect(),
            file,
        }
    }

    /// Returns the seconds that a program took the last time.
    pub(crate) fn of(&self, title: &str) -> Option<u64> {
        self.seconds.get(title).copied()
    }

    /// Writes the times of these programs for the next run.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub(crate) fn save<'a>(
        &mut self,
        done: impl Iterator<Item = (&'a str, Duration)>,
    ) -> io::Result<()> {
        for (title, took) in done {
            self.seconds.insert(title.to_owned(), took.as_secs());
        }
        let lines = self
            .seconds
            .iter()
            .map(|(title, seconds)| format!("{seconds} {title}\n"));
        fs::write(&self.file, lines.collect::<String>())
    }

    /// Returns the seconds until all have ended if `lanes` run at a time: those that wait, and those
    /// that have run for a while. `None` if one of them is new.
    pub(crate) fn left<'a>(
        &self,
        not_ended: impl Iterator<Item = (&'a str, Duration)>,
        lanes: u64,
    ) -> Option<u64> {
        let (mut sum, mut longest) = (0, 0);
        for (title, ran) in not_ended {
            let rest = self.of(title)?.saturating_sub(ran.as_secs());
            sum += rest;
            longest = longest.max(rest);
        }
        Some(longest.max(sum.div_ceil(lanes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_by_the_times_of_the_last_run() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let seconds = Duration::from_secs;
        let not_ended = [("tests laws", seconds(0)), ("tests store", seconds(40))];
        let mut times = Times::load(directory.path());
        assert_eq!(times.left(not_ended.into_iter(), 2), None);
        let done = [("tests laws", seconds(30)), ("tests store", seconds(100))];
        times.save(done.into_iter()).expect("the directory is ours");

        let times = Times::load(directory.path());
        assert_eq!((times.of("tests laws"), times.of("new")), (Some(30), None));
        assert_eq!(times.left(not_ended.into_iter(), 2), Some(60));
        assert_eq!(times.left(not_ended.into_iter(), 1), Some(90));
        assert_eq!(times.left([("new", seconds(0))].into_iter(), 2), None);
    }
}
