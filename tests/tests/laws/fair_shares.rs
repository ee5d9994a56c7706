//! Fair shares: what a heavy customer leaves to light ones.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use tollgate::{
    Cost, Costs, Customer, Decision, Key, Limiter, Policy, Quota, Store,
    store::{Ceiling, Check, CheckFuture, Clock, StoreFuture},
};
use tollgate_test_support::{InMap, InMemory, InRedis, POSTGRES, START_US, Subject, in_postgres};

/// Makes a store of a subject. It stands in process.
struct OnSubject<S>(Arc<Mutex<S>>);

impl<S: Subject + Send + 'static> Store for OnSubject<S> {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let mut subject = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ceilings: Vec<Ceiling> = (0..check.policies.len())
            .filter_map(|at| check.ceiling_of(at))
            .collect();
        let costs = Costs::new(check.cost);
        StoreFuture::ready(Ok(subject.check_under(
            check.policies,
            check.key,
            &costs,
            &ceilings,
        )))
    }

    fn refund(&self, _: Check<'_>, _: Option<&Decision>) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }

    fn reset(&self, _: Check<'_>) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }

    fn is_in_process(&self) -> bool {
        true
    }
}

const PER_SECOND: u64 = 50;
const BURST: u64 = 100;
const SECOND_US: u64 = 1_000_000;

/// Four light customers ask for four fifths of their share, and a heavy one for ten times the rate.
const CUSTOMERS: Range<u64> = 0..5;
const LIGHT_EACH_US: u64 = SECOND_US / 8;
const HEAVY_EACH_US: u64 = SECOND_US / PER_SECOND / 10;

fn light_customers_are_served_and_the_bound_holds(subject: impl Subject + Send + 'static) {
    let clock = Clock::manual(START_US);
    let subject = Arc::new(Mutex::new(subject));
    let limiter = Limiter::builder(OnSubject(Arc::clone(&subject)))
        .policies(Policy::token_bucket(
            "service",
            Quota::per_second(PER_SECOND).with_burst(BURST),
        ))
        .outage_clock(clock.clone())
        .fair_shares()
        .build();
    let (mut admitted, mut denied) = ([0_u64; 5], [0_u64; 5]);
    let until = 4 * SECOND_US;
    let mut due: Vec<(u64, u64)> = CUSTOMERS
        .map(|customer| (customer * 31_000, customer))
        .collect();
    while let Some(&(now, customer)) = due.iter().min()
        && now < until
    {
        clock.set(START_US + now);
        subject
            .lock()
            .expect("no panic meanwhile")
            .set_now(START_US + now);
        let costs = Costs::new(Cost::ONE).with_customer(Customer::new(customer));
        let check = limiter
            .check(Key::from("all"))
            .cost(costs)
            .into_future()
            .into_ready();
        let decision = check.expect("in process").expect("a decision");
        let at = customer as usize;
        match decision.is_allowed() {
            true => admitted[at] += 1,
            false => denied[at] += 1,
        }
        let every = if customer == 0 {
            HEAVY_EACH_US
        } else {
            LIGHT_EACH_US
        };
        due[at] = (now + every, customer);
        let (all, most): (u64, _) = (admitted.iter().sum(), BURST + now * PER_SECOND / SECOND_US);
        assert!(all <= most, "{all} of {most}: {admitted:?}");
    }
    assert_eq!(denied[1..], [0; 4], "{admitted:?}");
    let all: u64 = admitted.iter().sum();
    let most = BURST + until * PER_SECOND / SECOND_US;
    assert!(
        all + BURST * 6 / 10 >= most,
        "{all} of {most} units are used, but for those that the heavy one leaves"
    );
    assert!(denied[0] > 1_000, "{denied:?}");
}

#[test]
fn law_23_a_light_customer_is_never_denied_beside_a_heavy_one() {
    light_customers_are_served_and_the_bound_holds(InMemory::new());
    light_customers_are_served_and_the_bound_holds(InMap::new());
    light_customers_are_served_and_the_bound_holds(InRedis::new());
    light_customers_are_served_and_the_bound_holds(in_postgres(&POSTGRES, Clock::manual(START_US)));
}
