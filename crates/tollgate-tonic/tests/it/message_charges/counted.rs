//! Messages in pieces of any size.

use proptest::{collection::vec, prelude::*};
use tollgate_tonic::messages::MessageCounter;
use tollgate_tower::body::{BodyEnd, BodyGuard};

/// Encodes a message of this length. Its content could be taken for a prefix.
fn message(length: usize, flag: u8) -> Vec<u8> {
    let mut message = vec![flag];
    message.extend((length as u32).to_be_bytes());
    message.extend((0..length).map(|at| (at % 3) as u8));
    message
}

/// Counts the messages that begin in these pieces.
fn counted<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut count = 0;
    let mut counter = MessageCounter::new(|messages| count += messages);
    pieces.into_iter().for_each(|piece| counter.on_data(&piece));
    counter.on_end(BodyEnd::Complete);
    count
}

proptest! {
    #[test]
    fn messages_are_counted_once_in_pieces_of_any_size_and_trailers_are_not(
        messages in vec((0..600_usize, 0..2_u8), 0..20),
        cuts in vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let mut bytes = Vec::new();
        for (length, flag) in &messages {
            bytes.extend(message(*length, *flag));
        }
        bytes.extend(message(13, 0x80));
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]);
        prop_assert_eq!(counted(pieces), messages.len() as u64);
        prop_assert_eq!(counted(bytes.chunks(1)), messages.len() as u64);
    }

    #[test]
    fn no_bytes_make_the_reader_panic_or_stop(pieces in vec(vec(any::<u8>(), 0..30), 0..30)) {
        counted(pieces.iter().map(Vec::as_slice));
    }
}

#[test]
fn a_message_of_the_greatest_length_is_one_message() {
    let length = [0, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(counted([&length[..], &[0; 1000], &[0; 1000]]), 1);
}
