//! Starting points for what endpoints are mostly used for.

use super::EndpointConfig;
use towpath_base::Nanos;

impl EndpointConfig {
    /// For few links, long messages and much under way. What differs from [`new`](Self::new):
    ///
    /// - `quota_chunks`, 512: a reader may be away for 2.5 ms at 100 Gb/s (30 MiB) before the
    ///   sender stalls.
    /// - `credit_total`, 8,192: 16 channels of that quota on a link.
    /// - `send_pools`, 1,024 of 64 KiB, 128 of 1 MiB, shorter ones as by default: 128 MiB of long
    ///   messages are under way or being filled: 10 ms at 100 Gb/s.
    /// - `spin`, 200 us: a pause that is shorter, as for a read of a fast disk, costs no waking of
    ///   the worker.
    ///
    /// It takes 201 MiB for sending when all is used. Receive memory is as by default, but one
    /// stalled reader may hold 30 MiB.
    #[must_use]
    pub fn throughput() -> Self {
        Self::new()
            .quota_chunks(512)
            .credit_total(8192)
            .send_pools(&[(256, 4096), (4096, 2048), (64 << 10, 1024), (1 << 20, 128)])
            .spin(Nanos::from_micros(200))
    }

    /// For short messages that are answered at once, where a core may be spent on that. What
    /// differs from [`new`](Self::new):
    ///
    /// - `spin`, 1 ms: a worker that has something to do each millisecond never sleeps, so that no
    ///   message waits until it is woken.
    /// - `ahead_bytes`, 64 KiB: a short message waits behind no more than that at the device: 5 us
    ///   at 100 Gb/s, where it is 21 by default.
    /// - `progress_budget`, 16: no more than 16 packets are taken in before the first is answered:
    ///   64 KiB, as above.
    ///
    /// It is not for long messages: a poll takes in less of them, and each turn costs acks.
    #[must_use]
    pub fn latency() -> Self {
        Self::new().spin(Nanos::from_millis(1)).ahead_bytes(64 << 10).progress_budget(16)
    }

    /// For a server with a thousand peers. What differs from [`new`](Self::new):
    ///
    /// - `links_max`, 1,024: the peers.
    /// - `receives_ready`, 64: 3.75 MiB for a link in place of 30; one peer may still have 100
    ///   Gb/s under way for 314 us.
    /// - `quota_chunks`, 16: a stalled reader holds 0.94 MiB in place of 7.5, and messages of up
    ///   to 128 KiB still come whole.
    /// - `credit_total`, 256: 16 channels of that quota on a link; a link whose readers all stall
    ///   holds 15 MiB.
    ///
    /// Where receives are shared and replaced in each poll (the userspace NIC) there are 16,384
    /// for all links together.
    #[must_use]
    pub fn many_links() -> Self {
        Self::new().links_max(1024).receives_ready(64).quota_chunks(16).credit_total(256)
    }

    /// For a program that may take a few MiB, and whose messages are short. What differs from
    /// [`new`](Self::new):
    ///
    /// - `links_max`, 4: each link has its receives, and 1 MiB to copy short messages together.
    /// - `chunk_bytes_max`, 16,320: with its header that is four packets of 4,096 bytes, which
    ///   leave in one offloaded send.
    /// - `receives_ready`, 32: 512 KiB for a link.
    /// - `progress_budget`, 16: 256 KiB more for the first link, and no more than that in one
    ///   poll.
    /// - `quota_chunks`, 16: a stalled reader holds 256 KiB, and messages of up to 96 KiB come
    ///   whole.
    /// - `credit_total`, 64: four channels of that quota; a link holds 1 MiB at most.
    /// - `receive_buffers_max`, 256: 4 MiB for what all links and their readers hold.
    /// - `send_pools`, 256 of 256 bytes, 64 of 4 KiB, 32 of 16 KiB: 832 KiB; longer messages have
    ///   several segments.
    /// - `memory_quiet`, 100 ms: what a burst took goes back to the system soon.
    #[must_use]
    pub fn small_memory() -> Self {
        Self::new()
            .links_max(4)
            .chunk_bytes_max(4 * 4096 - 64)
            .receives_ready(32)
            .progress_budget(16)
            .quota_chunks(16)
            .credit_total(64)
            .receive_buffers_max(256)
            .send_pools(&[(256, 256), (4096, 64), (16 << 10, 32)])
            .memory_quiet(Nanos::from_millis(100))
    }
}
