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

use super::{engine::Turn, job::Job};

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
        let job = turn.job();
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
