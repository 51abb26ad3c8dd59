//! Peers that are better left alone for a while, so that whoever has a choice goes elsewhere.

use crate::error::ConnectError;
use crate::limits::{BLACKLIST_DOUBLINGS, BLACKLIST_MAX, BLACKLIST_MEMORY};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use towpath_base::{Nanos, Time};
use towpath_proto::DownReason;
use towpath_proto::wire::Refusal;

/// Why a peer is on the blacklist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ListedFor {
    /// It could not be connected to, or refused.
    ConnectFailed,
    /// A link to it went down, and not in order.
    LinkLost,
    /// The application asked for it: its requests were too slow, say.
    Asked,
}

/// A peer on the blacklist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Where it listens.
    pub addr: SocketAddr,
    /// What it did last.
    pub reason: ListedFor,
    /// How often of late: each time doubles the next stay.
    pub times: u32,
    /// Until when it is listed, on the clock of the endpoint's device.
    pub until: Time,
}

/// The peers that an endpoint has had trouble with, by the addresses that it dialled. Clones show
/// the same list, on any thread.
///
/// It is advice: nothing is refused. Whoever can choose (a replica, a server of a pool) asks
/// [`is_listed`](Self::is_listed) or [`first_choice`](Self::first_choice). The endpoint lists a
/// peer when it cannot connect to it, or when a link to it is lost, and takes it off when its time
/// is over. It holds 1,024 at most; more push out those whose time is over first.
#[derive(Clone, Debug)]
pub struct Blacklist {
    entries: Arc<Mutex<Vec<Entry>>>,
    span: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    listing: Listing,
    /// Its time is not over; later it is only remembered.
    is_listed: bool,
}

impl Blacklist {
    pub(crate) fn new(span: Nanos) -> Self {
        Self { entries: Arc::default(), span }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        // Every change is complete in itself, so a panic elsewhere leaves a sound list.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a peer is listed now, as of the endpoint's last turn.
    #[must_use]
    pub fn is_listed(&self, addr: SocketAddr) -> bool {
        self.entries().iter().any(|entry| entry.is_listed && entry.listing.addr == addr)
    }

    /// All that are listed now.
    #[must_use]
    pub fn listings(&self) -> Vec<Listing> {
        let entries = self.entries();
        entries.iter().filter(|entry| entry.is_listed).map(|entry| entry.listing).collect()
    }

    /// Which of several peers to go to: the first that is not listed, else the one whose time is
    /// over first; `None` of none.
    #[must_use]
    pub fn first_choice(&self, peers: &[SocketAddr]) -> Option<usize> {
        let entries = self.entries();
        let until = |peer: SocketAddr| {
            let mut listed = entries.iter().filter(|entry| entry.is_listed);
            let found = listed.find(|entry| entry.listing.addr == peer);
            found.map_or(Time::ZERO, |entry| entry.listing.until)
        };
        (0..peers.len()).min_by_key(|&index| until(peers[index]))
    }

    /// Lists a peer; again, for twice as long, if it was listed a short time ago.
    pub(crate) fn list(&self, now: Time, addr: SocketAddr, reason: ListedFor) {
        let mut entries = self.entries();
        let known = entries.iter().position(|entry| entry.listing.addr == addr);
        let before = known.map_or(0, |place| entries.swap_remove(place).listing.times);
        let span = self.span.saturating_mul(1 << before.min(BLACKLIST_DOUBLINGS));
        let first = (0..entries.len()).min_by_key(|&place| entries[place].listing.until);
        if let Some(first) = first.filter(|_| entries.len() == BLACKLIST_MAX) {
            entries.swap_remove(first);
        }
        let times = before.saturating_add(1);
        let listing = Listing { addr, reason, times, until: now + span };
        entries.push(Entry { listing, is_listed: true });
    }

    /// Takes off those whose time is over, and forgets those that have been off for long. When to
    /// look again.
    pub(crate) fn expire(&self, now: Time) -> Time {
        let mut entries = self.entries();
        for entry in entries.iter_mut() {
            entry.is_listed &= entry.listing.until > now;
        }
        entries.retain(|entry| entry.listing.until + BLACKLIST_MEMORY > now);
        let due = entries.iter().map(|entry| {
            let rest = if entry.is_listed { Nanos::ZERO } else { BLACKLIST_MEMORY };
            entry.listing.until + rest
        });
        due.min().unwrap_or(Time::NEVER)
    }

    /// Forgets a peer, and what it has done.
    pub(crate) fn pardon(&self, addr: SocketAddr) {
        self.entries().retain(|entry| entry.listing.addr != addr);
    }
}

/// Whether a failure to connect is the peer's; what this side could not do is none of it.
pub(crate) fn blames_peer(error: &ConnectError) -> bool {
    !matches!(
        error,
        ConnectError::Local { .. }
            | ConnectError::TooMany { .. }
            | ConnectError::Class { .. }
            | ConnectError::App { .. }
            | ConnectError::Refused {
                refusal: Refusal::Paths { .. }
                    | Refusal::Fallback { .. }
                    | Refusal::Carrier { .. }
                    | Refusal::Family,
                ..
            }
            | ConnectError::ShutDown
    )
}

/// Whether a link that ended so was lost, and not left.
pub(crate) fn was_lost(reason: DownReason) -> bool {
    matches!(reason, DownReason::Silent(_) | DownReason::PeerGone | DownReason::PathsFailed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Nanos = Nanos::from_secs(1);

    fn peer(port: usize) -> SocketAddr {
        ([10, 0, (port >> 8) as u8, port as u8], 7).into()
    }

    fn secs(secs: u64) -> Time {
        Time::ZERO + Nanos::from_secs(secs)
    }

    #[test]
    fn a_peer_is_listed_for_a_time_that_doubles_and_forgotten_when_it_behaves() {
        let list = Blacklist::new(SPAN);
        let mut now = secs(5);
        let mut stays = Vec::new();
        for _ in 0..9 {
            list.list(now, peer(1), ListedFor::LinkLost);
            assert!(list.is_listed(peer(1)) && !list.is_listed(peer(2)));
            let until = list.listings()[0].until;
            stays.push(until.since(now).0 / SPAN.0);
            assert_eq!(list.expire(until), until + BLACKLIST_MEMORY, "it is remembered");
            assert!(!list.is_listed(peer(1)), "its time is over");
            now = until;
        }
        assert_eq!(stays, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(list.expire(now + BLACKLIST_MEMORY), Time::NEVER);
        list.list(now, peer(1), ListedFor::Asked);
        assert_eq!(list.listings()[0].times, 1);
        list.pardon(peer(1));
        assert!(list.listings().is_empty());
    }

    #[test]
    fn the_first_choice_is_who_is_not_listed_else_who_is_free_first() {
        let list = Blacklist::new(SPAN);
        let all = [peer(1), peer(2), peer(3)];
        assert_eq!(list.first_choice(&all), Some(0));
        list.list(secs(3), peer(1), ListedFor::ConnectFailed);
        assert_eq!(list.first_choice(&all), Some(1));
        list.list(secs(1), peer(2), ListedFor::ConnectFailed);
        list.list(secs(2), peer(3), ListedFor::ConnectFailed);
        assert_eq!(list.first_choice(&all), Some(1));
        assert_eq!(list.first_choice(&[]), None);
    }

    #[test]
    fn a_full_list_drops_who_would_be_off_first() {
        let list = Blacklist::new(SPAN);
        for port in 0..BLACKLIST_MAX + 10 {
            list.list(secs(port as u64), peer(port), ListedFor::ConnectFailed);
        }
        assert_eq!(list.listings().len(), BLACKLIST_MAX);
        assert!(!list.is_listed(peer(9)) && list.is_listed(peer(10)));
    }
}
