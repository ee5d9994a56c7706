//! Shows the states in Redis as a table, for all commands that list them.
//! The cells of a state come from `cells.rs`.

use tollgate_operator::states::StateEntry;

use crate::{cells::state_cells, failure::Failure, output::Table};

/// Returns the lines of states. The columns of the limit are shown when a limit is known.
pub(super) fn state_table(states: &[StateEntry]) -> String {
    if states.iter().all(|state| state.limit.is_none()) {
        let mut table = Table::new([">spent", "fresh in", "key", "policy", "algorithm"]);
        for state in states {
            let [spent, _, _, fresh, key, policy, algorithm, _] = state_cells(state);
            table.row([spent, fresh, key, policy, algorithm]);
        }
        return table.text();
    }
    let mut table = Table::new([
        ">spent",
        ">left",
        ">spent %",
        "fresh in",
        "key",
        "policy",
        "algorithm",
        "quota",
    ]);
    states
        .iter()
        .for_each(|state| table.row(state_cells(state)));
    table.text()
}

/// Runs a command that waits for a server.
pub(super) fn run_async<T>(
    command: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::new)?;
    runtime.block_on(command)
}
