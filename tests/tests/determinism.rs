//! A run is its seed: the same seed sends the same packets at the same times.

mod scenario;

use scenario::Scenario;

#[test]
fn the_same_seed_gives_the_same_packet_trace_and_another_seed_another() {
    let run = |seed| Scenario::draw(seed).run().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let mut hashes = Vec::new();
    for seed in 0..40 {
        let (first, second) = (run(seed), run(seed));
        assert_eq!(first, second, "seed {seed}");
        hashes.push(first.trace_hash);
    }
    println!("trace hash of seed 0: {:016x}", hashes[0]);
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 40, "no two seeds gave the same trace");
}
