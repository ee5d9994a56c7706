//! The targets.

use crate::Target;

mod address;
mod forwarded;
mod forwarded_for;
mod key;
mod policy;
mod reply;

pub(crate) const ALL: &[Target] =
    &[forwarded_for::TARGET, forwarded::TARGET, address::TARGET, key::TARGET, reply::TARGET, policy::TARGET];

/// The short form, which every run of the tests includes. The seed is fixed, so that a failure can be repeated.
#[cfg(test)]
mod tests {
    use super::*;

    const EXECUTIONS: u32 = 20_000;

    fn hold(target: &Target) {
        if let Err(crash) = target.run(EXECUTIONS, 2) {
            panic!("{}: {crash}", target.name);
        }
    }

    #[test]
    fn the_client_of_a_forwarding_list_is_the_one_of_the_reference() {
        hold(&forwarded_for::TARGET);
    }

    #[test]
    fn the_client_of_forwarded_elements_is_the_one_of_the_reference() {
        hold(&forwarded::TARGET);
    }

    #[test]
    fn an_address_has_one_key_in_every_notation() {
        hold(&address::TARGET);
    }

    #[test]
    fn a_key_decodes_to_its_parts_and_to_no_others() {
        hold(&key::TARGET);
    }

    #[test]
    fn a_reply_is_read_correctly_or_refused() {
        hold(&reply::TARGET);
    }

    #[test]
    fn a_quota_is_refused_or_kept_to_the_microsecond() {
        hold(&policy::TARGET);
    }
}
