//! The slot of a key in a cluster, and keys that lie in a given one.
//! Which server has a slot is known in `cluster/slot_map.rs`.

use tollgate_core::{
    Error, ErrorKind, Key, PolicySet,
    raw::{KeyParts, PolicyParts},
};

/// The number of slots of a cluster.
pub(crate) const SLOTS: usize = 16_384;

/// The remainders of CRC-16/XMODEM (polynomial 0x1021), which the specification of the cluster
/// takes. Two crates less for each user than with a crate for every CRC there is.
const REMAINDERS: [u16; 256] = {
    let mut remainders = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                crc << 1 ^ 0x1021
            };
            bit += 1;
        }
        remainders[byte] = crc;
        byte += 1;
    }
    remainders
};

/// Refuses a key whose branches lie in different slots, where policies meter them.
///
/// # Errors
///
/// [`ErrorKind::CrossSlot`].
#[cold]
pub(crate) fn share_slot(policies: &PolicySet, key: &Key) -> Result<(), Error> {
    let mut slots = policies
        .iter()
        .map(|policy| (policy.name(), of(policy.branch_of(key))));
    let Some((first, slot)) = slots.next() else {
        return Ok(());
    };
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
/// The text in the hash tag decides. That is the outermost level of the key, which is never empty
/// and holds no brace. The prefix holds no brace either. So all levels of a key lie in one slot.
pub(crate) fn of(key: &Key) -> u16 {
    crc16(key.outermost()) % SLOTS as u16
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        crc << 8 ^ REMAINDERS[usize::from(crc.to_be_bytes()[0] ^ byte)]
    })
}

/// Returns a key that no other program uses.
pub(crate) fn unused_key() -> Key {
    Key::from(("tollgate diagnosis", fastrand::u64(..)))
}

/// Returns a key in this slot that no other program uses. One random key in 16 384 has a given
/// slot.
pub(crate) fn unused_key_in(slot: u16) -> Key {
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
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, slot) in [
            ("123456789", 12_739),
            ("foo", 12_182),
            ("bar", 5_061),
            ("somekey", 11_058),
        ] {
            assert_eq!(of(&Key::new(key)), slot, "{key}");
            assert_eq!(
                of(&Key::new(key).child("inner").child(7_u64)),
                slot,
                "{key}, nested"
            );
        }
    }
}
