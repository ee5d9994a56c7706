//! Limits a service of actix-web by a [`Limiter`], without a Tower layer.
//!
//! ```text
//! cargo run -p tollgate-examples-actix
//! for i in $(seq 6); do curl -i http://127.0.0.1:3000/; done
//! ```
//!
//! The sixth request gets 429, with the time to wait. The workers of actix-web are runtimes of
//! their own: all of them, and all instances with the same `REDIS_URL`, share the limit.
//!
//! Features: the defaults of `tollgate`.

use actix_web::{
    App, Error, HttpResponse, HttpServer,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::header::RETRY_AFTER,
    middleware::{Next, from_fn},
    web,
};
use tollgate::{Limiter, Policy, Quota};
use tollgate_examples::{Failure, listen, store};

const REQUESTS: Policy = Policy::token_bucket("requests", Quota::per_minute(5));

/// Checks the address of a request, and answers itself if it is denied. While Redis is away, the
/// limiter decides by the share of this process.
async fn limit(
    limiter: web::Data<Limiter>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    // Behind a proxy this is the address of the proxy.
    let Some(peer) = request.peer_addr() else {
        let response = HttpResponse::BadRequest().body("the connection has no address\n");
        return Ok(request.into_response(response));
    };
    let refusal = match limiter.check(peer.ip().to_string()).await {
        Ok(decision) if decision.is_allowed() => {
            return Ok(next.call(request).await?.map_into_boxed_body());
        }
        Ok(decision) => {
            let mut refusal = HttpResponse::TooManyRequests();
            if let Some(wait) = decision.retry_after() {
                // Rounded up: who comes back then is admitted.
                let seconds = wait.as_secs_f64().ceil() as u64;
                refusal.insert_header((RETRY_AFTER, seconds.to_string()));
            }
            refusal.body("too many requests\n")
        }
        Err(_) => HttpResponse::ServiceUnavailable().body("try again later\n"),
    };
    Ok(request.into_response(refusal))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let limiter = web::Data::new(Limiter::new(store()?, REQUESTS));
    let listener = listen().await?.into_std()?;
    println!("Try: curl -i http://{}/", listener.local_addr()?);
    let service = move || {
        App::new()
            .app_data(limiter.clone())
            .wrap(from_fn(limit))
            .route("/", web::get().to(|| async { "welcome\n" }))
    };
    HttpServer::new(service).listen(listener)?.run().await?;
    Ok(())
}
