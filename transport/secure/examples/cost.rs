//! What sealing and opening cost, beside the CRC32C that they replace.
//!
//! ```text
//! cargo run --profile dist -p towpath-secure --example cost
//! ```
//!
//! Each line is the median of short rounds that take turns: all see the same machine, and few are
//! interrupted.

use std::hint::black_box;
use std::io::Write as _;
use std::time::Instant;
use towpath_base::crc::crc32c;
use towpath_base::{Prng, Time};
use towpath_secure::{PairSecret, Role, RollOver, SealedLink, Sealing, Stream};

const SIZES: [usize; 3] = [64, 4_096, 65_536];
const ROUNDS: usize = 401;
const ROUND_BYTES: usize = 256 << 10;

/// Both ends of a link in one mode, with the next number.
struct Pair {
    client: SealedLink,
    server: SealedLink,
    number: u64,
}

impl Pair {
    fn new(sealing: Sealing) -> Self {
        let link = PairSecret::new([7; 32]).link(b"client", b"server");
        let rule = RollOver { seals: u64::MAX, ..RollOver::default() };
        let end = |side| SealedLink::new(&link, side, sealing, 1, rule, Time(0));
        Self { client: end(Role::Client), server: end(Role::Server), number: 0 }
    }

    fn seal_and_open(&mut self, body: &mut [u8]) {
        let mut header = [0; 64];
        header[8..16].copy_from_slice(&self.number.to_le_bytes());
        self.number += 1;
        let (text, tag) = body.split_at_mut(body.len() - 16);
        let sealed = self.client.seal(Time(0), Stream::Chunks(0), &mut header, text);
        tag.copy_from_slice(&sealed.expect("a fresh number"));
        let opened = self.server.open(Time(0), &header, body);
        black_box(opened.expect("as it was sealed"));
    }
}

/// Nanoseconds for each of `count` calls.
fn time(count: usize, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..count).for_each(|_| call());
    start.elapsed().as_nanos() as f64 / count as f64
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{:>8} {:<28} {:>10} {:>8}", "bytes", "both ends together", "ns", "GB/s")?;
    for size in SIZES {
        let count = ROUND_BYTES / (size + 512);
        let mut body = vec![0; size + 16];
        Prng::new(1).fill(&mut body);
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            // A pair for each round keeps each key far below its limit.
            let mut encrypt = Pair::new(Sealing::Encrypt);
            let mut sign = Pair::new(Sealing::Authenticate);
            times[0].push(time(count, || {
                // The sender sums what it sends, the receiver what came.
                black_box(crc32c(black_box(&body[..size])));
                black_box(crc32c(black_box(&body[..size])));
            }));
            times[1].push(time(count, || encrypt.seal_and_open(&mut body)));
            times[2].push(time(count, || sign.seal_and_open(&mut body)));
        }
        let names = ["crc32c twice", "encrypt: seal and open", "authenticate: seal and open"];
        for (name, times) in names.into_iter().zip(&mut times) {
            let ns = median(times);
            writeln!(out, "{size:>8} {name:<28} {ns:>10.0} {:>8.2}", size as f64 / ns)?;
        }
    }
    Ok(())
}
