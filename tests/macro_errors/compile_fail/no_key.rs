#[tollgate::limited(limiter = limiter)]
async fn no_key(limiter: &tollgate::Limiter) -> Result<(), Box<dyn std::error::Error>> {
    let _ = limiter;
    Ok(())
}

fn main() {}
