//! Tries the scripts as the user of the store. To read the rights of the user, `ACL DRYRUN` would
//! need rights of its own.
//! Settings of the server are examined in `mod.rs`.

use std::time::Duration;

use super::finding::{ACL, Finding, granted, lacks};
use crate::{
    protocol::{self, MixedArgs, Purpose, Script, ScriptsOf},
    replicas,
    server::Server,
};
use tollgate_core::{
    Cost, Decision, Error, Key, Policy, PolicySet, Quota,
    raw::{Charge, ChargeRef, DecisionParts, PolicySetParts, runtime},
    store::ReplicaGroup,
};

/// The amount per minute of the policies that are tried.
const TRIED: u64 = 600;

/// The costs of the three calls of each script.
const COSTS: [u64; 3] = [200, 1, 1];

/// Packs the arguments of a call with a cost.
type PackArgs<'a> = &'a (dyn Fn(ChargeRef<'_>) -> Vec<u8> + Sync);

/// Calls every script of the policies on a key of its own, which expires after a minute at most.
pub(super) async fn try_policies(
    server: &Server,
    policies: &PolicySet,
    key: &Key,
    findings: &mut Vec<Finding>,
) -> Result<(), Error> {
    let brief = policies
        .iter()
        // One unit lasts a tenth of a second. Of two single charges, one falls into the second of
        // the state that is stored, and is written in place. The large charge before them is
        // visible for twenty seconds.
        .map(|policy| {
            Policy::try_new(
                policy.name(),
                policy.algorithm(),
                Quota::new(TRIED, Duration::from_secs(60)),
            )
        });
    let set = PolicySet::try_new(brief.collect::<Result<Vec<_>, _>>()?)?;
    let shape = set.shape();
    let names = set.iter().map(Policy::name).collect::<Vec<_>>().join(", ");
    let call = |command: &str, body: &str, packed: &[u8], is_refund: bool| {
        let mut command = redis::cmd(command);
        command.arg(body).arg(set.len());
        server.add_keys([(&set, key)], &mut command);
        command.arg(packed);
        if set.is_tagged() && !is_refund {
            command.arg("");
        }
        command
    };
    let charged = |charge: ChargeRef<'_>| protocol::pack(server.now(), charge, &set).to_vec();
    let mixed = |charge: ChargeRef<'_>| {
        let mut args = MixedArgs::new(server.now(), 1);
        args.subject(&set, std::iter::once((charge, 1)));
        args.into_bytes()
    };
    let refunded = |charge: ChargeRef<'_>| {
        protocol::pack_refund(server.now(), charge, -1.0, &set, false, |_| None).to_vec()
    };
    let tried: [(&Script, PackArgs<'_>, bool); 4] = [
        (shape.script(Purpose::Check, false), &charged, false),
        (shape.script(Purpose::Batch, false), &charged, false),
        // The refunds make room for the charges of the last script.
        (shape.script(Purpose::Refund, false), &refunded, true),
        (shape.script(Purpose::Mixed, false), &mixed, false),
    ];
    let mut left = Vec::new();
    for (script, packed, is_refund) in tried {
        // By its body first: the user may lack the right to load a script that the server happens
        // to know.
        let calls = [
            ("EVAL", &script.text),
            ("EVALSHA", &script.sha),
            ("EVALSHA", &script.sha),
        ];
        for ((command, body), cost) in calls.into_iter().zip(COSTS) {
            let charge = Charge::from(Cost::new(cost));
            let call = call(command, body, &packed(charge.borrow()), is_refund);
            let Some(reply) = granted(server.query_in_time(&call).await)? else {
                findings.push(Finding::new(
                        ACL,
                        format!(
                            "the user may not {command} a script of the policies {names}, or a command in it, or not on keys \
                             {0}:*; grant ~{0}:* +evalsha +eval +time +get +mget +set +setrange, and for a sliding log \
                             +lindex +llen +lpush +lrange +lrem +lset +ltrim +rpush +pexpireat",
                            server.config.prefix
                        ),
                    ));
                // Without its body the server may not know the script.
                break;
            };
            if script.sha == shape.script(Purpose::Check, false).sha {
                let decision = protocol::decision(
                    &set,
                    charge.borrow(),
                    Decision::here_us(runtime::now()),
                    &reply,
                )?;
                left.push(
                    decision
                        .states()
                        .map(|state| state.remaining())
                        .collect::<Vec<_>>(),
                );
            }
        }
    }
    // A state that may not be read counts as absent, so each charge is the first and no request is
    // ever denied. A window may end between two of the checks, but not between every two.
    let is_read = |at: usize| {
        left.iter()
            .zip(COSTS)
            .any(|(left, cost)| left[at] < TRIED - cost)
    };
    for (at, policy) in set.iter().enumerate().filter(|_| left.len() == COSTS.len()) {
        if !is_read(at) {
            findings.push(Finding::new(
                ACL,
                format!(
                    "the user may write the state of policy {} and not read it; grant read and write on its keys",
                    policy.name()
                ),
            ));
        }
    }
    let mut delete = redis::cmd("DEL");
    server.add_keys([(&set, key)], &mut delete);
    if granted(server.query_in_time(&delete).await)?.is_none() {
        findings.push(lacks("DEL", "+del"));
    }
    Ok(())
}

/// Calls the script by which the replicas count themselves, on a key of its own.
pub(super) async fn try_count(server: &Server, key: &Key) -> Result<Option<Finding>, Error> {
    let mut call = redis::cmd("EVAL");
    call.arg(&protocol::REPLICAS.text).arg(1);
    replicas::add_call(server, key, [ReplicaGroup::FURTHER], "diagnosis", &mut call);
    if granted(server.query_in_time(&call).await)?.is_none() {
        return Ok(Some(Finding::new(
            ACL,
            format!(
                "the user may not call the script by which the replicas count themselves, or a command in it; grant \
                 ~{}:* +evalsha +eval +time +zadd +zremrangebyscore +zcard +pexpire, or set `Outage::local`",
                server.config.prefix
            ),
        )));
    }
    // A missing right to delete is found with the scripts of the policies.
    granted(
        server
            .query_in_time(redis::cmd("DEL").arg(replicas::key_text(
                server,
                key,
                ReplicaGroup::FURTHER,
            )))
            .await,
    )?;
    Ok(None)
}
