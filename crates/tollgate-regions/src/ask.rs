//! Asks the purse of a key for a decision, and gives leased units back to it.
//! What is made of its answer is in `store.rs`, and the calls of the home that it begins in
//! `carrier.rs`.

use std::sync::Arc;

use tollgate_core::{
    Cost, Error,
    raw::{micros, runtime},
    store::Check,
};
use tollgate_redis::raw::{self, Place};
use tollgate_remote::lease::LeaseHolder;

use crate::{
    carrier::{Servers, carry},
    leases::Trip,
    rules::{Ask, Checked, Terms},
    terms::{self, terms},
    wire,
};

/// Gives the units back that this process has leased of these keys, to the purse.
pub(crate) async fn give_back_all(
    servers: &Arc<Servers>,
    holders: Vec<LeaseHolder>,
) -> Result<(), Error> {
    let mut result = Ok(());
    for holder in holders {
        let terms = terms(&holder.policies, servers.set_trip())?;
        let trip = servers.leases.trip_back(&holder, servers.hash(&holder.key));
        let check = Check::new(&holder.policies, &holder.key, Cost::ZERO);
        let asked = (Cost::ZERO, false);
        let given = ask(servers, check, &terms, asked, Some(&trip)).await;
        result = result.and(given.map(drop));
    }
    result
}

/// Asks the purse, and lets this process carry the call that it begins. A trip brings the reports of
/// the process along.
pub(crate) async fn ask(
    servers: &Arc<Servers>,
    check: Check<'_>,
    terms: &Terms,
    (cost, is_first): (Cost, bool),
    trip: Option<&Trip>,
) -> Result<(u64, Checked), Error> {
    let place = Place {
        policy: terms::the_one(check.policies)?,
        key: check.key,
        suffix: wire::PURSE,
    };
    let ask = Ask {
        cost: cost.units(),
        is_first,
        trip_us: micros(servers.trip()),
        most: terms.most,
        want: trip.map_or(0, |trip| trip.want),
        reports: trip.map(|trip| trip.reports.clone()).unwrap_or_default(),
    };
    let numbers = wire::check(wire::At::SERVER, servers.floor.now_us(), terms, &ask);
    let script = wire::purse();
    let reply = raw::run(&servers.local, script, place, &numbers, check.deadline).await?;
    let (seen, mut checked) = wire::checked(&reply)?;
    servers.note(place, terms, seen, checked.free);
    if let Some(call) = checked.call.take() {
        let (policies, key) = (check.policies.clone(), check.key.clone());
        runtime::current()?.spawn(carry(Arc::clone(servers), policies, key, *terms, call));
    }
    Ok((seen.now_us, checked))
}
