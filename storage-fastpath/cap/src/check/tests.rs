//! What is refused, and by which name.

use super::*;
use crate::keys::KeyRing;
use crate::limits::{AHEAD_MS, SKEW_MS};
use crate::proof::Prover;
use crate::{Grant, Revoked};
use towpath_base::Prng;

const NOW: u64 = 1_700_000_000_000;
const METHOD: u16 = 2;
const CHUNK: u128 = 0xabc;
const BODY: &[u8] = b"a header and its checksums";

fn ring(ids: &[u32]) -> KeyRing {
    let lines = ids.iter().map(|id| KeyRing::line(*id, &[*id as u8; 32]));
    KeyRing::parse(&lines.collect::<Vec<_>>().join("\n")).expect("keys")
}

fn capability() -> Capability {
    Capability {
        rights: Rights::READ | Rights::WRITE,
        scope: Scope::chunk(CHUNK),
        offset: 4_096,
        byte_len: 8_192,
        expires_ms: NOW + 1_000,
        serial: 5,
        tenant: 8,
        layout: 99,
        ..Capability::everything()
    }
}

fn demand() -> Demand {
    Demand {
        rights: Rights::WRITE,
        chunk: Some(CHUNK),
        range: Some((4_096, Some(8_192))),
        tenant: Some(8),
        layout: Some(99),
        ..Demand::default()
    }
}

fn checker() -> Checker {
    Checker::new(ring(&[1, 2]), NOW - AHEAD_MS)
}

fn grant() -> Grant {
    ring(&[1, 2]).mint(capability()).expect("a grant")
}

fn prove(prover: &mut Prover) -> [u8; PROOF_BYTES] {
    prover.prove(NOW, METHOD, 4_096, &[&BODY[..3], &BODY[3..]])
}

fn ask(checker: &Checker, proof: &[u8; PROOF_BYTES], demand: &Demand) -> Result<(), Denied> {
    checker.check(NOW, proof, METHOD, 4_096, BODY, demand).map(drop)
}

#[test]
fn what_a_capability_allows_is_done_once() {
    let (checker, mut prover) = (checker(), Prover::new(grant(), 1));
    let proof = prove(&mut prover);
    let shown = checker.check(NOW, &proof, METHOD, 4_096, BODY, &demand());
    assert_eq!(shown, Ok(Capability { key: 2, ..capability() }));
    assert_eq!(ask(&checker, &proof, &demand()), Err(Denied::Replayed));
    assert_eq!(ask(&checker, &prove(&mut prover), &demand()), Ok(()));
}

#[test]
fn each_refusal_has_its_name() {
    let (checker, mut prover) = (checker(), Prover::new(grant(), 1));
    let mut with = |demand: Demand| ask(&checker, &prove(&mut prover), &demand);
    let demand = demand();
    assert_eq!(with(Demand { rights: Rights::DELETE, ..demand }), Err(Denied::Rights));
    assert_eq!(with(Demand { chunk: Some(1), ..demand }), Err(Denied::OutOfRange));
    assert_eq!(with(Demand { all_chunks: true, ..demand }), Err(Denied::OutOfRange));
    let range = Some((0, Some(1)));
    assert_eq!(with(Demand { range, ..demand }), Err(Denied::OutOfRange));
    assert_eq!(with(Demand { tenant: Some(9), ..demand }), Err(Denied::Tenant));
    assert_eq!(with(Demand { layout: Some(0), ..demand }), Err(Denied::Layout));
    assert_eq!(with(Demand { layout: None, ..demand }), Ok(()));
    let either = Rights::READ | Rights::DELETE;
    assert_eq!(with(Demand { rights: either, ..demand }), Ok(()), "one of them is enough");
}

#[test]
fn what_is_over_or_not_yet_is_refused() {
    let (checker, mut prover) = (checker(), Prover::new(grant(), 1));
    let proof = prove(&mut prover);
    let at = |now_ms: u64, proof| checker.check(now_ms, proof, METHOD, 4_096, BODY, &demand());
    assert_eq!(at(NOW + 1_001, &proof), Err(Denied::Expired));
    assert_eq!(at(NOW - AHEAD_MS - 1, &proof), Err(Denied::Clock));
    let old = prover.prove(NOW - SKEW_MS - 1, METHOD, 4_096, &[BODY]);
    assert_eq!(at(NOW, &old), Err(Denied::Clock));
    let mut revoked = Revoked::default();
    revoked.revoke(NOW, 5, NOW + 1_000).expect("room");
    checker.set_revoked(revoked);
    assert_eq!(at(NOW, &proof), Err(Denied::Revoked));
    checker.set_revoked(Revoked::default());
    assert!(at(NOW, &proof).is_ok(), "nothing of what was refused has used the number");
}

#[test]
fn keys_are_replaced_while_what_the_older_one_made_is_valid() {
    let (checker, mut prover) = (checker(), Prover::new(grant(), 1));
    checker.set_keys(ring(&[2, 3]));
    assert_eq!(ask(&checker, &prove(&mut prover), &demand()), Ok(()));
    checker.set_keys(ring(&[3]));
    assert_eq!(ask(&checker, &prove(&mut prover), &demand()), Err(Denied::Key));
}

/// Whichever bit is changed of the proof or the request, and whatever part of one request is put
/// into another.
#[test]
fn a_request_with_any_bit_changed_is_refused_and_uses_no_number() {
    let (checker, mut prover) = (checker(), Prover::new(grant(), 1));
    let proof = prove(&mut prover);
    let mut refused = [0_u32; 13];
    for bit in 0..8 * PROOF_BYTES {
        let mut wrong = proof;
        wrong[bit / 8] ^= 1 << (bit % 8);
        let error = ask(&checker, &wrong, &demand()).expect_err("it was changed");
        refused[error as usize] += 1;
    }
    assert_eq!(refused[Denied::Key as usize], 32, "no other key is one bit away");
    assert_eq!(refused[Denied::Forged as usize], 8 * PROOF_BYTES as u32 - 32);
    for bit in 0..8 * BODY.len() {
        let mut body = BODY.to_vec();
        body[bit / 8] ^= 1 << (bit % 8);
        let checked = checker.check(NOW, &proof, METHOD, 4_096, &body, &demand());
        assert_eq!(checked, Err(Denied::Forged));
    }
    for (method, data_len) in [(METHOD + 1, 4_096), (METHOD, 4_097)] {
        let checked = checker.check(NOW, &proof, method, data_len, BODY, &demand());
        assert_eq!(checked, Err(Denied::Forged));
    }
    let other = Prover::new(ring(&[1]).mint(capability()).expect("a grant"), 1);
    let mut mixed = prove(&mut other.clone());
    mixed[..CAPABILITY_BYTES].copy_from_slice(&proof[..CAPABILITY_BYTES]);
    assert_eq!(ask(&checker, &mixed, &demand()), Err(Denied::Forged));
    assert_eq!(ask(&checker, &proof, &demand()), Ok(()), "its number is not used yet");
}

/// A client cannot give itself more than it was granted: it does not have the key.
#[test]
fn a_capability_that_its_holder_has_changed_is_forged() {
    let seed = 1;
    println!("seed {seed}");
    let (checker, mut prng) = (checker(), Prng::new(seed));
    let changes: [fn(&mut Capability); 8] = [
        |capability| capability.rights = Rights::ALL,
        |capability| capability.scope = Scope::ALL,
        |capability| (capability.offset, capability.byte_len) = (0, u64::MAX),
        |capability| capability.expires_ms = u64::MAX,
        |capability| capability.serial += 1,
        |capability| capability.tenant = 0,
        |capability| capability.layout = 0,
        |capability| capability.key = 1,
    ];
    for change in changes {
        let mut grant = grant();
        change(&mut grant.capability);
        let proof = prove(&mut Prover::new(grant, prng.next_u64()));
        assert_eq!(ask(&checker, &proof, &demand()), Err(Denied::Forged));
    }
}

#[test]
fn a_secret_of_keys_that_have_changed_meanwhile_does_not_hold() {
    let checker = checker();
    let bytes = grant().capability.emit();
    let key = checker.state().ring.key(2).expect("a key");
    let (secret, generation) = (key.secret(&bytes), checker.state().generation);
    assert!(checker.state().holds(generation, 2, &bytes, &secret));
    checker.set_keys(ring(&[2, 3]));
    assert!(checker.state().holds(generation, 2, &bytes, &secret), "it is still there");
    checker.set_keys(ring(&[3]));
    assert!(!checker.state().holds(generation, 2, &bytes, &secret), "it is gone");
    assert!(!format!("{checker:?}").contains("secrets"), "a secret is not shown");
}
