//! Cases that hold on every deployment: one Redis server, a Redis Cluster, one Valkey server.
//!
//! Each case is written once, in [`decisions`], [`levels`], [`branches`], [`connections`],
//! [`replicas`], [`exceptions`], [`fair_shares`], [`published`] or [`pauses`], and is a test on each deployment: `suite::server::…`,
//! `suite::cluster::…` and `suite::valkey::…`.

mod branches;
mod connections;
pub(crate) mod decisions;
pub(crate) mod exceptions;
pub(crate) mod fair_shares;
mod levels;
mod pauses;
mod published;
mod replicas;

use std::sync::LazyLock;

use tokio::sync::Mutex;
use tollgate::{PolicySet, RedisStore};
use tollgate_test_support::{Deployment, Kind, calls::Script};

/// One cluster for all tests of this program, which ends with it. One test at a time uses it: the
/// tests count calls and flush scripts.
pub(crate) static CLUSTER: LazyLock<Mutex<Deployment>> = LazyLock::new(|| {
    Mutex::new(
        Deployment::start(Kind::Cluster, "cluster").expect("a cluster can always be started"),
    )
});

/// Forgets all keys and scripts.
pub(crate) fn clear(deployment: &Deployment) {
    deployment.on_every_master(&["FLUSHALL"]);
    deployment.on_every_master(&["SCRIPT", "FLUSH"]);
}

/// Returns a store on a deployment that knows the scripts of a set.
async fn store(deployment: &Deployment, prefix: &str, set: &PolicySet) -> RedisStore {
    load(deployment, set);
    deployment.builder(prefix).connect().await.expect("a store")
}

/// Makes the scripts of a set known. A call whose script the server does not know is sent again,
/// and may then be decided later than the next.
fn load(deployment: &Deployment, set: &PolicySet) {
    let script = Script::new(set.clone());
    for text in [script.text(), script.batch_text()] {
        deployment.on_every_master(&["SCRIPT", "LOAD", text]);
    }
}

/// Runs a case on a deployment of this kind.
pub(crate) async fn run(kind: Kind, test: &str, case: impl AsyncFn(&Deployment)) {
    if kind == Kind::Cluster {
        let cluster = CLUSTER.lock().await;
        clear(&cluster);
        case(&cluster).await;
    } else if let Some(deployment) = Deployment::start(kind, test) {
        case(&deployment).await;
    }
}

/// Makes a test of each case on each deployment. The flavor is that of its runtime: a case that
/// checks the order of decisions needs one thread.
macro_rules! on_every_deployment {
    ($($flavor:tt $group:ident::$case:ident,)*) => {
        on_every_deployment!(server Server $($flavor $group::$case,)*);
        on_every_deployment!(cluster Cluster $($flavor $group::$case,)*);
        on_every_deployment!(valkey Valkey $($flavor $group::$case,)*);
    };
    ($module:ident $kind:ident $($flavor:tt $group:ident::$case:ident,)*) => {
        mod $module {
            use super::{Kind, run};
            $(
                #[tokio::test(flavor = $flavor)]
                async fn $case() {
                    let test = concat!("suite::", stringify!($module), "::", stringify!($case));
                    run(Kind::$kind, test, super::$group::$case).await;
                }
            )*
        }
    };
}

on_every_deployment! {
    "current_thread" decisions::decisions_are_those_of_the_in_process_store,
    "current_thread" decisions::calls_of_every_rank_are_answered_as_in_process,
    "multi_thread" decisions::a_burst_is_admitted_exactly_to_many_tasks,
    "multi_thread" decisions::a_hot_key_is_batched_and_never_above_its_bound,
    "current_thread" decisions::checks_of_one_key_are_decided_in_the_order_they_came,
    "current_thread" decisions::one_decision_is_one_call_and_a_denial_writes_nothing,
    "current_thread" decisions::refund_reset_and_entries_reach_the_server_of_the_key,
    "current_thread" decisions::foreign_state_counts_as_absent,
    "current_thread" decisions::replicas_of_the_application_share_one_limit,
    "current_thread" decisions::stores_with_different_prefixes_do_not_share,
    "current_thread" levels::all_states_of_a_nested_key_lie_in_one_slot,
    "current_thread" levels::a_denied_flood_of_inner_keys_leaves_no_key,
    "current_thread" levels::a_reset_leaves_outer_levels_and_a_refund_reaches_them,
    "current_thread" branches::a_batch_spends_exactly_the_quota_of_each_branch,
    "multi_thread" branches::many_tasks_get_exactly_the_quota_of_each_branch,
    "current_thread" branches::branched_decisions_are_those_of_the_in_process_store,
    "current_thread" branches::a_state_is_stored_as_that_of_the_branch_alone,
    "current_thread" branches::a_refund_and_a_reset_of_one_branch_end_the_denials_of_keys_that_share_it,
    "current_thread" connections::a_forgotten_script_is_sent_once_and_charged_once,
    "multi_thread" connections::a_check_is_charged_once_at_most_when_its_connection_breaks,
    "multi_thread" connections::a_store_outlives_the_runtime_it_was_first_used_on,
    "current_thread" connections::a_dropped_store_leaves_no_connection,
    "current_thread" replicas::the_processes_of_a_prefix_are_counted_at_one_key,
    "current_thread" fair_shares::a_customer_that_is_heavy_in_another_process_is_heavy_here,
    "current_thread" pauses::the_answer_to_one_replica_pauses_the_calls_of_all,
    "current_thread" pauses::replicas_that_are_refused_at_once_pause_for_the_longest_of_their_times,
    "current_thread" exceptions::an_exception_reaches_all_replicas_and_what_was_spent_stays_spent,
    "current_thread" published::limits_are_shown_at_one_key_and_shares_reach_all_replicas,
}
