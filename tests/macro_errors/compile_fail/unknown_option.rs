#[tollgate::limited(limiter = limiter, key = "hot", waits = "2s")]
async fn unknown_option(limiter: &tollgate::Limiter) -> Result<(), Box<dyn std::error::Error>> {
    let _ = limiter;
    Ok(())
}

fn main() {}
