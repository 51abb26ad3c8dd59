//! Connecting and listening, and what set-up asks of the endpoint.

use super::Endpoint;
use crate::asks::Asks;
use crate::config::EndpointConfig;
use crate::conn::{Conn, PendingLink};
use crate::error::{ConnectError, LinkError, ListenError};
use crate::event::{Event, Peer};
use crate::ids::{ConnectId, LinkId};
use crate::setup::{Host, Setup};
use crate::workers::Member;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::wire::Hello;
use towpath_proto::{Carrier, Class, Side};
use towpath_verbs::{Device, VerbSet};
use towpath_wake::Watch;

/// What a device takes for no file.
const NO_FILE: i32 = -1;

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Listens for peers on a TCP address; port 0 is any free one. Returns the address with its
    /// port. Peers that connect are told of with [`Event::Accepted`].
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&mut self, addr: SocketAddr) -> Result<SocketAddr, ListenError> {
        self.with_setup(|setup, host| setup.listen(host, addr))
    }

    /// Stops listening. Links that are up, and set-ups under way, go on.
    pub fn stop_listening(&mut self) {
        self.setup.stop_listening();
    }

    /// Begins to connect to a peer that listens on a TCP address. [`Event::Connected`] or
    /// [`Event::ConnectFailed`] follows.
    ///
    /// # Errors
    /// [`ConnectError::TooMany`], [`ConnectError::Dial`] when no thread could be had for dialling.
    pub fn connect(&mut self, addr: SocketAddr) -> Result<ConnectId, ConnectError> {
        self.connect_as(addr, self.config.class.own)
    }

    /// The same with a link of another class than [`EndpointConfig::class`]. Classes to one peer
    /// have links of their own.
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

    /// Whether there is news of set-up conversations. Streams that have something are looked at in
    /// this turn. `idle` says that nothing else has happened in it.
    pub(super) fn take_news(&mut self, now: Time, idle: bool) -> bool {
        let mut streams = std::mem::take(&mut self.streams.with_news);
        let has_news = self.setup.take_news(now, idle, &mut streams);
        streams.drain(..).for_each(|link| self.hurry_stream(link, now));
        self.streams.with_news = streams;
        has_news
    }

    /// Looks at the set-up conversations when it is time to.
    pub(super) fn poll_setup(&mut self, now: Time, has_news: bool) {
        let has_placed = self.identity.member.as_ref().is_some_and(Member::has_placed);
        if has_placed || has_news || now >= self.setup.next_due() {
            self.with_setup(|setup, host| setup.go_on(host, now, has_news));
        }
    }

    /// Lets set-up ask things of the endpoint.
    fn with_setup<T>(&mut self, run: impl FnOnce(&mut Setup, &mut Self) -> T) -> T {
        let mut setup = std::mem::take(&mut self.setup);
        let result = run(&mut setup, self);
        self.setup = setup;
        result
    }
}

impl<D: Device<Memory = Region>> Host for Endpoint<D> {
    fn config(&self) -> &EndpointConfig {
        &self.config
    }

    fn verbs(&self) -> VerbSet {
        self.device.caps().verbs
    }

    fn member(&self) -> Option<&Member> {
        self.identity.member.as_ref()
    }

    fn conns(&self) -> impl Iterator<Item = &Conn> {
        self.links.iter()
    }

    fn peer(&self, link: LinkId) -> Option<Peer> {
        self.peer(link)
    }

    fn offer_to(
        &mut self,
        dest: SocketAddr,
        class: Class,
        asks: Asks,
    ) -> Result<(Hello, PendingLink), LinkError> {
        let mtu = match asks.carrier {
            // Its system cuts what it sends as it finds right.
            Carrier::Tcp => self.plan.mtu,
            _ => self.mtu_to_ask_for(dest)?,
        };
        self.offer_asking(asks, class, mtu)
    }

    fn join(
        &mut self,
        pending: PendingLink,
        peer: &Hello,
        addr: SocketAddr,
    ) -> Result<LinkId, LinkError> {
        self.establish_from(pending, peer, Side::Client, (Some(addr), true))
    }

    fn welcome(&mut self, peer: &Hello, from: SocketAddr) -> Result<(LinkId, Hello), LinkError> {
        let (hello, pending) = self.answer(peer, from.ip())?;
        let link = self.establish_from(pending, peer, Side::Server, (Some(from), true))?;
        Ok((link, hello))
    }

    fn withdraw(&mut self, pending: PendingLink) {
        self.withdraw(pending);
    }

    fn carries_path(&self, link: LinkId) -> bool {
        self.links.find(link).is_some_and(|conn| conn.tcp_path().is_some())
    }

    fn give_stream(
        &mut self,
        link: LinkId,
        stream: TcpStream,
        first: (Vec<u8>, bool),
    ) -> Option<(TcpStream, Vec<u8>)> {
        self.give_stream(link, stream, first)
    }

    fn peer_gone(&mut self, link: LinkId) {
        self.peer_gone(link);
    }

    fn give_way(&mut self, link: LinkId, now: Time) {
        if let Some(found) = self.links.up(link) {
            found.give_way(now);
            self.links.touch(link.index);
            self.tally.stats.links_gave_way += 1;
        }
    }

    fn wait_for_news(&mut self, watch: Option<&Watch>) -> bool {
        let Some(watch) = watch else { return self.device.watch_file(NO_FILE) };
        let is_added = self.sleep.files().is_none_or(|files| files.add(watch).is_ok());
        is_added && self.device.watch_file(watch.as_fd().as_raw_fd())
    }

    fn tell(&mut self, event: Event) {
        self.told.push_back(event);
    }
}
