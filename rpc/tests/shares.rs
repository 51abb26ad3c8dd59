//! Clients that ask and take nothing in: what a server has for them is bounded.

mod common;

use common::World;
use towpath_rpc::limits::NOTES_MAX;
use towpath_rpc::{Header, Kind, RpcServer, ServerConfig, Status};
use towpath_transport::{EndpointConfig, Event, Nanos, SendBuffers as _, SendOptions};

/// Sends `count` messages of a header alone, and keeps all that comes: nothing gives credit back.
fn ask_in_vain(world: &mut World, count: u64, kind: Kind, version_is_wrong: bool) -> Vec<Event> {
    let (mut sent, mut kept) = (0, Vec::new());
    let taken = |world: &World| {
        let stats = world.serving.stats();
        stats.malformed + stats.cancels_late
    };
    while taken(world) < count {
        while sent < count {
            let header = Header {
                kind,
                method: 9,
                status: Status::OK,
                inline: false,
                request: sent << 16,
                body_len: 0,
                data_len: 0,
                timeout_us: 0,
            };
            let mut bytes = header.emit();
            if version_is_wrong {
                bytes[0] = 0xff;
            }
            let Ok(payload) = world.client.copy(&bytes) else { break };
            let (link, channel) = (world.link, world.channel);
            if world.client.send(link, channel, payload, SendOptions::new()).is_err() {
                break;
            }
            sent += 1;
        }
        let World { client, .. } = world;
        client.turn(|_, event| {
            if matches!(event, Event::Message(_)) {
                kept.push(event);
            }
        });
        world.turn_server();
        world.pass(Nanos::from_micros(5));
    }
    kept
}

fn world() -> World {
    let config = EndpointConfig::new().quota_chunks(8).credit_total(8);
    World::new(config, RpcServer::new(ServerConfig::new()))
}

#[test]
fn a_client_that_takes_no_refusals_in_holds_few_buffers_of_the_server() {
    let mut world = world();
    let count = 8 * NOTES_MAX as u64;
    let kept = ask_in_vain(&mut world, count, Kind::Request, true);
    let (stats, buffers) = (world.serving.stats(), world.server.buffers());
    assert_eq!(stats.malformed, count);
    assert!(buffers.send_all - buffers.send_free <= NOTES_MAX, "{buffers:?}");
    assert!(stats.notes_dropped > 0 && stats.responses_dropped == stats.notes_dropped);
    let link = world.server.links().next().expect("it is up");
    assert_eq!(world.serving.most_dropped(), Some((link, stats.notes_dropped)));
    drop(kept);
}

#[test]
fn a_client_that_takes_no_fates_in_holds_few_buffers_of_the_server() {
    let mut world = world();
    let count = 8 * NOTES_MAX as u64;
    let kept = ask_in_vain(&mut world, count, Kind::Cancel, false);
    let (stats, buffers) = (world.serving.stats(), world.server.buffers());
    assert_eq!(stats.cancels_late, count);
    assert!(buffers.send_all - buffers.send_free <= NOTES_MAX, "{buffers:?}");
    assert!(stats.notes_dropped > 0);
    drop(kept);
}

#[test]
fn what_was_dropped_for_a_link_goes_with_it() {
    let mut world = world();
    drop(ask_in_vain(&mut world, 4 * NOTES_MAX as u64, Kind::Request, true));
    assert!(world.serving.most_dropped().is_some());
    world.client.close(world.link);
    world.until(|world| world.serving.most_dropped().is_none().then_some(()));
    world.until(|world| {
        let buffers = world.server.buffers();
        (buffers.send_free == buffers.send_all).then_some(())
    });
}

#[test]
fn a_link_holds_its_share_of_the_send_buffers_and_others_find_some() {
    let config = EndpointConfig::new().send_pools(&[(256, 48), (4096, 3)]);
    let world = World::new(config, RpcServer::new(ServerConfig::new()));
    let link = world.server.links().next().expect("it is up");
    let buffers = world.server.buffers_of(link);
    let held: Vec<_> = std::iter::from_fn(|| buffers.alloc(100).ok()).collect();
    assert_eq!(held.len(), 16);
    let most = world.server.pool_reports().find(|pool| pool.buf_bytes == 256);
    let most = most.expect("there is one").most.expect("one link holds some");
    assert_eq!((most.link, most.held), (link.index(), 16));
    assert_eq!(most.peer, world.server.peer(link).map(|peer| peer.device_addr));
    assert!(buffers.alloc(4096).is_ok(), "another size");
    assert!(world.server.alloc(100).is_ok(), "nobody's");
    drop(held);
    assert!(buffers.alloc(100).is_ok());
}
