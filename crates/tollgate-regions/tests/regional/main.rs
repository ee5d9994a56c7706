//! A limit in several regions: the scripts against the rules, the rules over hours of virtual time, and
//! real servers far apart.

#[cfg(feature = "testing")]
mod agreement;
#[cfg(feature = "testing")]
mod foreign;
mod killed;
mod leases;
mod metrics;
#[cfg(feature = "testing")]
mod mutants;
mod outages;
mod refusals;
mod region;
mod running;
mod servers;
#[cfg(feature = "testing")]
mod simulation;
