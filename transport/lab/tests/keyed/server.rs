//! The server of keyed values: each operation of each client once, in order.

use super::model::{Broken, Shelf};
use super::tally::Rides;
use std::collections::BTreeMap;
use towpath_base::Nanos;
use towpath_memory::Region;
use towpath_proto::{Carrier, Outcome};
use towpath_transport::{Endpoint, Event, Message, SendOptions};
use towpath_verbs::Device;

/// The server, and what it keeps for each client.
pub struct Server<D: Device<Memory = Region>> {
    /// Its endpoint, with a link to each client.
    pub endpoint: Endpoint<D>,
    /// What its links rode on, all of them.
    pub rides: Rides,
    shelves: BTreeMap<usize, Shelf>,
    deadline: Nanos,
}

impl<D: Device<Memory = Region>> Server<D> {
    /// One that keeps nothing yet, and whose answers may take `deadline`.
    pub fn new(endpoint: Endpoint<D>, deadline: Nanos) -> Self {
        Self { endpoint, rides: Rides::default(), shelves: BTreeMap::new(), deadline }
    }

    /// Does all that can be done now; whether that was anything.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn turn(&mut self) -> Result<bool, Broken> {
        let mut busy = self.endpoint.poll() > 0;
        while let Some(event) = self.endpoint.next_event() {
            busy = true;
            match event {
                Event::Message(message) => self.answer(message)?,
                Event::Sent { outcome: Outcome::Delivered, .. } => {}
                Event::Sent { outcome, .. } => return Err(Broken::Outcome(outcome)),
                Event::CarrierChanged { from, to, .. } => self.rides.note(from, to),
                Event::PathChanged { .. } | Event::Device { .. } | Event::Accepted { .. } => {}
                Event::ChannelOpened { .. } => {}
                other => return Err(Broken::Event(format!("{other:?}"))),
            }
        }
        self.endpoint.flush();
        Ok(busy)
    }

    /// Whether all its links ride on that.
    #[must_use]
    pub fn is_on(&self, carrier: Carrier) -> bool {
        self.endpoint.links().all(|link| self.endpoint.carrier_of(link) == Some(carrier))
    }

    fn answer(&mut self, message: Message) -> Result<(), Broken> {
        let (link, channel) = (message.link(), message.channel());
        let shelf = self.shelves.entry(link.index()).or_default();
        let reply = shelf.answer(&message.to_vec());
        self.endpoint.release(message);
        let options = SendOptions::new().deadline(self.endpoint.now() + self.deadline);
        let buf = self.endpoint.copy(&reply?).map_err(|_| Broken::Refused)?;
        self.endpoint.send(link, channel, buf, options).map_err(|_| Broken::Refused).map(drop)
    }
}
