#![allow(unused_variables)]

use tollgate::Limiter;

#[tollgate::limited(limiter = limiter, key = "hot", wait = "2 secnds")]
async fn wrong_unit(limiter: &Limiter) -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}

#[tollgate::limited(limiter = limiter, key = "hot", wait = 2)]
async fn no_unit(limiter: &Limiter) -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}

#[tollgate::limited(limiter = limiter, key = "hot", wait = "2s", wait = "3s")]
async fn twice(limiter: &Limiter) -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}

fn main() {}
