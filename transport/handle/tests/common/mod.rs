//! Where endpoints of tests are, and what they send.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::net::{Ipv4Addr, SocketAddr};

pub const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

pub fn any_port() -> SocketAddr {
    (LOOPBACK, 0).into()
}

/// Bytes that tell where they belong.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    towpath_base::Prng::new(seed).fill(&mut bytes);
    bytes
}
