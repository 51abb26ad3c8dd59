//! Goodput over a lossy virtual wire (100 Gb/s, 10 us, MTU 4096): `goodput [seed] [window KiB]`.

use towpath_lab::goodput::{Study, lossy_goodput};

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let seed = args.next().unwrap_or(1);
    let window_bytes = args.next().map_or(Study::new(0, 0.0).window_bytes, |kib| kib << 10);
    println!("seed {seed}, window {} KiB", window_bytes >> 10);
    println!("     loss   Gb/s  bound  ratio  chunk B  again %  spurious %  timeouts");
    for one_in in [0.0, 16_384.0, 4_096.0, 1_024.0, 256.0, 100.0] {
        let loss = if one_in > 0.0 { 1.0 / one_in } else { 0.0 };
        match lossy_goodput(Study { window_bytes, ..Study::new(seed, loss) }) {
            Ok(seen) => println!(
                "{loss:>9.6} {:>6.1} {:>6.1} {:>6.2} {:>8.0} {:>8.2} {:>11.1} {:>9}",
                seen.bits_per_s / 1e9,
                seen.bound_bits_per_s / 1e9,
                seen.bits_per_s / seen.bound_bits_per_s,
                seen.chunk_bytes,
                seen.retransmitted * 100.0,
                seen.spurious * 100.0,
                seen.timeouts
            ),
            Err(failure) => println!("{loss:>9.6} {failure}"),
        }
    }
}
