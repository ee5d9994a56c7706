//! Tables for the text of a key.

/// The bytes that need no escape. All others are written as `%` and two hex digits, among them the
/// bytes with a meaning in the encoded text (`, ( ) % * # ~ ! > ^`) and in Redis (`{ }`).
pub(super) static PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        plain[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let marks = b"-_./:@+=|$&;?";
    let mut at = 0;
    while at < marks.len() {
        plain[marks[at] as usize] = true;
        at += 1;
    }
    plain
};

/// A dot and the digits of each octet of an address, and their length in bytes. The digits are little-endian and stored
/// as their difference (XOR) from the padding of a key.
pub(super) static OCTETS: [(u32, u8); 256] = {
    let mut octets = [(0, 0); 256];
    let mut at = 0;
    while at < 256 {
        let [hundreds, tens, ones] = [digit(at / 100), digit(at / 10 % 10), digit(at % 10)];
        let (text, len) = match at {
            0..10 => ([b'.', ones, b'0', b'0'], 2),
            10..100 => ([b'.', tens, ones, b'0'], 3),
            _ => ([b'.', hundreds, tens, ones], 4),
        };
        octets[at] = (u32::from_le_bytes(text) ^ u32::from_le_bytes([b'0'; 4]), len);
        at += 1;
    }
    octets
};

const fn digit(value: usize) -> u8 {
    b'0' + value as u8
}

/// Returns the two hex digits of a byte.
pub(super) fn hex(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}
