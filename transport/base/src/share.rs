//! How much of a common pool each of many peers may hold.

/// A peer may hold as much as a half of what is free.
///
/// With `n` peers that give nothing back, each then holds `1 / (n + 2)` of the pool, and
/// `2 / (n + 2)` stay free for the others. A peer that is alone still gets a third. A static share,
/// the pool divided by the most peers, would leave a lone peer next to nothing: servers take
/// thousands.
const FREE_PARTS: usize = 2;

/// Whether a peer that holds `held` of a pool, of which `free` are free, may take one more.
///
/// A peer that holds none may always take one. So a pool that is larger than the number of greedy
/// peers always has something for the others.
#[must_use]
pub const fn may_take(held: usize, free: usize) -> bool {
    free > 0 && (held == 0 || held < free / FREE_PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// What `peers` that give nothing back leave of a pool.
    fn left(pool: usize, peers: usize) -> usize {
        let (mut free, mut held) = (pool, vec![0; peers]);
        loop {
            let before = free;
            for held in &mut held {
                if may_take(*held, free) {
                    (*held, free) = (*held + 1, free - 1);
                }
            }
            if free == before {
                return free;
            }
        }
    }

    #[test]
    fn peers_that_give_nothing_back_leave_some_for_others() {
        for pool in [64, 256, 2048, 4096] {
            for peers in 1..=32 {
                let left = left(pool, peers);
                assert!(left >= 3, "{peers} peers leave {left} of {pool}");
                assert!(left * (peers + 2) >= pool, "{peers} peers leave {left} of {pool}");
            }
        }
    }

    #[test]
    fn a_peer_that_is_alone_gets_a_third() {
        for pool in [3, 64, 4096] {
            assert_eq!(pool - left(pool, 1), pool / 3, "of {pool}");
        }
    }

    #[test]
    fn a_peer_that_holds_none_takes_the_last_one() {
        assert!(may_take(0, 1) && !may_take(1, 1) && !may_take(0, 0));
    }
}
