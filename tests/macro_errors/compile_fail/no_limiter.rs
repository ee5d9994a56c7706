#[tollgate::limited(key = "hot")]
async fn no_limiter() -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}

fn main() {}
