//! A server killed at a hundred points while clients write over the network: nothing acknowledged
//! is lost, and nothing torn is served.

mod common;

use std::collections::VecDeque;
use std::path::Path;

use common::{Client, Process, config, inline, pattern};
use towpath_base::Prng;
use towpath_chunkserver::daemon::{DaemonConfig, DriveDisk};
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::OpId;
use towpath_transport::RoceUdp;

const KILLS: u64 = 100;

/// Chunks that the places are spread over.
const CHUNKS: usize = 4;

/// Places of a write: as many as are under way at most, so that the order of two writes to one
/// place is never open.
const PLACES: u64 = 24;
const PLACE_BYTES: u64 = 48 << 10;

/// What may stand in a place: the last acknowledged write, or the one that was under way.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    acknowledged: Option<u64>,
    under_way: Option<u64>,
}

/// The chunk and the offset of a place.
fn at(place: usize) -> (ChunkId, u64) {
    (ChunkId((place % CHUNKS) as u128), (place / CHUNKS) as u64 * PLACE_BYTES)
}

/// Bytes of the write of that number: many that stand in the log, whole slices, some odd ends.
fn content(number: u64) -> Vec<u8> {
    let mut prng = Prng::new(number);
    let len = match prng.below(4) {
        0 => PLACE_BYTES,
        1 => 1 + prng.below(PLACE_BYTES),
        2 => 4096,
        _ => 1 + prng.below(16 << 10),
    };
    pattern(len as usize, number)
}

struct History {
    places: Vec<Place>,
    next: u64,
    prng: Prng,
}

impl History {
    /// Starts a write to a place where none is under way.
    fn start(&mut self, client: &mut Client<RoceUdp>) -> Option<(OpId, usize)> {
        let free: Vec<usize> = (0..self.places.len())
            .filter(|place| self.places[*place].under_way.is_none())
            .collect();
        if free.is_empty() {
            return None;
        }
        let place = free[self.prng.below(free.len() as u64) as usize];
        let (chunk, offset) = at(place);
        let data = content(self.next);
        let op = client.chunks.start_write_copy(&mut client.endpoint, chunk, offset, &data);
        self.places[place].under_way = Some(self.next);
        self.next += 1;
        Some((op.expect("room for a few"), place))
    }

    /// Writes until so many were acknowledged, and on until the server is dead.
    fn write(&mut self, client: &mut Client<RoceUdp>, server: &mut Process, until: u64) {
        let depth = 1 + self.prng.below(PLACES) as usize;
        let mut under_way: VecDeque<(OpId, usize)> = VecDeque::new();
        let mut count = 0;
        while count < until {
            while under_way.len() < depth {
                let Some(started) = self.start(client) else { break };
                under_way.push_back(started);
            }
            let Some((op, result)) = client.turn() else { continue };
            result.expect("the server lives");
            self.acknowledge(&mut under_way, op);
            count += 1;
        }
        server.child.kill().expect("it runs");
        server.child.wait().expect("it ends");
        // What the dead server had sent still counts.
        while client.endpoint.links().next().is_some() {
            if let Some((op, Ok(_))) = client.turn() {
                self.acknowledge(&mut under_way, op);
            }
        }
    }

    fn acknowledge(&mut self, under_way: &mut VecDeque<(OpId, usize)>, op: OpId) {
        let at = under_way.iter().position(|(started, _)| *started == op).expect("one of ours");
        let (_, place) = under_way.remove(at).expect("it was found there");
        let place = &mut self.places[place];
        place.acknowledged = place.under_way.take();
    }

    /// Whether each place has what was acknowledged last, or what was under way, wholly.
    fn check(&mut self, client: &mut Client<RoceUdp>, point: u64) {
        for (index, place) in self.places.iter_mut().enumerate() {
            let (chunk, offset) = at(index);
            let (len, _) = client.stat(chunk).expect("it was acknowledged");
            let there = len.saturating_sub(offset).min(PLACE_BYTES) as usize;
            let read = match there {
                0 => Vec::new(),
                there => client.read(chunk, offset, there).expect("sound slices"),
            };
            let has = |number: u64| read.starts_with(&content(number));
            let acknowledged = place.acknowledged.is_none_or(has);
            let came_through = place.under_way.is_some_and(has);
            assert!(acknowledged || came_through, "kill {point}: place {index} lost {place:?}");
            if came_through {
                place.acknowledged = place.under_way;
            }
            place.under_way = None;
        }
    }
}

fn settings(dir: &Path) -> DaemonConfig {
    let mut config = config(dir);
    // A small log, so that kills also meet checkpoints.
    config.store.log_bytes = 512 << 10;
    config.store.shards = 2;
    config
}

#[test]
fn a_hundred_kills_while_clients_write_lose_nothing_that_was_acknowledged() {
    let seed = 50;
    println!("seed {seed}");
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = settings(&dir.path().join("store"));
    let mut history =
        History { places: vec![Place::default(); PLACES as usize], next: 1, prng: Prng::new(seed) };
    for point in 0..KILLS {
        // Whichever threads drive the shards.
        let of_life = match point % 3 {
            0 => config.clone().with(|config| config.network.drive_disk = DriveDisk::Thread),
            1 => inline(config.clone()),
            _ => config.clone(),
        };
        let mut server = Process::start(&of_life);
        let mut client = Client::connect(server.addr);
        if point == 0 {
            for chunk in 0..CHUNKS {
                client.create(at(chunk).0, None).expect("a fresh name");
            }
        } else {
            history.check(&mut client, point);
        }
        let until = history.prng.below(60);
        history.write(&mut client, &mut server, until);
    }
    let server = Process::start(&config);
    history.check(&mut Client::connect(server.addr), KILLS);
    let acknowledged = history.places.iter().filter(|place| place.acknowledged.is_some()).count();
    assert!(acknowledged > PLACES as usize / 2, "only {acknowledged} places were ever written");
    println!("{} writes were started", history.next - 1);
}
