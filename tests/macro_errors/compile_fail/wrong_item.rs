#![allow(unused_variables)]

use tollgate::Limiter;

#[tollgate::limited(limiter = limiter, key = "hot")]
fn not_async(limiter: &Limiter) -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}

#[tollgate::limited(limiter = limiter, key = "hot")]
struct NotAFunction;

trait Declared {
    #[tollgate::limited(limiter = limiter, key = "hot")]
    async fn no_body(&self, limiter: &Limiter) -> Result<(), Box<dyn std::error::Error>>;
}

#[tollgate::limited(limiter = limiter, key = "hot")]
async fn no_result(limiter: &Limiter) {}

#[tollgate::limited(limiter = limiter, key = "hot")]
async fn unit(limiter: &Limiter) -> () {}

fn main() {}
