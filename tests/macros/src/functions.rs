//! Functions of all shapes.

use std::{
    borrow::Cow,
    error::Error,
    fmt::Display,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use tollgate::{Denied, ErrorKind, Key, Limiter, MemoryStore, Policy, Quota};

type Failure = Box<dyn Error + Send + Sync>;

fn limiter(amount: u64) -> Limiter {
    Limiter::new(
        MemoryStore::new(),
        Policy::token_bucket("calls", Quota::per_day(amount)),
    )
}

/// Asserts that the call was denied, and did not fail otherwise.
fn assert_denied<T>(result: Result<T, Failure>) {
    assert!(result.err().expect("a denial").is::<Denied>());
}

static MAILS: LazyLock<Limiter> = LazyLock::new(|| limiter(1));
static BODIES: AtomicU64 = AtomicU64::new(0);

#[tollgate::limited(limiter = MAILS, key = recipient)]
async fn send(recipient: &str) -> Result<usize, Failure> {
    BODIES.fetch_add(1, Ordering::Relaxed);
    Ok(recipient.len())
}

#[tokio::test]
async fn a_denied_call_does_not_run_the_body() {
    assert_eq!(send("ann").await.expect("allowed"), 3);
    assert_denied(send("ann").await);
    assert_eq!(send("robert").await.expect("another key"), 6);
    assert_eq!(BODIES.load(Ordering::Relaxed), 2);
}

struct Service {
    limiter: Arc<Limiter>,
    sent: Vec<String>,
}

impl Service {
    #[tollgate::limited(limiter = self.limiter, key = ("mails", &*to))]
    async fn send(&mut self, mut to: String) -> Result<&str, Failure> {
        to.push('!');
        self.sent.push(to);
        Ok(self.sent.last().ok_or("nothing")?)
    }

    /// Takes the service.
    #[tollgate::limited(limiter = &self.limiter, key = 7_u64, cost = self.sent.len() as u64)]
    pub(crate) async fn finish(self) -> Result<Vec<String>, Failure> {
        Ok(self.sent)
    }
}

#[tokio::test]
async fn methods_use_self_and_move_their_arguments() {
    let mut service = Service {
        limiter: Arc::new(limiter(2)),
        sent: Vec::new(),
    };
    assert_eq!(
        service.send("ann".to_owned()).await.expect("allowed"),
        "ann!"
    );
    assert_eq!(
        service.send("ann".to_owned()).await.expect("allowed"),
        "ann!"
    );
    assert!(service.send("ann".to_owned()).await.is_err());
    // Two units of another key.
    assert_eq!(service.finish().await.expect("allowed"), ["ann!", "ann!"]);
}

#[tollgate::limited(limiter = limiter, key = Key::new("texts").join(name.as_ref()))]
async fn generic<'a, Name, T, const N: usize>(
    limiter: &Limiter,
    name: Name,
    parts: [T; N],
    end: &'a str,
) -> Result<impl Iterator<Item = Cow<'a, str>> + use<'a, Name, T, N>, Failure>
where
    Name: AsRef<str>,
    T: Display + 'a,
{
    let _ = name;
    Ok(parts
        .into_iter()
        .map(|part| part.to_string().into())
        .chain([end.into()]))
}

#[tokio::test]
async fn generic_functions_with_lifetimes_return_what_they_return() {
    let limiter = limiter(1);
    let parts = generic(&limiter, String::from("a"), [1, 2], "end")
        .await
        .expect("allowed");
    assert_eq!(parts.collect::<Vec<_>>(), ["1", "2", "end"]);
    assert_denied(generic(&limiter, "a", [1], "end").await);
}

trait Sender {
    async fn send(&self, limiter: &Limiter) -> Result<(), Failure>;
}

impl Sender for &str {
    #[tollgate::limited(limiter = limiter, key = *self)]
    async fn send(&self, limiter: &Limiter) -> Result<(), Failure> {
        Ok(())
    }
}

#[tokio::test]
async fn methods_of_traits_are_limited() {
    let limiter = limiter(1);
    Sender::send(&"ann", &limiter).await.expect("allowed");
    assert_denied(Sender::send(&"ann", &limiter).await);
}

#[tollgate::limited(limiter = limiter, key = "hot")]
async fn parse(limiter: &Limiter, text: &str) -> Result<u64, Failure> {
    if text.is_empty() {
        return Ok(0);
    }
    Ok(text.parse::<u64>()?)
}

#[tokio::test]
async fn returns_and_question_marks_in_the_body_end_the_function() {
    let limiter = limiter(3);
    assert_eq!(parse(&limiter, "").await.expect("a return"), 0);
    assert_eq!(parse(&limiter, "12").await.expect("a number"), 12);
    assert!(
        parse(&limiter, "x")
            .await
            .expect_err("no number")
            .is::<std::num::ParseIntError>()
    );
    assert_denied(parse(&limiter, "12").await);
}

#[tollgate::limited(limiter = limiter, key = "hot", cost = cost)]
async fn spend(limiter: &Limiter, cost: u64) -> Result<(), Failure> {
    Ok(())
}

#[tokio::test]
async fn a_call_without_a_decision_is_an_error_and_no_denial() {
    let limiter = limiter(5);
    let error = spend(&limiter, 6).await.expect_err("more than the burst");
    assert_eq!(
        error
            .downcast::<tollgate::Error>()
            .expect("an error")
            .kind(),
        ErrorKind::CostExceedsBurst
    );
    spend(&limiter, 5).await.expect("allowed");
    assert_denied(spend(&limiter, 1).await);
}

#[tollgate::limited(limiter = limiter, key = "hot", cost = 2)]
async fn spend_two(limiter: &Limiter) -> Result<(), Failure> {
    Ok(())
}

#[tokio::test]
async fn a_cost_may_be_a_number_without_a_type() {
    let limiter = limiter(3);
    spend_two(&limiter).await.expect("allowed");
    assert_denied(spend_two(&limiter).await);
    spend(&limiter, 1).await.expect("one is left");
}

/// Names of arguments are those of the attribute's own variables.
#[tollgate::limited(limiter = limiter, cost = cost + decision, key = key)]
async fn names(limiter: &Limiter, key: &str, cost: u64, decision: u64) -> Result<u64, Failure> {
    let left = limiter
        .peek(key)
        .await?
        .states()
        .next()
        .map(|state| state.remaining());
    Ok(left.unwrap_or(0) + cost + decision)
}

#[tokio::test]
async fn the_attribute_shadows_no_name_and_the_future_can_be_spawned() {
    let task = tokio::spawn(async { names(&limiter(10), "ann", 2, 1).await });
    assert_eq!(task.await.expect("no panic").expect("allowed"), 7 + 3);
}

mod renamed {
    pub(super) use ::tollgate as limits;
}

#[tollgate::limited(crate = renamed::limits, limiter = limiter, key = "hot",)]
async fn by_another_name(limiter: &Limiter) -> Result<(), Failure> {
    Ok(())
}

#[tokio::test]
async fn the_crate_may_have_another_name() {
    by_another_name(&limiter(1)).await.expect("allowed");
}
