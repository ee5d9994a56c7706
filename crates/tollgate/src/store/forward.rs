use std::{sync::Arc, time::Duration};

use super::{Check, CheckFuture, Store, StoreFuture};
use crate::{
    Decision, Key, PolicySet,
    model::Entry,
    store::{PermitGrant, PermitRequest, ReplicaCount, ReplicaGroup, ReservationId, Settlement},
};

/// Forwards every method to the store inside.
macro_rules! forward {
    ($pointer:ident) => {
        impl<S: Store + ?Sized> Store for $pointer<S> {
            fn check(&self, check: Check<'_>) -> CheckFuture {
                (**self).check(check)
            }

            fn inner(&self) -> Option<&dyn Store> {
                (**self).inner()
            }

            fn look(&self, check: Check<'_>) -> CheckFuture {
                (**self).look(check)
            }

            fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
                (**self).refund(check, decision)
            }

            fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
                (**self).reset(check)
            }

            fn entries(&self, check: Check<'_>, limit: usize) -> StoreFuture<Vec<Entry>> {
                (**self).entries(check, limit)
            }

            fn permits(&self, request: PermitRequest<'_>) -> StoreFuture<PermitGrant> {
                (**self).permits(request)
            }

            fn reserve(&self, check: Check<'_>, id: &ReservationId, time_to_live: Duration) -> CheckFuture {
                (**self).reserve(check, id, time_to_live)
            }

            fn commit(&self, check: Check<'_>, id: &ReservationId) -> StoreFuture<Settlement> {
                (**self).commit(check, id)
            }

            fn can_decide(&self, policies: &PolicySet, key: &Key) -> bool {
                (**self).can_decide(policies, key)
            }

            fn leases(&self) -> bool {
                (**self).leases()
            }

            fn is_in_process(&self) -> bool {
                (**self).is_in_process()
            }

            fn keeps_deadline(&self) -> bool {
                (**self).keeps_deadline()
            }

            fn replicas(&self, group: ReplicaGroup) -> Option<ReplicaCount> {
                (**self).replicas(group)
            }
        }
    };
}

forward!(Arc);
forward!(Box);
