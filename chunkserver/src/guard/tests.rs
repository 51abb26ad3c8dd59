//! The files of a guard.

use super::*;
use std::fs;
use std::time::Duration;
use towpath_fastpath::cap::{Capability, Grant, KeyRing, Prover, Revoked};
use towpath_fastpath::proof::Shown;

fn line(id: u32) -> String {
    KeyRing::line(id, &[id as u8; 32])
}

fn grant(keys: &str) -> Grant {
    let capability = Capability { serial: 9, ..Capability::everything() };
    KeyRing::parse(keys).expect("keys").mint(capability).expect("a grant")
}

/// What a server makes of a listing that is proved by the grant.
fn ask(guard: &Guard, prover: &mut Prover, now_ms: u64) -> Result<(), Denied> {
    let body = b"";
    let proof = prover.prove(now_ms, 5, 0, &[body]);
    let shown = Shown::new(0x8005, &proof, 0).expect("a proof");
    guard.check(&shown, &StorageRequest::List { after: None, count_max: 0 }, 0).map(drop)
}

fn later() -> u64 {
    // As if the server had been started a while ago.
    system_ms() + 2_000
}

#[test]
fn keys_that_change_are_read_again_and_wrong_ones_are_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let (keys, revoked) = (folder.path().join("keys"), folder.path().join("revoked"));
    fs::write(&keys, line(1)).expect("written");
    let guard = Guard::open_at(&keys, &revoked, later).expect("a guard");
    let mut old = Prover::new(grant(&line(1)), 1);
    let mut new = Prover::new(grant(&line(2)), 2);
    assert_eq!(ask(&guard, &mut old, later() + 1_000), Ok(()));
    assert_eq!(ask(&guard, &mut new, later() + 1_000), Err(Denied::Key));
    fs::write(&keys, "nothing that could be a key").expect("written");
    // Longer than the guard takes to look.
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(ask(&guard, &mut old, later() + 1_000), Ok(()), "wrong keys change nothing");
    let until = |wanted: fn(Result<(), Denied>) -> bool, prover: &mut Prover| {
        for _ in 0..600 {
            let made = later() + 1_000;
            if wanted(ask(&guard, prover, made)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the keys were not read again");
    };
    fs::write(&keys, format!("{}\n{}\n", line(1), line(2))).expect("written");
    until(|found| found.is_ok(), &mut new);
    assert_eq!(ask(&guard, &mut old, later() + 1_000), Ok(()));
    fs::write(&keys, line(2)).expect("written");
    until(|found| found == Err(Denied::Key), &mut old);
    assert_eq!(ask(&guard, &mut new, later() + 1_000), Ok(()));
    fs::write(&keys, "# no more\n").expect("written");
    until(|found| found == Err(Denied::Key), &mut new);
    fs::write(&keys, line(2)).expect("written");
    until(|found| found.is_ok(), &mut new);
}

#[test]
fn what_is_revoked_is_in_its_file_before_that_is_said_and_holds_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let (keys, revoked) = (folder.path().join("keys"), folder.path().join("revoked"));
    fs::write(&keys, line(1)).expect("written");
    let guard = Guard::open_at(&keys, &revoked, later).expect("a guard");
    let mut prover = Prover::new(grant(&line(1)), 1);
    assert_eq!(ask(&guard, &mut prover, later() + 1_000), Ok(()));
    let told = guard.revoke(9, u64::MAX).expect("room");
    assert_eq!(told.recv(), Ok(Revocation::Done));
    let text = fs::read_to_string(&revoked).expect("a file");
    assert!(Revoked::parse(&text).expect("a list").contains(9));
    assert_eq!(ask(&guard, &mut prover, later() + 1_000), Err(Denied::Revoked));
    drop(guard);
    let guard = Guard::open_at(&keys, &revoked, later).expect("a guard");
    assert_eq!(ask(&guard, &mut prover, later() + 1_000), Err(Denied::Revoked));
    drop(guard);
    let mut flipped = text.clone().into_bytes();
    flipped[0] ^= 1;
    for bytes in [b"half a li".as_slice(), b"", b"9 18446744073709551615\n", b"\xff", &flipped] {
        fs::write(&revoked, bytes).expect("written");
        let error = Guard::open(&keys, &revoked).expect_err("nobody knows what was revoked");
        assert!(matches!(error, GuardError::Revoked { .. }), "{error}");
    }
}

#[test]
fn what_cannot_be_written_holds_and_is_not_said_to_be_durable() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys");
    fs::write(&keys, line(1)).expect("written");
    let nowhere = folder.path().join("no folder").join("revoked");
    let guard = Guard::open_at(&keys, &nowhere, later).expect("nothing was revoked yet");
    let told = guard.revoke(9, u64::MAX).expect("room");
    assert_eq!(told.recv(), Ok(Revocation::Failed));
    let mut prover = Prover::new(grant(&line(1)), 1);
    assert_eq!(ask(&guard, &mut prover, later() + 1_000), Err(Denied::Revoked));
}
