//! What the checks of a 4 KiB write cost: that of its capability, and that of its data.
//!
//! `cargo run --profile dist -p towpath-fastpath --example cap_bench`

use std::hint::black_box;
use std::time::Instant;

use towpath_base::crc::crc32c;
use towpath_fastpath::cap::{Capability, Checker, Demand, KeyRing, Prover, Rights, Scope};

/// Checks in a round: a round then takes some milliseconds, far above what reading a clock takes.
const CHECKS: u32 = 10_000;
/// Rounds, of which the median counts.
const ROUNDS: usize = 9;
/// What stands before the data of a 4 KiB write and is under the tag: its header and one checksum.
const HEADER_BYTES: usize = 44;
/// The method of a write (docs/storage-protocol.md); any other costs the same.
const METHOD: u16 = 2;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let now_ms = 1_700_000_000_000;
    let ring = KeyRing::parse(&format!("7 {}", "5a".repeat(32)))?;
    let capability = Capability {
        rights: Rights::READ | Rights::WRITE,
        scope: Scope::chunk(42),
        expires_ms: now_ms + 60_000,
        ..Capability::everything()
    };
    let mut prover = Prover::new(ring.mint(capability)?, 1);
    let checker = Checker::new(ring, now_ms - 1_000);
    let demand = Demand { rights: Rights::WRITE, chunk: Some(42), ..Demand::default() };
    let header = [7_u8; HEADER_BYTES];

    let mut each = Vec::new();
    for _ in 0..ROUNDS {
        let prove = |_| prover.prove(now_ms, METHOD, 0, &[&header[..]]);
        let proofs: Vec<_> = (0..CHECKS).map(prove).collect();
        let begin = Instant::now();
        for proof in &proofs {
            checker.check(now_ms, proof, METHOD, 0, black_box(&header), &demand)?;
        }
        each.push(begin.elapsed().as_nanos() as f64 / f64::from(CHECKS));
    }
    show("capability check", each);

    let packet = vec![3_u8; 2_048];
    let mut each = Vec::new();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        for _ in 0..CHECKS {
            black_box(crc32c(black_box(&packet)));
        }
        each.push(begin.elapsed().as_nanos() as f64 / f64::from(CHECKS));
    }
    show("CRC32C of 2 KiB", each);
    Ok(())
}

fn show(what: &str, mut each: Vec<f64>) {
    each.sort_by(f64::total_cmp);
    let last = each.len() - 1;
    let middle = each[each.len() / 2];
    println!("{what}: {middle:.0} ns (median; from {:.0} to {:.0})", each[0], each[last]);
}
