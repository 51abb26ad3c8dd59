//! A server over a simulated disk, whose operations end in any order: clients see what they wrote,
//! and what was answered outlasts the power.

mod common;

use std::io;

use common::{Client, OverStore, pattern};
use towpath_base::Prng;
use towpath_chunkserver::service::ServiceConfig;
use towpath_chunkserver::store::ChunkId;
use towpath_chunkserver::store::core::{
    CoreConfig, DriverConfig, StoreCore, StoreDriver, StoreThread,
};
use towpath_disk::sim::{Loss, Medium};
use towpath_transport::RoceUdp;

const CHUNK: ChunkId = ChunkId(3);
/// Each write has a place of its own, long enough for the longest.
const PLACE_BYTES: u64 = 64 << 10;
const PLACES: u64 = 24;

/// A server over the medium, whose disk a thread of its own drives, or the network thread.
fn start(medium: &Medium, is_inline: bool) -> OverStore {
    let medium = medium.clone();
    let open_core = move || {
        let config = CoreConfig {
            log_pages: 256,
            log_pages_max: 0,
            chunks_max: 10,
            store_id: 1,
            log_nonce: 2,
            version_seed: 0,
            is_sparse: false,
        };
        let core = StoreCore::open(Box::new(medium.open(32)?), &config);
        Ok::<_, io::Error>((core.map_err(io::Error::other)?, ()))
    };
    let config = DriverConfig { queue_max: 64, unfinished_keep: None };
    let open = move || {
        let (mut holds, driver) = match is_inline {
            true => {
                let (driver, holds, ()) =
                    StoreDriver::open_here(1, config, open_core).expect("it opens");
                (holds, Some(driver))
            }
            false => (StoreThread::spawn(1, config, open_core).expect("it opens").0, None),
        };
        (holds.pop().expect("one asks").into(), driver)
    };
    OverStore::start_with(open, ServiceConfig::new())
}

/// Writes to every place, several under way, and reads all of it back; `rounds` times.
fn write_and_read(client: &mut Client<RoceUdp>, prng: &mut Prng, rounds: u64) -> Vec<Vec<u8>> {
    let mut contents = vec![Vec::new(); PLACES as usize];
    for _ in 0..rounds {
        for (place, content) in contents.iter_mut().enumerate() {
            while client.chunks.under_way() > 8 {
                finish_one(client);
            }
            let bytes = pattern(1 + prng.below(PLACE_BYTES) as usize, prng.next_u64());
            let offset = place as u64 * PLACE_BYTES;
            let op = client.chunks.start_write_copy(&mut client.endpoint, CHUNK, offset, &bytes);
            op.expect("room for a few");
            let kept = content.split_off(bytes.len().min(content.len()));
            *content = [bytes, kept].concat();
        }
        while client.chunks.under_way() > 0 {
            finish_one(client);
        }
        read(client, &contents);
    }
    contents
}

fn read(client: &mut Client<RoceUdp>, contents: &[Vec<u8>]) {
    for (place, content) in contents.iter().enumerate() {
        let read = client.read(CHUNK, place as u64 * PLACE_BYTES, content.len());
        assert!(read.expect("acknowledged") == *content, "place {place}");
    }
}

fn finish_one(client: &mut Client<RoceUdp>) {
    if let Some((_, result)) = client.turn() {
        result.expect("the write is sound");
    }
}

#[test]
fn clients_see_what_they_wrote_and_what_was_answered_outlasts_the_power() {
    for (seed, is_inline) in [(0, false), (1, false), (2, true), (3, true)] {
        println!("seed {seed}, inline: {is_inline}");
        let (medium, mut prng) = (Medium::new(seed, 4096), Prng::new(seed));
        let server = start(&medium, is_inline);
        let mut client = Client::connect(server.addr);
        client.create(CHUNK, None).expect("a fresh name");
        let contents = write_and_read(&mut client, &mut prng, 20);
        drop(client);
        let (stats, closed) = server.stop();
        closed.expect("the store is sealed");
        assert_eq!((stats.failed, stats.expired, stats.rpc.busy), (0, 0, 0));
        medium.power_on(Loss::Everything);
        let server = start(&medium, is_inline);
        read(&mut Client::connect(server.addr), &contents);
        server.stop().1.expect("nothing has failed");
    }
}
