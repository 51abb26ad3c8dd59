//! What a server and a client read of capabilities: files, and the proof of a request.

use crate::class;
use crate::input::coarse;
use std::sync::OnceLock;
use towpath_fastpath::cap::{
    Capability, Checker, Demand, Grant, KeyRing, PROOF_BYTES, Prover, Revoked,
};

const NOW_MS: u64 = 1_700_000_000_000;

/// One byte that says what follows: a grant, a file of keys, a list of what is revoked, a
/// capability, or changes of a right proof (a place and a byte each).
pub(crate) fn run(input: &[u8]) -> u64 {
    let Some((&selector, rest)) = input.split_first() else { return 0 };
    let text = String::from_utf8_lossy(rest);
    let outcome = match selector % 5 {
        0 => match Grant::parse(&text) {
            Ok(grant) => {
                assert_eq!(Grant::parse(&grant.to_text()), Ok(grant));
                1
            }
            Err(error) => class(&[2, error.to_string().len() as u64]),
        },
        1 => match KeyRing::parse(&text) {
            Ok(ring) => class(&[1, coarse(ring.ids().count() as u64)]),
            Err(error) => class(&[2, class_of(&error)]),
        },
        2 => match Revoked::parse(&text) {
            Ok(revoked) => {
                assert_eq!(Revoked::parse(&revoked.to_text()), Ok(revoked.clone()));
                class(&[1, coarse(revoked.len() as u64)])
            }
            Err(error) => class(&[2, class_of(&error)]),
        },
        3 => match rest.first_chunk().map(Capability::parse) {
            Some(Ok(capability)) => {
                assert_eq!(capability.emit()[..], rest[..80]);
                1
            }
            Some(Err(error)) => class(&[2, error.to_string().len() as u64]),
            None => 3,
        },
        _ => proof(rest),
    };
    class(&[u64::from(selector % 5), outcome])
}

/// A proof that was changed is refused, and one that was not is good.
fn proof(changes: &[u8]) -> u64 {
    static MADE: OnceLock<(Checker, [u8; PROOF_BYTES])> = OnceLock::new();
    let (checker, right) = MADE.get_or_init(|| {
        let ring = KeyRing::parse(&KeyRing::line(1, &[1; 32])).expect("a key");
        let grant = ring.mint(Capability::everything()).expect("a grant");
        let proof = Prover::new(grant, 1).prove(NOW_MS, 2, 0, &[b"body"]);
        (Checker::new(ring, 0), proof)
    });
    let mut shown = *right;
    for change in changes.chunks_exact(2) {
        shown[usize::from(change[0]) % PROOF_BYTES] = change[1];
    }
    // Asked long after it was made, so that none is used up: the tag is looked at before.
    let checked = checker.check(NOW_MS + (1 << 20), &shown, 2, 0, b"body", &Demand::default());
    let error = checked.expect_err("it is too old");
    let is_right = shown == *right;
    assert_eq!(error == towpath_fastpath::cap::Denied::Clock, is_right);
    error as u64
}

fn class_of<T>(value: &T) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::mem::discriminant;
    let mut hasher = DefaultHasher::new();
    discriminant(value).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_those_committed() {
        let keys = KeyRing::line(1, &[1; 32]);
        let ring = KeyRing::parse(&keys).expect("a key");
        let grant = ring.mint(Capability::everything()).expect("a grant");
        let mut revoked = Revoked::default();
        revoked.revoke(1, 2, 3).expect("room");
        let with = |selector: u8, bytes: &[u8]| [&[selector], bytes].concat();
        crate::seeds::check(
            "capability",
            &[
                ("grant", with(0, grant.to_text().as_bytes())),
                ("keys", with(1, format!("# one\n{keys}\n").as_bytes())),
                ("revoked", with(2, revoked.to_text().as_bytes())),
                ("capability", with(3, &grant.capability.emit())),
                ("proof", with(4, &[])),
                ("proof-with-another-tag", with(4, &[110, 1])),
            ],
        );
    }
}
