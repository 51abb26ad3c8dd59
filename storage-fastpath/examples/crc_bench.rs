//! What a slice costs: a pass of CRC32C over it, or its share of a CRC that follows from checksums.
//!
//! `cargo run --profile dist -p towpath-fastpath --example crc_bench`. The bytes stay in the cache,
//! which flatters the pass. Medians of the rounds, and the least and most.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;
use towpath_base::Prng;
use towpath_base::crc::{crc32c, crc32c_then_page};
use towpath_fastpath::ChunkId;
use towpath_fastpath::run::content_crcs;
use towpath_fastpath::slice::{SLICE_BYTES, writer_crcs};

/// Slices of one request of 64 KiB.
const SLICES: usize = 16;
/// Each way takes its turn in each.
const ROUNDS: usize = 41;

fn main() {
    let mut bytes = vec![0; SLICES * SLICE_BYTES];
    Prng::new(1).fill(&mut bytes);
    let (chunk, first) = (ChunkId(7), 1_000);
    let crcs = writer_crcs(chunk, first * SLICE_BYTES as u64, &bytes);
    let contents: Vec<_> = content_crcs(chunk, first, crcs.iter().copied()).collect();
    let expected = crc32c(&bytes);

    let pass = || crc32c(black_box(&bytes));
    let by_pages = || {
        let (pages, _) = black_box(&bytes[..]).as_chunks::<SLICE_BYTES>();
        pages.iter().map(|page| crc32c(page)).fold(0, crc32c_then_page)
    };
    let plain = || black_box(&contents).iter().copied().fold(0, crc32c_then_page);
    let bound = || {
        let crcs = black_box(&crcs).iter().copied();
        content_crcs(chunk, first, crcs).fold(0, crc32c_then_page)
    };
    let library = || {
        let (algorithm, length) = (crc_fast::CrcAlgorithm::Crc32Iscsi, SLICE_BYTES as u64);
        let join = |front, page: &u32| {
            crc_fast::checksum_combine(algorithm, front, u64::from(*page), length)
        };
        black_box(&contents).iter().fold(0, join) as u32
    };
    let ways: [(&str, usize, &dyn Fn() -> u32); 5] = [
        ("a pass over the bytes", 2_000, &pass),
        ("a pass, page by page", 2_000, &by_pages),
        ("from CRCs of the bytes", 20_000, &plain),
        ("from slice checksums", 20_000, &bound),
        ("combined by the library", 100, &library),
    ];
    let mut spans = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for ((name, times, way), spans) in ways.iter().zip(&mut spans) {
            let from = Instant::now();
            for _ in 0..*times {
                assert_eq!(way(), expected, "{name}");
            }
            spans.push(from.elapsed().as_nanos() as f64 / (times * SLICES) as f64);
        }
    }
    println!("ns a slice, in requests of {SLICES}: median (least to most)");
    for ((name, ..), mut spans) in ways.into_iter().zip(spans) {
        spans.sort_by(f64::total_cmp);
        let [least, middle, most] = [0, ROUNDS / 2, ROUNDS - 1].map(|at| spans[at]);
        println!("{name:<24} {middle:8.2} ({least:.2} to {most:.2})");
    }
}
