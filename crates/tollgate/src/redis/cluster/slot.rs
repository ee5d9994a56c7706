use crc::{CRC_16_XMODEM, Crc};

use crate::Key;

/// How many slots a cluster has.
pub(super) const SLOTS: usize = 16_384;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The slot of a key: what lies in the hash tag decides, and that is the key's whole text, which
/// is never empty and holds no brace. The prefix holds none either.
pub(super) fn of(key: &Key) -> u16 {
    CRC.checksum(key.as_bytes()) % SLOTS as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_that_servers_tell() {
        // `CLUSTER KEYSLOT` of a 7.0 server; 0x31c3 is the check value of the specification.
        assert_eq!(CRC.checksum(b"123456789"), 0x31c3);
        for (key, slot) in [("123456789", 12_739), ("foo", 12_182), ("bar", 5_061), ("somekey", 11_058)] {
            assert_eq!(of(&Key::new(key)), slot, "{key}");
        }
    }
}
