//! As much of X.509 (RFC 5280, section 4.1) as it takes to find the subject.
//!
//! The certificate was verified by the TLS library, so nothing is decided here; what is no
//! certificate has no subject.

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const VERSION: u8 = 0xa0;

/// The content of the subject's `Name`, in DER. `None` when it is empty.
pub(crate) fn subject(certificate: &[u8]) -> Option<&[u8]> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (to_be_signed, _) = element(certificate, SEQUENCE)?;
    let rest = match element(to_be_signed, VERSION) {
        Some((_, rest)) => rest,
        None => to_be_signed,
    };
    let (_serial, rest) = element(rest, INTEGER)?;
    let (_algorithm, rest) = element(rest, SEQUENCE)?;
    let (_issuer, rest) = element(rest, SEQUENCE)?;
    let (_validity, rest) = element(rest, SEQUENCE)?;
    let (subject, _) = element(rest, SEQUENCE)?;
    (!subject.is_empty()).then_some(subject)
}

/// The content of the element that `bytes` begin with, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    if found != tag {
        return None;
    }
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // More than four bytes of length is no certificate.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0_usize, |length, &digit| length << 8 | usize::from(digit)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut element = vec![tag];
        match content.len() {
            short @ ..128 => element.push(short as u8),
            long => element.extend([0x82, (long >> 8) as u8, long as u8]),
        }
        element.extend_from_slice(content);
        element
    }

    fn certificate(version: bool, subject: &[u8]) -> Vec<u8> {
        let version = if version { wrap(VERSION, &[2, 1, 2]) } else { Vec::new() };
        let [serial, algorithm] = [wrap(INTEGER, &[7]), wrap(SEQUENCE, b"algorithm")];
        let [issuer, validity] = [wrap(SEQUENCE, &[1; 200]), wrap(SEQUENCE, b"validity")];
        let subject = wrap(SEQUENCE, subject);
        wrap(SEQUENCE, &wrap(SEQUENCE, &[version, serial, algorithm, issuer, validity, subject].concat()))
    }

    #[test]
    fn the_subject_is_found_with_and_without_a_version() {
        assert_eq!(subject(&certificate(true, b"CN=acme")), Some(&b"CN=acme"[..]));
        assert_eq!(subject(&certificate(false, b"CN=acme")), Some(&b"CN=acme"[..]));
        assert_eq!(subject(&certificate(true, &[9; 300])), Some(&[9; 300][..]));
    }

    #[test]
    fn an_empty_subject_is_none() {
        assert_eq!(subject(&certificate(true, b"")), None);
    }

    #[test]
    fn what_is_cut_short_has_no_subject() {
        let whole = certificate(true, b"CN=acme");
        assert!((0..whole.len()).all(|length| subject(&whole[..length]).is_none()));
        assert_eq!(subject(&[SEQUENCE, 0x80, 0, 0]), None);
        assert_eq!(subject(&[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff, 0]), None);
    }
}
