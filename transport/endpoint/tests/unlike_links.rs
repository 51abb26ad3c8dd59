//! Links of one server that are unlike: paths, carriers and fallbacks as each client asks.

mod common;

use common::{LONG, Node, any_port, drive, join, pattern};
use towpath_transport::{CarrierChoice, EndpointConfig, Fallback};

#[test]
fn each_link_has_the_paths_that_its_client_asks_for() {
    // With a queue of receives for each class, or for each path; with credit for more than is
    // posted, or for less.
    for (shared, credit) in [(true, 8192), (true, 512), (false, 8192), (false, 512)] {
        let like = || {
            EndpointConfig::new()
                .connect_timeout(LONG)
                .shared_receiving(shared)
                .credit_total(credit)
                .paths(1)
                .fallback(Fallback::None)
        };
        let of_server = like().paths(4).links_max(7).fallback(Fallback::RcThenTcp);
        let mut server = Node::new(of_server);
        let addr = server.endpoint.listen(any_port()).expect("a free port");
        let (tcp, fallback) = (CarrierChoice::Tcp, Fallback::RcThenTcp);
        // What a client is, and how many queue pairs for paths it has then.
        let clients = [
            (like().paths(4).carrier(tcp), 0),
            (like(), 1),
            (like().paths(4), 4),
            (like().paths(2).fallback(fallback), 3),
            (like().paths(3).fallback(Fallback::Tcp), 3),
            (like().paths(2).carrier(CarrierChoice::Rc), 2),
            (like().carrier(tcp), 0),
        ];
        let (mut kept, mut qps) = (Vec::new(), 0);
        for (config, paths) in clients {
            let mut client = Node::new(config);
            let joined = join(&mut client, &mut server, addr);
            for seed in 0..20 {
                let bytes = pattern(150_000, seed);
                joined.send(&mut client, &bytes);
                let message = drive(&mut client, &mut server, |_, server| server.take_message());
                assert_eq!(message.to_vec(), bytes);
            }
            let of = |node: &Node, link| node.endpoint.paths(link).count();
            assert_eq!((of(&client, joined.link), of(&server, joined.accepted)), (paths, paths));
            // And one for acks.
            qps += paths + usize::from(paths > 0);
            kept.push(client);
        }
        let usage = drive(&mut kept[0], &mut server, |_, server| {
            let usage = server.endpoint.usage();
            (usage.receives_posted >= usage.receives_wanted).then_some(usage)
        });
        assert_eq!((usage.links, usage.qps, usage.qps_max), (7, qps, 7 * 6), "{usage:?}");
    }
}

/// Without a receive queue for all, a link of several paths replaces what its reader holds from
/// what was kept for that. A link on its set-up connection has no queue to keep its buffers in, and
/// may take those.
#[test]
fn what_one_link_kept_for_its_reader_may_be_gone_with_another() {
    const HELD: u64 = 56;
    let few = || {
        let like = EndpointConfig::new().connect_timeout(LONG).shared_receiving(false);
        let like = like.paths(1).fallback(Fallback::None);
        // A window that starts small cuts the first messages into more pieces than the quota has.
        let window = "fixed:1MiB".parse().expect("a controller");
        like.quota_chunks(64).credit_total(64).controller(window)
    };
    let mut server = Node::new(few().paths(4).links_max(2));
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    let mut kept = Vec::new();
    let mut clients = Vec::new();
    for config in [few().carrier(CarrierChoice::Tcp), few().paths(4)] {
        let mut client = Node::new(config);
        let joined = join(&mut client, &mut server, addr);
        clients.push((client, joined));
    }
    for (client, joined) in &mut clients {
        for seed in 0..HELD {
            joined.send(client, &pattern(40_000, seed));
            let message = drive(client, &mut server, |_, server| server.take_message());
            kept.push((seed, message));
        }
    }
    let (client, _) = &mut clients[1];
    let usage = drive(client, &mut server, |_, server| {
        let usage = server.endpoint.usage();
        (usage.receives_posted >= usage.receives_wanted).then_some(usage)
    });
    assert!(usage.receive_buffers <= usage.receive_buffers_max, "{usage:?}");
    assert!(kept.into_iter().all(|(seed, message)| message.to_vec() == pattern(40_000, seed)));
}
