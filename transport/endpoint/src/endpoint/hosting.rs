//! Connecting and listening: set-up conversations, and the links that they become.

use super::Endpoint;
use crate::error::{AcceptError, ConnectError, LinkError, ListenError};
use crate::event::Event;
use crate::ids::{ConnectId, LinkId};
use crate::setup::Step;
use crate::sleep::Sleep;
use crate::workers::{Member, Placed};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::wire::Hello;
use towpath_proto::{Class, Side};
use towpath_verbs::Device;
use towpath_wake::Watch;

/// Tells a device to watch no file.
const NO_FILE: i32 = -1;

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Listens for peers on a TCP address; port 0 is any free one. Returns the address with its
    /// port. [`Event::Accepted`] reports each peer that connects.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&mut self, addr: SocketAddr) -> Result<SocketAddr, ListenError> {
        let Self { setup, device, sleep, .. } = self;
        setup.listen(addr, |watch| wait_for_news(device, sleep, watch))
    }

    /// Stops listening. Links that are up, and set-ups under way, go on.
    pub fn stop_listening(&mut self) {
        self.setup.stop_listening();
    }

    /// Begins to connect to a peer that listens on a TCP address. [`Event::Connected`] or
    /// [`Event::ConnectFailed`] follows.
    ///
    /// # Errors
    /// [`ConnectError::TooMany`].
    pub fn connect(&mut self, addr: SocketAddr) -> Result<ConnectId, ConnectError> {
        self.connect_as(addr, self.config.class.own)
    }

    /// As [`connect`](Self::connect), with a link of another class than
    /// [`EndpointConfig::class`](crate::EndpointConfig::class). Each class has links of its own to
    /// a peer.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_as(
        &mut self,
        addr: SocketAddr,
        class: Class,
    ) -> Result<ConnectId, ConnectError> {
        let asks = self.asks(addr.ip());
        self.setup.connect((addr, class), asks, self.device.now())
    }

    /// Whether set-up conversations have news. Set-up connections of links are looked at in this
    /// turn if they have some. `idle` says that nothing else has happened in this turn.
    pub(super) fn take_news(&mut self, now: Time, idle: bool) -> bool {
        let mut streams = std::mem::take(&mut self.driver.streams_with_news);
        let has_news = self.setup.news.take(now, idle, &mut streams);
        streams.drain(..).for_each(|link| self.hurry_stream(link, now));
        self.driver.streams_with_news = streams;
        has_news
    }

    /// Looks at the set-up conversations when it is time to.
    pub(super) fn poll_setup(&mut self, now: Time, has_news: bool) {
        while let Some(peer) = self.identity.member.as_ref().and_then(Member::next_placed) {
            self.link_to(peer, now);
        }
        if has_news || now >= self.setup.next_due() {
            self.look_at_setup(now);
        }
    }

    #[inline(never)]
    fn look_at_setup(&mut self, now: Time) {
        if let Some(keys) = self.setup.take_trust_due(now) {
            self.look_at_trust(&keys, now);
        }
        self.link_waiting(now);
        let may_be_more = self.setup.accept_peers(now, &mut self.told);
        for peer in self.setup.take_hellos(now, &mut self.told) {
            self.place(peer, now);
        }
        self.go_on_connecting(now);
        self.setup.end_look(now, may_be_more);
    }

    fn go_on_connecting(&mut self, now: Time) {
        let mut place = 0;
        while let Some(step) = self.setup.step(place, self.config.app, now) {
            let failed = match step {
                Step::Wait => {
                    place += 1;
                    continue;
                }
                // The device has not let go of the half that the peer refused.
                Step::Offer { after: Some(half), .. } if self.links.find(half).is_some() => {
                    place += 1;
                    continue;
                }
                Step::Offer { offer, .. } => {
                    let addr = offer.addr;
                    match self.offer_to(offer) {
                        Ok((hello, pending)) => {
                            self.setup.talk(place, &hello, pending.id);
                            continue;
                        }
                        Err(error) => ConnectError::of(addr, error),
                    }
                }
                Step::Join { addr, half, hello } => {
                    let joined =
                        self.establish_half(half, &hello, Side::Client, (Some(addr), true));
                    match joined {
                        Ok(()) => {
                            self.on_connected(place, half);
                            continue;
                        }
                        Err(error) => ConnectError::of(addr, error),
                    }
                }
                Step::Fail(error) => error,
            };
            self.on_connect_failed(place, failed);
        }
    }

    fn on_connected(&mut self, place: usize, link: LinkId) {
        let (connect, stream) = self.setup.end_connecting(place);
        if let (Some(stream), Some(peer)) = (stream, self.peer(link)) {
            self.keep(stream, link, Vec::new());
            self.told.push_back(Event::Connected { connect, link, peer });
        }
    }

    fn on_connect_failed(&mut self, place: usize, error: ConnectError) {
        if let Some(half) = self.setup.half_of(place) {
            self.withdraw_half(half);
        }
        let can = (&self.config, &self.device.caps().verbs);
        if !self.setup.asks_for_less(place, &error, can) {
            let (connect, _) = self.setup.end_connecting(place);
            self.told.push_back(Event::ConnectFailed { connect, error });
        }
    }

    /// Links a peer here, or leaves it to the worker that it is placed with.
    fn place(&mut self, peer: Placed, now: Time) {
        let placed = match &self.identity.member {
            Some(member) => member.place(peer),
            None => Ok(Some(peer)),
        };
        match placed {
            Ok(Some(peer)) => self.link_to(peer, now),
            Ok(None) => {}
            Err(refused) => self.turn_away(refused.0, refused.1, now),
        }
    }

    pub(super) fn turn_away(&mut self, peer: Placed, error: AcceptError, now: Time) {
        let told = self.setup.turn_away(peer.stream, peer.from, error, now);
        self.told.push_back(told);
    }

    /// Links a peer here, or turns it away. Gives it back when all links are in use.
    pub(super) fn try_to_link(&mut self, peer: Placed, now: Time) -> Option<Placed> {
        match self.welcome(&peer.hello, peer.from) {
            Ok((link, hello)) => {
                self.keep(peer.stream, link, hello.emit());
                if let Some(peer) = self.peer(link) {
                    self.told.push_back(Event::Accepted { link, peer });
                }
            }
            Err(LinkError::Full { .. }) => return Some(peer),
            Err(error) => self.turn_away(peer, error.into(), now),
        }
        None
    }

    /// Makes our half of a peer's link, and joins it with the peer's half.
    fn welcome(&mut self, peer: &Hello, from: SocketAddr) -> Result<(LinkId, Hello), LinkError> {
        let (hello, pending) = self.answer(peer, from.ip())?;
        self.establish_half(pending.id, peer, Side::Server, (Some(from), true))?;
        Ok((pending.id, hello))
    }

    /// Keeps the connection of a link that is up, on which `first` is still to be written.
    fn keep(&mut self, stream: TcpStream, link: LinkId, first: Vec<u8>) {
        let Self { setup, device, sleep, .. } = self;
        let wait = |watch: Option<&Watch>| wait_for_news(device, sleep, watch);
        let is_told = setup.news.add(&stream, Some(link.index), wait);
        self.give_stream(link, stream, (first, is_told));
    }
}

/// Makes news on the sockets of this watch end each wait; without a watch, none does. False when
/// that is not possible.
fn wait_for_news<D: Device>(device: &mut D, sleep: &Sleep, watch: Option<&Watch>) -> bool {
    let Some(watch) = watch else { return device.watch_file(NO_FILE) };
    let is_added = sleep.files().is_none_or(|files| files.add(watch).is_ok());
    is_added && device.watch_file(watch.as_fd().as_raw_fd())
}
