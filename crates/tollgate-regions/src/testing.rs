//! Reads and writes the numbers of the scripts: for tests that compare them with the rules.
//! Not covered by semantic versioning.

use tollgate_core::Error;

use crate::{
    rules::{Ask, Call, Checked, Deposit, Deposited, Grant, Home, Purse, Seen, Terms},
    wire::{self, At},
};

/// The text of the script of a purse.
pub const PURSE_LUA: &str = wire::PURSE_LUA;

/// The text of the script of a home.
pub const HOME_LUA: &str = wire::HOME_LUA;

/// Returns the numbers of a check at the purse, at a time and under a reign.
#[must_use]
pub fn check((now_us, reign): (u64, u64), floor_us: u64, terms: &Terms, ask: &Ask) -> Vec<f64> {
    wire::check(at(now_us, reign), floor_us, terms, ask)
}

/// Returns the numbers of a deposit, at a time and under a reign.
#[must_use]
pub fn deposit(
    (now_us, reign): (u64, u64),
    floor_us: u64,
    terms: &Terms,
    deposit: &Deposit,
) -> Vec<f64> {
    wire::deposit(at(now_us, reign), floor_us, terms, deposit).to_vec()
}

/// Returns the numbers of a call of the home, at a time and under a reign.
#[must_use]
pub fn call(
    (now_us, reign): (u64, u64),
    terms: &Terms,
    birth: u64,
    region: u64,
    call: &Call,
) -> Vec<f64> {
    wire::call(at(now_us, reign), terms, birth, region, call)
}

/// Reads the reply to a check.
///
/// # Errors
///
/// When the reply is malformed, here and below.
pub fn checked(reply: &[f64]) -> Result<(Seen, Checked), Error> {
    wire::checked(reply)
}

/// Reads the reply to a deposit.
///
/// # Errors
///
/// When the reply is malformed.
pub fn deposited(reply: &[f64]) -> Result<(Seen, Deposited), Error> {
    wire::deposited(reply)
}

/// Reads the reply of the home.
///
/// # Errors
///
/// When the reply is malformed.
pub fn granted(reply: &[f64]) -> Result<Grant, Error> {
    wire::granted(reply)
}

/// Reads the stored numbers of a purse.
#[must_use]
pub fn purse_of(numbers: &[f64]) -> Option<Purse> {
    wire::purse_of(numbers)
}

/// Reads the stored numbers of a home.
#[must_use]
pub fn home_of(numbers: &[f64]) -> Option<Home> {
    wire::home_of(numbers)
}

fn at(now_us: u64, reign: u64) -> At {
    At {
        now_us: now_us as f64,
        reign: reign as f64,
    }
}
