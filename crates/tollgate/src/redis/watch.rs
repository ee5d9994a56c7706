use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Handle, Id},
    time::sleep_until,
};

use super::{job::Job, turn::Turn};

/// Wakes those whose deadline comes before their answer.
///
/// All who wait on one runtime share one timer: a timer each was a seventh of what a check cost here. Runtimes do not
/// share one, so that whoever blocks his own keeps nobody else waiting. The deadlines are to be those of one limiter, which
/// come in the order in which its checks do.
#[derive(Default)]
pub(crate) struct Watch(Arc<Posts>);

/// A post for each runtime on which somebody waits.
#[derive(Default)]
struct Posts(Mutex<Vec<Post>>);

struct Post {
    runtime: Id,
    /// Earliest first. Those in front who have their answer are let go whenever somebody comes.
    waiting: VecDeque<(Instant, Arc<Job>)>,
}

/// The longest time between two looks, so that what is over is let go also where deadlines are far.
const LONGEST: Duration = Duration::from_secs(1);

impl Watch {
    /// Watches over a check that was queued, if it has a deadline.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    pub(crate) fn over(&self, turn: &Turn) {
        self.add(turn.job());
    }

    fn add(&self, job: &Arc<Job>) {
        let Some(deadline) = job.deadline else { return };
        let runtime = Handle::current();
        let mut posts = self.0.lock();
        let one = (deadline, Arc::clone(job));
        match posts.iter_mut().find(|post| post.runtime == runtime.id()) {
            Some(post) => {
                while post.first_is(|_, job| job.is_over()) {
                    post.waiting.pop_front();
                }
                post.waiting.push_back(one);
            }
            None => {
                posts.push(Post { runtime: runtime.id(), waiting: VecDeque::from([one]) });
                drop(posts);
                let round = Round { posts: Arc::clone(&self.0), runtime: runtime.id(), is_over: false };
                runtime.spawn(round.run());
            }
        }
    }
}

impl Posts {
    /// A panic while the lock is held leaves whole posts behind, so the lock is never poisoned.
    fn lock(&self) -> MutexGuard<'_, Vec<Post>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes out those who are late, and says when to look again; never, and there is no post any more, when nobody waits.
    fn look(&self, runtime: Id, now: Instant) -> (Vec<Arc<Job>>, Option<Instant>) {
        let mut posts = self.lock();
        let Some(at) = posts.iter().position(|post| post.runtime == runtime) else { return (Vec::new(), None) };
        let post = &mut posts[at];
        let mut late = Vec::new();
        while post.first_is(|deadline, job| deadline <= now || job.is_over()) {
            late.extend(post.waiting.pop_front().map(|(_, job)| job));
        }
        let next = post.waiting.front().map(|&(deadline, _)| deadline.min(now + LONGEST));
        if next.is_none() {
            posts.swap_remove(at);
        }
        (late, next)
    }
}

impl Post {
    fn first_is(&self, is: impl Fn(Instant, &Job) -> bool) -> bool {
        self.waiting.front().is_some_and(|(deadline, job)| is(*deadline, job))
    }
}

/// The task that keeps a post.
struct Round {
    posts: Arc<Posts>,
    runtime: Id,
    /// There is no post any more.
    is_over: bool,
}

impl Round {
    async fn run(mut self) {
        loop {
            let (late, next) = self.posts.look(self.runtime, tokio::time::Instant::now().into_std());
            for job in late {
                job.expire();
            }
            let Some(next) = next else {
                self.is_over = true;
                return;
            };
            sleep_until(next.into()).await;
        }
    }
}

impl Drop for Round {
    /// The runtime was shut down: who waits elsewhere by now is told, for nobody else will.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut posts = self.posts.lock();
        if let Some(at) = posts.iter().position(|post| post.runtime == self.runtime) {
            let post = posts.swap_remove(at);
            drop(posts);
            for (_, job) in post.waiting {
                job.expire();
            }
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;
    use crate::redis::job::{Unanswered, sides, tests::job_within};

    #[tokio::test(start_paused = true)]
    async fn each_is_woken_at_its_deadline_and_a_post_that_nobody_needs_goes() {
        let watch = Watch::default();
        let began = tokio::time::Instant::now();
        let times = [10, 10, 30, 5_000].map(Duration::from_millis);
        let sides = times.map(|time| sides(job_within(began.into_std(), time)));
        for (waiter, _) in &sides {
            watch.add(waiter.job());
        }
        for (time, (waiter, answered)) in times.into_iter().zip(sides) {
            assert_eq!(pin!(answered).await.unwrap_err(), Unanswered::Late);
            let late = began.elapsed() - time;
            assert!(late <= Duration::from_millis(2) && !waiter.is_awaited(), "{late:?}");
        }
        while !watch.0.lock().is_empty() {
            tokio::time::sleep(LONGEST).await;
        }
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_an_answer_is_let_go_when_the_next_comes() {
        let watch = Watch::default();
        let now = tokio::time::Instant::now().into_std();
        for _ in 0..1_000 {
            let (waiter, _answered) = sides(job_within(now, Duration::from_millis(50)));
            watch.add(waiter.job());
        }
        assert_eq!(watch.0.lock()[0].waiting.len(), 1);
    }
}
