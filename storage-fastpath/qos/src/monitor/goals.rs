//! What a period is to bring each client, and how much of the server each may take up for it.
//!
//! A server that does I/Os in the order of their arrival divides itself among clients as they have
//! I/Os under way. So each engine keeps its part of its depth under way, as long as it is not
//! behind its goal: what it has reserved, and its part by weight of what nobody has.

use super::clients::Client;
use super::{Monitor, Slot};
use crate::even;
use alloc::vec::Vec;

/// A window of this size leaves an engine all of its depth.
pub const WINDOW_ALL: u16 = u16::MAX;

impl Monitor {
    /// Sets the goals of the period that begins.
    pub(super) fn set_goals(&mut self) {
        let (one, whole) = (self.config.profiled.one, self.config.period);
        for client in self.clients.iter_mut().flatten() {
            client.goal = client.reservation;
        }
        let sum = |of: fn(&Client) -> u32| self.live().map(|client| u64::from(of(client))).sum();
        let (promised, likely): (u64, u64) = (sum(|client| client.goal), sum(Client::likely));
        let left = u64::from(self.capacity.estimate()).saturating_sub(promised);
        let spare = left + promised - likely;
        // What those that want more leave is for whoever comes to want some within the period.
        let left = self.share_out(left, |client| client.most(one));
        let left = self.share_out(left, |client| client.bound(one));
        for client in self.clients.iter_mut().flatten() {
            client.expected = client.goal;
        }
        // What will probably not be used of reservations comes on top, and what is tried: goals are
        // of what was seen.
        let tried = u64::from(self.capacity.tokens() - self.capacity.estimate());
        self.share_out(promised - likely + tried, |client| client.most(one));
        // Reservations are used up some ticks early: a client that is served then, and has no more
        // to do, is one that wants no more. All together take half of what is spare for that, or
        // what is beyond reservations would go by these, and not by weight.
        let early = even::careful(whole, self.config.tick);
        let ahead = |tokens: u32| {
            let most = u128::from(tokens) * u128::from(whole.0) / u128::from(early.0.max(1));
            let part = u128::from(tokens) * u128::from(spare) / (2 * u128::from(promised.max(1)));
            u32::try_from(most.min(u128::from(tokens) + part)).unwrap_or(u32::MAX)
        };
        for client in self.clients.iter_mut().flatten() {
            core::mem::swap(&mut client.goal, &mut client.expected);
            let least = ahead(client.reservation);
            client.goal = client.goal.max(least);
            client.expected = client.expected.max(least);
        }
        // So few cannot use the server up: none of them is in another's way.
        if left > 0 {
            self.goal_max = 0;
            return;
        }
        self.goal_max = self.live().map(|client| client.goal).max().unwrap_or(0);
    }

    /// Raises goals by weight, up to what `most` says: what is left then.
    fn share_out(&mut self, mut left: u64, most: impl Fn(&Client) -> u32) -> u64 {
        let weight = |client: &Client| u64::from(client.share.weight.max(1));
        // Place, and how much more its goal may be.
        let mut takers: Vec<(usize, u64)> = Vec::new();
        for (place, client) in self.clients.iter().enumerate() {
            let Some(client) = client else { continue };
            let room = most(client).saturating_sub(client.goal);
            if room > 0 {
                takers.push((place, room.into()));
            }
        }
        // Those that want the least for their weight get all of it, the others divide the rest.
        let of = |place: usize| self.clients[place].as_ref().map_or(1, weight);
        takers.sort_unstable_by(|&(a, room_a), &(b, room_b)| {
            let cross = |room: u64, place| u128::from(room) * u128::from(of(place));
            cross(room_a, b).cmp(&cross(room_b, a))
        });
        let mut weights: u64 = takers.iter().map(|&(place, _)| of(place)).sum();
        for (place, room) in takers {
            let Some(client) = &mut self.clients[place] else { continue };
            let part = u128::from(left) * u128::from(weight(client)) / u128::from(weights.max(1));
            let part = u64::try_from(part).unwrap_or(u64::MAX).min(room);
            weights -= weight(client);
            left -= part;
            client.goal = client.goal.saturating_add(part as u32);
        }
        left
    }

    /// What part of its depth a client has for its goal.
    pub(super) fn window(&self, slot: Slot) -> u16 {
        let most = u64::from(self.goal_max);
        let goal = self.client(slot).map_or(0, |client| client.goal);
        if !self.config.rules.keeps_windows || most == 0 {
            return WINDOW_ALL;
        }
        let all = u64::from(WINDOW_ALL);
        let part = (u64::from(goal) * all).div_ceil(most);
        part.clamp(1, all) as u16
    }
}

impl Client {
    /// What it could use in a period: all that one client can do, or what it did in the last one,
    /// if it had nothing more to do then.
    fn most(&self, one: u32) -> u32 {
        let wanted = if self.could_do_more() { one } else { self.done_before() };
        wanted.min(self.bound(one))
    }

    /// It wanted more than it got in the last period, and what it lacked was the server's.
    fn could_do_more(&self) -> bool {
        self.wants_more && !self.is_out_of_reach()
    }

    /// What it will use of its reservation, by what it did in the last period.
    fn likely(&self) -> u32 {
        if self.could_do_more() { self.goal } else { self.done_before().min(self.goal) }
    }

    /// What it may do in a period.
    pub(super) fn bound(&self, one: u32) -> u32 {
        one.min(self.share.limit.unwrap_or(u32::MAX))
    }
}
