use tollgate::Limiter;

type Failure = Box<dyn std::error::Error>;

#[tollgate::limited(limiter = policy, key = "hot")]
async fn not_a_limiter(policy: &tollgate::Policy) -> Result<(), Failure> {
    Ok(())
}

#[tollgate::limited(limiter = limiter, key = "hot", wait = limiter)]
async fn not_a_duration(limiter: &Limiter) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
