//! Keys side by side.

use super::*;

fn branches() -> impl Strategy<Value = Vec<Vec<Vec<Part>>>> {
    prop::collection::vec(levels(), 1..=MAX_BRANCHES)
}

fn encode_branches(branches: &[Vec<Vec<Part>>]) -> Key {
    branches[1..]
        .iter()
        .fold(encode_levels(&branches[0]), |key, branch| {
            key.with_branch(encode_levels(branch))
        })
}

proptest! {
    #[test]
    fn decoding_returns_the_branches(branches in branches()) {
        let key = encode_branches(&branches);
        let alone: Vec<Key> = branches.iter().map(|levels| encode_levels(levels)).collect();
        prop_assert_eq!(key.branches(), &alone[..]);
        prop_assert_eq!(key.levels(), branches[0].len());
        let texts: Vec<&str> = alone.iter().map(Key::encoded).collect();
        prop_assert_eq!(key.encoded(), texts.join("^"));
        let is_digest = |level: &str| level.starts_with('!');
        if !key.encoded().split(['>', '^']).any(is_digest) {
            let decoded: Vec<_> = key.encoded().split('^').map(decode_levels).collect();
            prop_assert_eq!(decoded, branches);
        }
        let safe = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
        prop_assert!(key.encoded().bytes().all(safe) && key.encoded().len() <= 1_039);
    }

    #[test]
    fn a_part_meets_every_branch(branches in branches(), part in levels()) {
        let (key, part) = (encode_branches(&branches), encode_levels(&part));
        let with_each = |join: fn(Key, Key) -> Key| -> Vec<Key> {
            key.branches().iter().map(|branch| join(branch.clone(), part.clone())).collect()
        };
        prop_assert_eq!(key.clone().join(&part).branches().to_vec(), with_each(|key, part| key.join(part)));
        prop_assert_eq!(key.clone().child(&part).branches().to_vec(), with_each(|key, part| key.child(part)));
        prop_assert_eq!(part.clone().child(&key).branches().to_vec(), with_each(|key, part| part.child(key)));
        prop_assert_eq!(Key::from((part.clone(), key.clone())).branches().to_vec(), with_each(|key, part| Key::from((part, key))));
        prop_assert_eq!(Key::from((key.clone(), part.clone())).branches().to_vec(), with_each(|key, part| Key::from((key, part))));
    }
}

#[test]
fn a_branch_beyond_four_is_joined_to_the_last() {
    let four = Key::new("a")
        .with_branch("b")
        .with_branch("c")
        .with_branch("d");
    assert_eq!(four.clone().with_branch("e").encoded(), "a^b^c^d,e");
    assert_eq!(
        four.with_branch(Key::new("e").with_branch("f")).encoded(),
        "a^b^c^d,e,f"
    );
    let (two, three) = (
        Key::new("a").with_branch("b"),
        Key::new("x").with_branch("y").with_branch("z"),
    );
    assert_eq!(two.clone().child(two.clone()).encoded(), "a>a^a>b^b>a^b>b");
    assert_eq!(two.with_branch(three).encoded(), "a^b^x^y,z");
}

#[test]
fn the_parent_of_branches_is_that_of_each() {
    let nested = |outer: &str| Key::new(outer).child("inner");
    let key = nested("a").with_branch(nested("b").child("more"));
    assert_eq!(key.parent(), Some(Key::new("a").with_branch(nested("b"))));
    assert_eq!(
        key.parent().and_then(|key| key.parent()),
        None,
        "the first branch has one level"
    );
}

#[test]
fn a_clone_of_a_key_with_branches_shares_them_and_other_keys_hold_none() {
    let key = Key::new("a").with_branch("b");
    assert_eq!(key.clone().branches().as_ptr(), key.branches().as_ptr());
    let flat = Key::new("a");
    assert!(std::ptr::eq(&flat.branches()[0], &flat));
}

#[test]
fn a_digest_tells_branches_apart_and_debug_shows_none() {
    let secret = KeySecret::new("pepper");
    let key = Key::new("a").with_branch(Key::secret("sk_live", &secret));
    assert_ne!(key.digest(&secret), Key::new("a").digest(&secret));
    assert_eq!(
        key.encoded(),
        format!("a^{}", Key::secret("sk_live", &secret).encoded())
    );
    assert_eq!(format!("{key:?}"), "Key(..)");
}
