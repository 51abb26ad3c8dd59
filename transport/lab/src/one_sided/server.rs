//! The server: it grants, revokes, and otherwise does nothing.

use super::area;
use super::books::Books;
use super::broken::Broken;
use crate::device::SharedLink;
use towpath_device_roce::RoceDevice;
use towpath_proto::{GrantId, Rights};
use towpath_transport::{Endpoint, Event, LinkId, SharedMemory};
use towpath_verbs::{Device, QpState};

/// The device of each host.
pub(super) type Nic = RoceDevice<SharedLink>;

/// Grants of a client: the words that all share, its own area, and all memory to be read.
pub(super) const GRANTS: usize = 3;

/// What the server has for one client.
#[derive(Default)]
struct ClientState {
    /// None while the client is dead.
    link: Option<LinkId>,
    grants: [Option<GrantId>; GRANTS],
    /// Its area as it was when it was revoked.
    kept: Option<Vec<u8>>,
}

pub(super) struct Server {
    pub(super) endpoint: Endpoint<Nic>,
    pub(super) memory: SharedMemory,
    seats: Vec<ClientState>,
}

impl Server {
    pub(super) fn new(endpoint: Endpoint<Nic>, memory: SharedMemory, clients: usize) -> Self {
        let seats = (0..clients).map(|_| ClientState::default()).collect();
        Self { endpoint, memory, seats }
    }

    /// A client has a link, and gets its grants.
    pub(super) fn admit(&mut self, client: usize, link: LinkId) -> Result<(), Broken> {
        self.seats[client].link = Some(link);
        self.grant(client)
    }

    /// Gives a client the grants that it lacks.
    pub(super) fn grant(&mut self, client: usize) -> Result<(), Broken> {
        self.check_kept(client)?;
        let Self { endpoint, memory, seats } = self;
        let ClientState { link: Some(link), grants, kept } = &mut seats[client] else {
            return Ok(());
        };
        let ranges = [
            (0..area::SHARED_BYTES, Rights::ALL),
            (area::area(client), Rights::ALL),
            (memory.whole(), Rights::READ),
        ];
        for (grant, (range, rights)) in grants.iter_mut().zip(ranges) {
            if grant.is_none() {
                let made = endpoint.grant(*link, memory, range, rights);
                let host = usize::MAX;
                *grant = Some(made.map_err(|error| Broken::Refused { host, error })?);
            }
        }
        *kept = None;
        Ok(())
    }

    /// Revokes those grants of a client whose bits are set.
    pub(super) fn revoke(&mut self, client: usize, which: u8) {
        let Self { endpoint, memory, seats } = self;
        let ClientState { link: Some(link), grants, kept } = &mut seats[client] else { return };
        for (nth, grant) in grants.iter_mut().enumerate() {
            if which >> nth & 1 == 1
                && let Some(id) = grant.take()
            {
                endpoint.revoke(*link, id);
            }
        }
        if grants[1].is_none() && kept.is_none() {
            *kept = Some(bytes_of(memory, client));
        }
    }

    /// A client is dead: what it was granted is revoked before its link is closed, so that what is
    /// still on its way changes nothing.
    pub(super) fn dismiss(&mut self, client: usize) {
        self.revoke(client, u8::MAX);
        if let Some(link) = self.seats[client].link.take() {
            self.endpoint.close(link);
        }
    }

    /// Puts the queue pair of a client's link in error.
    pub(super) fn break_lane(&mut self, client: usize) {
        if let Some(link) = self.seats[client].link {
            break_lane(&mut self.endpoint, link);
        }
    }

    /// What a client may not reach is as it was.
    pub(super) fn check_kept(&self, client: usize) -> Result<(), Broken> {
        match &self.seats[client].kept {
            Some(kept) if *kept != bytes_of(&self.memory, client) => {
                Err(Broken::Revoked { client })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn turn(&mut self, books: &mut Books) -> bool {
        let mut busy = self.endpoint.poll() > 0;
        while let Some(event) = self.endpoint.next_event() {
            busy = true;
            if let Event::LinkDown { link, .. } = event
                && self.seats.iter().any(|seat| seat.link == Some(link))
            {
                books.note(Err(Broken::Down { host: usize::MAX }));
            }
        }
        self.endpoint.flush();
        busy
    }
}

fn bytes_of(memory: &SharedMemory, client: usize) -> Vec<u8> {
    let range = area::area(client);
    let mut bytes = vec![0; range.len()];
    let is_read = memory.read(range.start, &mut bytes).is_ok();
    debug_assert!(is_read, "each client has an area");
    bytes
}

/// Puts the queue pair of a link's lane in error, if there is one.
pub(super) fn break_lane(endpoint: &mut Endpoint<Nic>, link: LinkId) {
    if let Some(qp_num) = endpoint.lane(link).and_then(|lane| lane.qp_num) {
        // It is there.
        let _ = endpoint.device_mut().modify_qp(qp_num, QpState::Err);
    }
}
