//! A server whose network thread does the store's work, over a medium that sleeps at times: clients
//! see no difference, whoever does it.

mod common;

use std::time::Duration;

use common::{Client, OverStore, pattern};
use towpath_base::Prng;
use towpath_chunkserver::service::ServiceConfig;
use towpath_chunkserver::store::sim::SimMedia;
use towpath_chunkserver::store::{ChunkId, Store, StoreConfig, WorkerConfig};
use towpath_transport::RoceUdp;

const CHUNK: ChunkId = ChunkId(3);
/// Each write has a place of its own, long enough for the longest.
const PLACE_BYTES: u64 = 64 << 10;
const PLACES: u64 = 24;

fn settings() -> StoreConfig {
    StoreConfig::default().segment_bytes(16 << 20).log_bytes(4 << 20)
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
        for (place, content) in contents.iter().enumerate() {
            let read = client.read(CHUNK, place as u64 * PLACE_BYTES, content.len());
            assert!(read.expect("acknowledged") == *content, "place {place}");
        }
    }
    contents
}

fn finish_one(client: &mut Client<RoceUdp>) {
    if let Some((_, result)) = client.turn() {
        result.expect("the write is sound");
    }
}

#[test]
fn clients_see_no_difference_and_what_was_answered_stays() {
    for seed in 0..2 {
        println!("seed {seed}");
        let (media, mut prng) = (SimMedia::new(seed), Prng::new(seed));
        let store = Store::open(media.clone(), settings()).expect("a new store");
        let config = ServiceConfig::new(WorkerConfig::new(64).by_askers(true));
        let server = OverStore::start(store, config);
        let mut client = Client::connect(server.addr);
        client.create(CHUNK, None).expect("a fresh name");
        write_and_read(&mut client, &mut prng, 40);
        media.flush_takes(Duration::from_micros(200));
        write_and_read(&mut client, &mut prng, 2);
        media.flush_takes(Duration::ZERO);
        let contents = write_and_read(&mut client, &mut prng, 40);
        drop(client);
        let (stats, closed) = server.stop();
        closed.expect("the store is sealed");
        assert!(stats.store_batches_here > 0, "{stats:?}");
        assert_eq!((stats.failed, stats.expired, stats.rpc.busy), (0, 0, 0));
        media.end_process();
        let mut store = Store::open(media, settings()).expect("it opens again");
        let mut crcs = Vec::new();
        for (place, content) in contents.iter().enumerate() {
            let mut bytes = vec![0; content.len()];
            let offset = place as u64 * PLACE_BYTES;
            store.read(CHUNK, offset, &mut bytes, &mut crcs).expect("acknowledged");
            assert!(bytes == *content, "place {place}");
        }
    }
}
