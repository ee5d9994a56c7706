//! The service for gateways that reserve before a request and settle after it: Kuadrant's four
//! calls.
//! What a reservation of rules is, tollgate-rules says. Envoy's own call is in `rate_limit.rs`.

use std::time::Duration;

use tollgate::{
    Quota,
    reservation::{Reservation, ReservationId, Settlement},
};
use tollgate_rules::{Code, Descriptor};
use tonic::{Request, Response, Status};

use super::{RateLimitService, answer::code, descriptors::descriptors, failure::CallFailure};
use crate::proto::{
    kuadrant::{
        CommitRequest, CommitResponse, ReserveRequest, ReserveResponse,
        rate_limit_service_server::{RateLimitService as Service, RateLimitServiceServer},
    },
    ratelimit::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse, rate_limit_response},
};

/// The least time in which a commit finds its reservation: also when it comes late, after the time
/// that the gateway has set.
const MIN_TIME_TO_LIVE: Duration = Duration::from_secs(600);

impl RateLimitService {
    /// Returns the gRPC service `kuadrant.service.ratelimit.v1.RateLimitService`, for the router of
    /// a tonic server.
    ///
    /// A gateway reserves an estimate before a request whose cost is known later, and commits the
    /// real cost after it. It shares rules, counters and metrics with
    /// [`into_server`](Self::into_server).
    ///
    /// ```
    /// use tollgate::MemoryStore;
    /// use tollgate_envoy::{
    ///     RateLimitService,
    ///     proto::{
    ///         kuadrant::{CommitRequest, ReserveRequest, rate_limit_service_server::RateLimitService as _},
    ///         ratelimit::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    ///     },
    /// };
    /// use tollgate_rules::{Format, RuleLimiter, RuleSet, Rules};
    /// use tonic::Request;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rules = RuleSet::parse(
    ///     "{domain: llm, descriptors: [{key: tenant, rate_limit: {quota: 1000/h}}]}",
    ///     Format::Yaml,
    /// )?;
    /// let service = RateLimitService::new(RuleLimiter::new(Rules::new(rules), MemoryStore::new()));
    ///
    /// let tenant = Entry { key: "tenant".to_owned(), value: "acme".to_owned() };
    /// let descriptors = vec![RateLimitDescriptor { entries: vec![tenant], ..Default::default() }];
    /// let reserve = |amount| {
    ///     let descriptors = descriptors.clone();
    ///     Request::new(ReserveRequest { domain: "llm".to_owned(), descriptors, amount, ttl: None })
    /// };
    /// let held = service.reserve(reserve(800)).await?.into_inner();
    /// assert_eq!(held.code().as_str_name(), "OK");
    /// // The estimate leaves 200 units.
    /// assert_eq!(service.reserve(reserve(300)).await?.get_ref().code().as_str_name(), "OVER_LIMIT");
    ///
    /// let commit = CommitRequest {
    ///     domain: "llm".to_owned(),
    ///     descriptors: descriptors.clone(),
    ///     reservation_id: held.reservation_id,
    ///     actual_amount: 120,
    /// };
    /// assert!(service.commit(Request::new(commit)).await?.get_ref().reservation_released);
    /// assert_eq!(service.reserve(reserve(300)).await?.get_ref().code().as_str_name(), "OK");
    ///
    /// let server = tonic::service::Routes::new(service.into_kuadrant_server());
    /// # drop(server);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn into_kuadrant_server(self) -> RateLimitServiceServer<Self> {
        let max = self.0.max_message_bytes;
        RateLimitServiceServer::new(self).max_decoding_message_size(max)
    }

    async fn look(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, CallFailure> {
        let set = self.rules()?;
        let descriptors = descriptors(&request.descriptors, self.0.max_descriptors)?;
        let plan = self.plan(&set, &request.domain, &descriptors, request.hits_addend)?;
        let decision = self.0.limiter.peek_plan(&plan).await?;
        Ok(self.response(&plan, &decision))
    }

    async fn charge(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, CallFailure> {
        let set = self.rules()?;
        let descriptors = descriptors(&request.descriptors, self.0.max_descriptors)?;
        let plan = self.plan(&set, &request.domain, &descriptors, request.hits_addend)?;
        let decision = self.0.limiter.charge_plan(&plan).await?;
        self.record(&plan, &decision);
        Ok(RateLimitResponse {
            overall_code: rate_limit_response::Code::Ok.into(),
            ..RateLimitResponse::default()
        })
    }

    async fn hold(&self, request: &ReserveRequest) -> Result<ReserveResponse, CallFailure> {
        let time_to_live = time_to_live(request.ttl.as_ref())?;
        let set = self.rules()?;
        let descriptors = self.spending(&request.descriptors, "amount", request.amount)?;
        let plan = self.plan(&set, &request.domain, &descriptors, 1)?;
        let id = ReservationId::random();
        let decision = self
            .0
            .limiter
            .reserve_plan(&plan, &id, time_to_live)
            .await?;
        self.record(&plan, &decision);
        let verdict = decision.verdict().code();
        Ok(ReserveResponse {
            code: code(verdict),
            reservation_id: match verdict {
                Code::Ok => id.as_str().to_owned(),
                Code::OverLimit => String::new(),
            },
        })
    }

    async fn settle(&self, request: &CommitRequest) -> Result<CommitResponse, CallFailure> {
        let set = self.rules()?;
        let descriptors =
            self.spending(&request.descriptors, "actual_amount", request.actual_amount)?;
        let plan = self.plan(&set, &request.domain, &descriptors, 1)?;
        let settlement = match ReservationId::try_new(&request.reservation_id) {
            Ok(id) => self.0.limiter.commit_plan(&plan, &id).await?,
            // The request was admitted without a reservation.
            Err(_) => Settlement::Lapsed,
        };
        if settlement == Settlement::Lapsed {
            let decision = self.0.limiter.charge_plan(&plan).await?;
            self.record(&plan, &decision);
        }
        Ok(CommitResponse {
            reservation_released: settlement == Settlement::Settled,
        })
    }

    /// Returns the descriptors of a call whose units stand in a field of the call.
    fn spending<'a>(
        &self,
        messages: &'a [RateLimitDescriptor],
        field: &str,
        units: u64,
    ) -> Result<Vec<Descriptor<'a>>, Status> {
        if units > Quota::MAX_AMOUNT {
            return Err(Status::invalid_argument(format!(
                "{field} must be at most {}, got {units}",
                Quota::MAX_AMOUNT
            )));
        }
        for (at, message) in messages.iter().enumerate() {
            let own = match message {
                _ if message.is_negative_hits => "is_negative_hits",
                _ if message.hits_addend.is_some() => "hits_addend",
                _ => continue,
            };
            return Err(Status::invalid_argument(format!(
                "descriptors[{at}].{own} must not be set: {field} has the units of every descriptor"
            )));
        }
        let descriptors = descriptors(messages, self.0.max_descriptors)?;
        let with_units = |descriptor: Descriptor<'a>| descriptor.with_hits(units);
        Ok(descriptors.into_iter().map(with_units).collect())
    }
}

/// Returns how long a commit finds its reservation.
fn time_to_live(asked: Option<&prost_types::Duration>) -> Result<Duration, Status> {
    let Some(asked) = asked else {
        return Ok(MIN_TIME_TO_LIVE);
    };
    let time = Duration::try_from(*asked)
        .map_err(|_| Status::invalid_argument(format!("ttl must not be negative, got {asked}")))?;
    Ok(time.clamp(MIN_TIME_TO_LIVE, Reservation::MAX_TIME_TO_LIVE))
}

#[tonic::async_trait]
impl Service for RateLimitService {
    async fn check_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let answer = self.look(request.get_ref()).await;
        self.counted(answer).map(Response::new)
    }

    async fn report(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let answer = self.charge(request.get_ref()).await;
        self.counted(answer).map(Response::new)
    }

    async fn reserve(
        &self,
        request: Request<ReserveRequest>,
    ) -> Result<Response<ReserveResponse>, Status> {
        let answer = self.hold(request.get_ref()).await;
        self.counted(answer).map(Response::new)
    }

    async fn commit(
        &self,
        request: Request<CommitRequest>,
    ) -> Result<Response<CommitResponse>, Status> {
        let answer = self.settle(request.get_ref()).await;
        self.counted(answer).map(Response::new)
    }
}
