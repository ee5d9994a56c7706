//! Shows the states in Redis as a table, for all commands that list them.

use crate::{failure::Failure, output::Table, redis::StateEntry};

/// Shows states in columns.
pub(super) struct StateTable;

impl StateTable {
    /// Returns the lines. The columns of the limit are shown when a limit is known.
    pub(super) fn of(states: &[StateEntry]) -> String {
        if states.iter().all(|state| state.limit.is_none()) {
            let mut table = Table::new([">spent", "fresh in", "key", "policy", "algorithm"]);
            for state in states {
                table.row([
                    state.spent.to_string(),
                    state.expires(),
                    state.subject.clone(),
                    state.policy.clone(),
                    state.algorithm.to_owned(),
                ]);
            }
            return table.text();
        }
        let mut table = Table::new([">spent", ">left", ">spent %", "fresh in", "key", "policy", "algorithm", "quota"]);
        for state in states {
            table.row([
                state.spent.to_string(),
                state.left(),
                state.share().map(|share| format!("{:.1}", 100.0 * share)).unwrap_or_default(),
                state.expires(),
                state.subject.clone(),
                state.policy.clone(),
                state.algorithm.to_owned(),
                state.quota.clone().unwrap_or_default(),
            ]);
        }
        table.text()
    }
}

/// Runs a command that waits for a server.
pub(super) fn run_async<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::new)?;
    runtime.block_on(command)
}
