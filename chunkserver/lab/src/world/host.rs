//! One host of the world: a client or the server.

use super::books::Books;
use super::client::Client;
use super::server::Server;
use towpath_base::Time;
use towpath_device_roce::RoceDevice;
use towpath_lab::cluster::run::Machine;
use towpath_sim::world::VirtualLink;

/// The device of each host.
pub(super) type Nic = RoceDevice<VirtualLink>;

/// Bytes of a number in a message.
pub(super) const NUMBER_BYTES: usize = 8;

/// Turns of one host at one instant before the run counts as stuck: one moves at most what fits
/// into the queue of its network card, some hundred packets.
const TURNS_MAX: u32 = 10_000;

pub(super) enum Host {
    Client(Box<Client>),
    Server(Box<Server>),
}

impl Machine for Host {
    type Shared = Books;

    fn turn(&mut self, books: &mut Books) {
        for _ in 0..TURNS_MAX {
            let busy = match self {
                Self::Client(client) => client.turn(books),
                Self::Server(server) => server.turn(books),
            };
            if !busy {
                return;
            }
        }
        books.note(|| "a host does not come to rest".to_owned());
    }

    fn next_time(&self, now: Time, books: &Books) -> Time {
        match self {
            Self::Client(client) => client.next_time(now, books),
            Self::Server(server) => server.next_time(),
        }
    }
}
