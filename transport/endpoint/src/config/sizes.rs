//! How many buffers, receives and completions follow from what was chosen.
//!
//! What a link needs follows from `paths`, those of its own paths that have a queue pair: a link
//! that a peer asked for may have fewer than [`Sizes::paths`]. One that rides on its
//! set-up connection alone counts as having one. What the endpoint makes once for all covers
//! links of any number.

use crate::carrier::Fallback;
use crate::limits::{
    CONTROL_RECVS, CONTROL_SENDS, LANE_CHANNELS, LANES_MAX, PARTIAL_PER_PATH, PATH_CHUNKS_MIN,
    PATHS_DEFAULT, PROBES_PER_PATH, RECEIVE_BUFFERS_MAX, RECEIVES_REPLENISHED,
};
use std::iter::repeat_n;
use towpath_proto::Class;
use towpath_proto::limits::{
    CHUNK_BYTES_MAX, CONTROL_OUTSTANDING_MAX, LANE_QUOTA_CHUNKS, NUMBER_WINDOW, PATHS_MAX,
};

/// How receives are posted, which the device's capabilities decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// Each path has a receive queue of its own.
    PerPath,
    /// The links of a class share one. It covers whatever their peers may have under way.
    Shared,
    /// The links of a class share one, and nothing arrives but while the endpoint polls. It covers
    /// what one poll takes in, however many links there are.
    Replenished,
}

impl Receiving {
    pub(crate) fn is_shared(self) -> bool {
        self != Self::PerPath
    }
}

/// What sizes follow from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) links_max: usize,
    pub(crate) paths: usize,
    pub(crate) fallback: Fallback,
    pub(crate) chunk_bytes_max: u32,
    pub(crate) quota_chunks: u32,
    pub(crate) credit_total: u32,
    pub(crate) receives_ready: u32,
    pub(crate) receive_buffers_max: usize,
    pub(crate) slack: usize,
    pub(crate) progress_budget: usize,
    pub(crate) send_queue_depth: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            links_max: 32,
            paths: PATHS_DEFAULT,
            fallback: Fallback::default(),
            chunk_bytes_max: CHUNK_BYTES_MAX,
            quota_chunks: 128,
            credit_total: 4096,
            receives_ready: 512,
            receive_buffers_max: RECEIVE_BUFFERS_MAX,
            slack: 16,
            progress_budget: 64,
            send_queue_depth: 512,
        }
    }
}

impl Sizes {
    /// Paths of a link that have a queue pair, at most.
    pub(crate) fn qp_paths_max(&self) -> usize {
        let below = if self.fallback == Fallback::RcThenTcp { 1 } else { 0 };
        (self.paths + below).min(PATHS_MAX)
    }

    /// The most queue pairs of links: those of paths, and one for acks each.
    pub(crate) fn qps_max(&self) -> usize {
        self.links_max * (self.qp_paths_max() + 1)
    }

    /// The largest of a size over all numbers of paths that a link may have.
    fn most(&self, of_paths: impl Fn(usize) -> usize) -> usize {
        (1..=self.qp_paths_max()).map(of_paths).max().unwrap_or(0)
    }

    /// How many receive buffers are posted, so that no chunk is ever dropped for want of one.
    ///
    /// A peer has no more numbers outstanding on a path than HELLO allows
    /// ([`path_chunks`](Self::path_chunks)), and each number takes one receive. With N = numbers
    /// that it may have outstanding on all paths, posted = N + reserve: whatever is held is
    /// replaced by other buffers, of which credit bounds how many there are (a piece that is held
    /// has a credit, and at most one buffer).
    ///
    /// Where nothing arrives but in a poll ([`Receiving::Replenished`]) it is enough that what one
    /// poll takes in finds a receive, and no number is refused. A link adds as much as one of a
    /// single path, however many it has:
    /// posted = min(sum over links, max([`RECEIVES_REPLENISHED`], paths)) + reserve.
    ///
    /// Between two repostings a device takes in at most one `progress(progress_budget)`: at most
    /// as many SENDs, each of which takes one receive however many frames it has. Those that are
    /// no more outstanding (duplicate, stale, control) and messages under way need
    /// reserve >= budget + 8 + 1 per path.
    pub(crate) fn receive_reserve(&self) -> usize {
        self.progress_budget + self.slack
    }

    /// Numbers that a peer may have outstanding on all paths, about.
    fn covered(&self) -> usize {
        self.credit_total.min(self.receives_ready) as usize
    }

    /// Receives posted for each link when those of a class share one queue.
    pub(crate) fn receives_per_link(&self, paths: usize, receiving: Receiving) -> usize {
        let numbers = match receiving {
            Receiving::Replenished => self.covered(),
            _ => paths * usize::from(self.path_chunks(paths, Receiving::Shared)),
        };
        numbers + CONTROL_OUTSTANDING_MAX + paths * (PARTIAL_PER_PATH + PROBES_PER_PATH)
    }

    /// Numbers that the peer may have outstanding on each path: what is posted covers them
    /// however slowly we poll. One path may have to carry everything.
    pub(crate) fn path_chunks(&self, paths: usize, receiving: Receiving) -> u16 {
        let share = match paths {
            _ if receiving == Receiving::Replenished => NUMBER_WINDOW as usize,
            1 => self.covered(),
            paths => 2 * self.covered() / paths,
        };
        share.clamp(PATH_CHUNKS_MIN, NUMBER_WINDOW as usize) as u16
    }

    /// Receives posted to each path when each has a queue of its own. A single path may carry
    /// everything. Of several each is filled up again from spare buffers when it has taken
    /// something in, so that it needs no more than what comes in between.
    pub(crate) fn receives_per_path(&self, paths: usize) -> usize {
        if paths == 1 {
            return self.receives_per_link(paths, Receiving::PerPath) + self.receive_reserve();
        }
        let between =
            self.progress_budget.max(usize::from(self.path_chunks(paths, Receiving::PerPath)));
        between + self.slack + CONTROL_OUTSTANDING_MAX + PARTIAL_PER_PATH
    }

    /// Buffers that take the places of those that a link and its application hold, kept for that
    /// from the start.
    pub(crate) fn spare_receives(&self, paths: usize) -> usize {
        if paths == 1 { 0 } else { self.covered() }
    }

    /// Receive buffers of each link when each path has a queue of its own.
    pub(crate) fn receives_of_link(&self, paths: usize) -> usize {
        paths * self.receives_per_path(paths) + self.spare_receives(paths)
    }

    /// The most receives in a queue that is one path's own.
    pub(crate) fn receives_of_path_max(&self) -> usize {
        self.most(|paths| self.receives_per_path(paths))
    }

    /// Work requests in the send queue of a path: chunks, and acks that left the control queue
    /// pair.
    pub(crate) fn path_sends(&self) -> usize {
        self.send_queue_depth as usize + CONTROL_SENDS
    }

    /// Receives posted for the links of a class that share one queue, given how many queue pairs
    /// the paths of each have.
    pub(crate) fn receives_of_links(
        &self,
        receiving: Receiving,
        links: impl Iterator<Item = usize>,
    ) -> usize {
        let (mut all, mut partial) = (0, 0);
        for paths in links {
            all += self.receives_per_link(paths, receiving);
            partial += paths.max(1) * PARTIAL_PER_PATH;
        }
        if all == 0 {
            return 0;
        }
        if receiving == Receiving::Replenished {
            all = all.min(partial.max(RECEIVES_REPLENISHED));
        }
        all + self.receive_reserve()
    }

    /// The most receives in a queue that the links of a class share: they may all be of one.
    pub(crate) fn receives_of_class(&self, receiving: Receiving) -> usize {
        self.most(|paths| self.receives_of_links(receiving, repeat_n(paths, self.links_max)))
    }

    /// The most receive buffers of all links.
    pub(crate) fn receives_max(&self, receiving: Receiving) -> usize {
        if receiving.is_shared() {
            let reserve = self.receive_reserve();
            let of_class = self.receives_of_class(receiving) - reserve;
            let of_links = self.receives_of_class(Receiving::Shared) - reserve;
            // Bounded for each class, and for all by what all links have.
            of_links.min(Class::COUNT * of_class) + Class::COUNT * reserve
        } else {
            self.links_max * self.most(|paths| self.receives_of_link(paths))
        }
    }

    /// What links could hold, and what they may.
    fn held_wanted_and_max(&self) -> (usize, usize) {
        let wanted = self.links_max * self.credit_total as usize;
        (wanted, wanted.min(self.receive_buffers_max.max(2 * self.links_max)))
    }

    /// How many buffers may be held before each link takes in no more than its share, and that
    /// share: all links together then hold no more than there may be, and what is posted is whole.
    pub(crate) fn held_shares(&self) -> (usize, usize) {
        let (wanted, most) = self.held_wanted_and_max();
        if wanted <= most {
            (usize::MAX, usize::MAX)
        } else {
            (most / 2, most / 2 / self.links_max)
        }
    }

    /// The most receive buffers that links may hold.
    pub(crate) fn held_max(&self) -> usize {
        self.held_wanted_and_max().1
    }

    /// The most receive slots: those that may be posted, and those that may be held, which are
    /// made when they are needed.
    pub(crate) fn slots_max(&self, receiving: Receiving) -> usize {
        // What the channels of lanes hold is beside the credit of the others.
        let of_lane = LANE_CHANNELS * self.quota_chunks.min(LANE_QUOTA_CHUNKS) as usize;
        let of_lanes = LANES_MAX.min(self.links_max) * of_lane;
        self.receives_max(receiving) + self.held_wanted_and_max().1 + of_lanes
    }

    /// The most completions that may wait on the data and on the control queue.
    pub(crate) fn completions_max(&self, receiving: Receiving) -> (usize, usize) {
        let sends = self.links_max * self.qp_paths_max() * self.path_sends();
        let control = self.links_max * (CONTROL_RECVS + CONTROL_SENDS);
        (self.receives_max(receiving) + sends, control)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_arrives_but_in_a_poll_thousands_of_links_share_what_one_poll_takes_in() {
        let config = Sizes { paths: 4, ..Sizes::default() };
        for links in [1, 8, 30, 100, 4096] {
            let posted = |receiving| config.receives_of_links(receiving, repeat_n(4, links));
            let (all, some) = (posted(Receiving::Shared), posted(Receiving::Replenished));
            // Several paths take little more than one.
            let lone = config.receives_of_links(Receiving::Replenished, repeat_n(1, links));
            assert!(some <= lone + links * 4 * (PARTIAL_PER_PATH + PROBES_PER_PATH));
            let partial = links * 4 * PARTIAL_PER_PATH;
            // A poll may take in its budget while each path is in the middle of a message.
            assert!(some >= partial + config.receive_reserve(), "{links} links");
            assert!(some <= RECEIVES_REPLENISHED.max(partial) + config.receive_reserve());
            assert!(some < all, "{links} links: {some} of {all}");
        }
        let none = |receiving| config.receives_of_links(receiving, repeat_n(4, 0));
        assert_eq!((none(Receiving::Shared), none(Receiving::Replenished)), (0, 0));
    }

    #[test]
    fn the_limits_of_many_links_hold_what_is_posted_and_a_bounded_number_of_held_buffers() {
        for links in [1, 32, 4096] {
            let config = Sizes { links_max: links, ..Sizes::default() };
            for receiving in [Receiving::PerPath, Receiving::Shared, Receiving::Replenished] {
                let held = config.slots_max(receiving) - config.receives_max(receiving);
                let of_lanes = links.min(LANES_MAX) * 2 * LANE_QUOTA_CHUNKS as usize;
                assert_eq!(held, (links * 4096).min(1 << 17) + of_lanes);
            }
            let (before, share) = config.held_shares();
            assert_eq!(
                (before, share),
                if links > 32 { (1 << 16, 16) } else { (usize::MAX, usize::MAX) }
            );
            let all = repeat_n(1, links);
            let posted = config.receives_of_links(Receiving::Replenished, all);
            assert!(config.receives_max(Receiving::Replenished) >= posted);
        }
    }
}
