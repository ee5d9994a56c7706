use tollgate::Limiter;

struct NoConversion;

#[tollgate::limited(limiter = limiter, key = "hot")]
async fn no_conversion(limiter: &Limiter) -> Result<(), NoConversion> {
    Ok(())
}

#[tollgate::limited(limiter = limiter, key = "hot")]
async fn no_result(limiter: &Limiter) -> u64 {
    7
}

fn main() {}
