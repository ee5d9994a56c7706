use crc::{CRC_16_XMODEM, Crc};

use crate::{Error, ErrorKind, Key, PolicySet};

/// The number of slots of a cluster.
pub(in crate::redis) const SLOTS: usize = 16_384;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// Refuses a key whose branches lie in different slots, where policies meter them.
///
/// # Errors
///
/// [`ErrorKind::CrossSlot`].
#[cold]
pub(in crate::redis) fn share_slot(policies: &PolicySet, key: &Key) -> Result<(), Error> {
    let mut slots = policies.iter().map(|policy| (policy.name(), of(policy.branch_of(key))));
    let Some((first, slot)) = slots.next() else { return Ok(()) };
    match slots.find(|(_, other)| *other != slot) {
        None => Ok(()),
        Some((other, _)) => Err(Error::new(
            ErrorKind::CrossSlot,
            format!(
                "policies {first} and {other} meter branches of a key in different cluster slots; nest the branches in one \
                 outermost level, or use a limiter for each"
            ),
        )),
    }
}

/// Returns the slot of a key without branches.
///
/// The text in the hash tag decides. That is the outermost level of the key, which is never empty and holds no brace. The
/// prefix holds no brace either. So all levels of a key lie in one slot.
pub(in crate::redis) fn of(key: &Key) -> u16 {
    CRC.checksum(key.outermost()) % SLOTS as u16
}

/// Returns a key that no other program uses.
pub(in crate::redis) fn unused_key() -> Key {
    Key::from(("tollgate diagnosis", fastrand::u64(..)))
}

/// Returns a key in this slot that no other program uses. One random key in 16 384 has a given slot.
pub(in crate::redis) fn unused_key_in(slot: u16) -> Key {
    loop {
        let key = unused_key();
        if of(&key) == slot {
            return key;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_servers() {
        // `CLUSTER KEYSLOT` of a 7.0 server; 0x31c3 is the check value of the specification.
        assert_eq!(CRC.checksum(b"123456789"), 0x31c3);
        for (key, slot) in [("123456789", 12_739), ("foo", 12_182), ("bar", 5_061), ("somekey", 11_058)] {
            assert_eq!(of(&Key::new(key)), slot, "{key}");
            assert_eq!(of(&Key::new(key).child("inner").child(7_u64)), slot, "{key}, nested");
        }
    }
}
