//! One client: it asks for operation after operation, and checks each answer and its time.

use super::dice::Weather;
use super::model::{Asker, Broken, KEYS, Request};
use super::tally::Rides;
use std::collections::VecDeque;
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_proto::{Carrier, ChannelId, Outcome};
use towpath_transport::{Endpoint, Event, LinkId, PathReport, SendOptions};
use towpath_verbs::{Device, QpNum, QpState};

/// Operations under way of each client.
const DEPTH: usize = 8;

/// A client and its link.
pub struct Client<D: Device<Memory = Region>> {
    /// Its endpoint, which has one link.
    pub endpoint: Endpoint<D>,
    /// What lies between it and the network.
    pub weather: Weather,
    /// What its link rode on, one after the other.
    pub rides: Rides,
    /// The longest operation that it has had an answer to.
    pub longest: Nanos,
    asker: Asker,
    at: Option<(LinkId, ChannelId)>,
    /// When each operation under way began.
    begun: VecDeque<Time>,
    deadline: Nanos,
    /// It asks while it has asked for fewer.
    goal: u64,
    /// The next key to be read when all is read back.
    reads_back: u64,
}

impl<D: Device<Memory = Region>> Client<D> {
    /// One that has asked for nothing, whose operations come from `seed` and may take `deadline`
    /// each. The endpoint's link may be up or on its way; `open` says which, if it is up.
    pub fn new(endpoint: Endpoint<D>, weather: Weather, (seed, deadline): (u64, Nanos)) -> Self {
        Self {
            endpoint,
            weather,
            rides: Rides::default(),
            longest: Nanos::ZERO,
            asker: Asker::new(seed),
            at: None,
            begun: VecDeque::new(),
            deadline,
            goal: 0,
            reads_back: KEYS,
        }
    }

    /// Its link and channel, once they are there.
    #[must_use]
    pub fn at(&self) -> Option<(LinkId, ChannelId)> {
        self.at
    }

    /// What its link rides on.
    #[must_use]
    pub fn carrier(&self) -> Option<Carrier> {
        self.endpoint.carrier_of(self.at?.0)
    }

    /// Operations that were answered.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.asker.answered()
    }

    /// Goes on until it has asked for so many operations altogether.
    pub fn work_to(&mut self, operations: u64) {
        self.goal = self.goal.max(operations);
    }

    /// Asks for no more.
    pub fn rest(&mut self) {
        self.goal = self.asker.asked();
    }

    /// Reads all its keys once.
    pub fn read_back(&mut self) {
        self.rest();
        self.reads_back = 0;
    }

    /// Whether all that it was to ask for was answered.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.asker.under_way() == 0 && self.asker.asked() >= self.goal && self.reads_back == KEYS
    }

    /// Its link is up: it opens its channel there. Over TCP set-up this happens by itself.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn open(&mut self, link: LinkId) -> Result<(), Broken> {
        self.endpoint.open_channel(link, true).map_err(|_| Broken::Refused).map(drop)
    }

    /// Does all that can be done now; whether that was anything.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn turn(&mut self) -> Result<bool, Broken> {
        let mut busy = self.endpoint.poll() > 0;
        while let Some(event) = self.endpoint.next_event() {
            busy = true;
            self.on_event(event)?;
        }
        self.ask()?;
        self.endpoint.flush();
        let oldest = self.begun.front().zip(self.asker.oldest());
        let took = oldest.map(|(&at, number)| (self.endpoint.now().since(at), number));
        match took {
            Some((took, number)) if took > self.deadline => {
                Err(Broken::Late { number, took, deadline: self.deadline })
            }
            _ => Ok(busy),
        }
    }

    fn on_event(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::Connected { link, .. } => self.open(link)?,
            Event::ChannelOpened { link, channel, .. } => self.at = Some((link, channel)),
            Event::Message(message) => {
                let taken = self.asker.take_in(&message.to_vec());
                self.endpoint.release(message);
                taken?;
                let at = self.begun.pop_front().unwrap_or(Time::ZERO);
                self.longest = self.longest.max(self.endpoint.now().since(at));
            }
            Event::Sent { outcome: Outcome::Delivered, .. } => {}
            Event::Sent { outcome, .. } => return Err(Broken::Outcome(outcome)),
            Event::CarrierChanged { from, to, .. } => self.rides.note(from, to),
            Event::PathChanged { .. } | Event::Device { .. } => {}
            other => return Err(Broken::Event(format!("{other:?}"))),
        }
        Ok(())
    }

    /// The next operation, if there is to be one.
    fn next(&mut self) -> Option<Request> {
        if self.asker.under_way() >= DEPTH {
            return None;
        }
        if self.asker.asked() < self.goal {
            return Some(self.asker.ask());
        }
        if self.reads_back < KEYS {
            self.reads_back += 1;
            return Some(self.asker.read(self.reads_back - 1));
        }
        None
    }

    fn ask(&mut self) -> Result<(), Broken> {
        let Some((link, channel)) = self.at else { return Ok(()) };
        while let Some(request) = self.next() {
            let now = self.endpoint.now();
            self.begun.push_back(now);
            let options = SendOptions::new().deadline(now + self.deadline);
            let buf = self.endpoint.copy(&request.emit()).map_err(|_| Broken::Refused)?;
            self.endpoint.send(link, channel, buf, options).map_err(|_| Broken::Refused)?;
        }
        Ok(())
    }

    /// Puts one of its link's queue pairs in error, any by `draw`; false if there is none.
    pub fn break_queue_pair(&mut self, draw: u64) -> bool {
        let Some((link, _)) = self.at else { return false };
        let all: Vec<QpNum> = self.endpoint.paths(link).map(|path| path.qp_num).collect();
        let Some(&qp_num) = all.get(draw as usize % all.len().max(1)) else { return false };
        self.endpoint.device_mut().modify_qp(qp_num, QpState::Err).is_ok()
    }

    /// Puts those of its queue pairs in error that carry a carrier.
    pub fn break_carrier(&mut self, carrier: Carrier) {
        let Some((link, _)) = self.at else { return };
        let of = |path: &PathReport| path.facts.carrier == carrier;
        let all: Vec<QpNum> =
            self.endpoint.paths(link).filter(of).map(|path| path.qp_num).collect();
        for qp_num in all {
            // One that is being made anew is none yet.
            let _ = self.endpoint.device_mut().modify_qp(qp_num, QpState::Err);
        }
    }

    /// Whether its link has nothing under way any more.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.at.is_none_or(|(link, _)| self.endpoint.is_idle(link))
    }

    /// That nothing of what has been is left, and nothing was counted that must not be.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn check(&self) -> Result<(), Broken> {
        let census = self.endpoint.buffers();
        let left = census.recv_all - census.recv_free - census.recv_posted;
        if left > 0 {
            return Err(Broken::Buffers { left });
        }
        let stats = self.endpoint.stats_of_all_links();
        let breaches = self.endpoint.endpoint_stats().tcp_breaches;
        // What was on its way to a queue pair that is made anew may come to the new one.
        let stale = if stats.paths_renewed > 0 { 0 } else { stats.chunks_stale };
        if stats.violations + stale + breaches > 0 {
            return Err(Broken::Counted(format!("{stats:?}, {breaches} breaches")));
        }
        Ok(())
    }
}
