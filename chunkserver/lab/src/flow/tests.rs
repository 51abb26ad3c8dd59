//! Closed forms, pipelines, and what must not be lost or made.

use super::*;

const SERVICE: Service = Service {
    granule: Granule::Packet,
    pool: 0,
    into: Cost::fixed(ns(70)),
    head: ns(200),
    body: Cost::fixed(ns(90)),
    after: Cost::fixed(0),
    tail: ns(100),
    out: 0,
    holds: true,
    store: ns(400),
    ack_out: 0,
    ack_in: ns(60),
};

const WIRE: Wire =
    Wire { ps_per_byte: 20, link: ns(20), card: ns(50), mtu: 2_048, header: 48, ack: 60 };

/// A chain from node 0 to each of the nodes after it.
fn chain(nodes: usize, bytes: u64, service: Service) -> Plan {
    let stream = |number: usize| Stream {
        from: number,
        to: number + 1,
        bytes,
        first_header: 0,
        service,
        next: if number + 1 < nodes { vec![number + 1] } else { Vec::new() },
        ack: Ack::Sender,
    };
    Plan {
        wire: WIRE,
        pools: vec![vec![Some(32)]; nodes + 1],
        streams: (0..nodes).map(stream).collect(),
        groups: vec![Group { roots: vec![0], ..Group::default() }],
        client_out: ns(600),
        client_in: ns(200),
    }
}

fn end(plan: &Plan) -> Ps {
    run(plan).end().expect("every acknowledgement comes")
}

/// To the other side, and what a packet of so many bytes, headers included, takes for that.
fn hop(bytes: u64) -> Ps {
    ns(50) + bytes * 20 + ns(20) + ns(50)
}

#[test]
fn one_packet_takes_the_sum_of_its_way() {
    let there = ns(600) + hop(1_048) + ns(70) + ns(200) + ns(90);
    // What is stored meanwhile hides the tail.
    let expected = there + ns(400) + hop(60) + ns(200);
    assert_eq!(end(&chain(1, 1_000, SERVICE)), expected);
    let no_store = Service { store: 0, ..SERVICE };
    assert_eq!(end(&chain(1, 1_000, no_store)), there + ns(100) + hop(60) + ns(200));
}

#[test]
fn packets_are_pipelined_through_ports_and_servers() {
    // Ten full packets: the last one leaves the client's port nine packets later than the first.
    let (one, full) = (end(&chain(1, 2_000, SERVICE)), 2_048 * 20);
    let ten = end(&chain(1, 20_000, SERVICE));
    // The first waits for its head job and the last does not.
    assert_eq!(ten, one + 9 * full - ns(200));
    // The tail comes after the last of them.
    let no_store = Service { store: 0, ..SERVICE };
    let [one, ten_unstored] = [2_000, 20_000].map(|bytes| end(&chain(1, bytes, no_store)));
    assert_eq!(ten_unstored, one + 9 * full - ns(200));
    // Along a chain each further server adds its step alone, and not the whole message.
    let two = end(&chain(2, 20_000, SERVICE));
    let three = end(&chain(3, 20_000, SERVICE));
    assert_eq!(three - two, two - ten);
    assert!(three - two < 9 * full + ns(400), "a server passes on while it receives");
}

#[test]
fn a_message_granule_waits_for_all_of_it() {
    let whole = Service { granule: Granule::Message, out: ns(600), ..SERVICE };
    let (packets, bytes) = (end(&chain(3, 200_000, SERVICE)), 200_000);
    let stored = end(&chain(3, bytes, whole));
    let port = 100 * 2_048 * 20;
    assert!(stored > packets + 2 * port, "each server has all of it before it passes it on");
}

#[test]
fn no_byte_is_lost_or_made() {
    for (nodes, bytes) in [(1, 0), (1, 1), (2, 2_000), (3, 2_001), (7, 777_777)] {
        let seen = run(&chain(nodes, bytes, SERVICE));
        assert!(seen.finished.iter().all(Option::is_some));
        for (number, node) in seen.nodes.iter().enumerate() {
            assert_eq!(node.data_in, if number == 0 { 0 } else { bytes }, "{nodes} {bytes}");
            assert_eq!(node.data_out, if number == nodes { 0 } else { bytes }, "{nodes} {bytes}");
        }
        let packets = WIRE.packets(bytes, 0);
        assert_eq!(packets.iter().sum::<u64>(), bytes);
        let headers = packets.len() as u64 * WIRE.header;
        assert_eq!(seen.nodes[0].wire_out, bytes + headers);
    }
}

#[test]
fn packets_are_passed_on_with_the_data_that_they_came_with() {
    // With its long header the message needs a packet more than it would with a short one.
    let mut plan = chain(2, 20_000, SERVICE);
    plan.streams[0].first_header = 200;
    assert_ne!(WIRE.packets(20_000, 200).len(), WIRE.packets(20_000, 0).len());
    let seen = run(&plan);
    assert!(seen.end().is_some());
    assert_eq!(seen.nodes[1].data_out, 20_000);
    assert_eq!(seen.nodes[2].bodies, seen.nodes[1].bodies);
}

#[test]
fn nothing_is_faster_than_a_port() {
    for bytes in [1, 2_000, 50_000, 1 << 20] {
        for nodes in [1, 4] {
            let plan = chain(nodes, bytes, SERVICE);
            let seen = run(&plan);
            let end = seen.end().expect("it ends");
            for node in &seen.nodes {
                assert_eq!(node.sending, node.wire_out * WIRE.ps_per_byte);
                assert!(node.sending <= end, "{bytes} {nodes}");
            }
        }
    }
}

#[test]
fn a_receivers_port_takes_one_packet_at_a_time_too() {
    // Two servers get half of the line each, and each sends twice what it gets to a third.
    let bytes = 100_000;
    let stream = |from, to, next: &[usize]| Stream {
        from,
        to,
        bytes,
        first_header: 0,
        service: SERVICE,
        next: next.to_vec(),
        ack: Ack::Client,
    };
    let mut plan = chain(3, bytes, SERVICE);
    let roots = [stream(0, 1, &[2, 3]), stream(0, 2, &[4, 5])];
    let last = [(1, 3), (1, 3), (2, 3), (2, 3)].map(|(from, to)| stream(from, to, &[]));
    plan.streams = roots.into_iter().chain(last).collect();
    plan.groups = vec![Group { roots: vec![0, 1], in_turn: true, ..Group::default() }];
    let port = WIRE.packets(bytes, 0).iter().map(|data| (data + WIRE.header) * 20).sum::<Ps>();
    assert!(end(&plan) > 4 * port, "all four cross the third's port");
}

#[test]
fn units_bound_how_much_is_handled_at_once() {
    // A body job takes a hundred times what a packet takes at the port.
    let slow = Service { body: Cost::fixed(ns(4_096)), ..SERVICE };
    let mut plan = chain(1, 64 * 2_000, slow);
    let mut ends = Vec::new();
    for units in [1, 2, 4, 8] {
        plan.pools[1] = vec![Some(units)];
        ends.push(end(&plan));
    }
    for (pair, units) in ends.windows(2).zip([1, 2, 4]) {
        let saved = pair[0] - pair[1];
        let half = ns(4_096) * 64 / (units * 2);
        // Those that begin together come one after the other.
        assert!(saved.abs_diff(half) <= units * 2 * 2_048 * 20, "{units} units");
    }
    plan.pools[1] = vec![None];
    let port = 64 * 2_048 * 20;
    assert!(end(&plan) < ends[3] && end(&plan) > port + ns(4_096));
}

#[test]
fn a_join_answers_once_and_a_group_waits_for_the_one_before() {
    let mut plan = chain(1, 1_000, SERVICE);
    plan.streams[0].ack = Ack::Joined(0);
    plan.streams.push(plan.streams[0].clone());
    plan.streams.push(Stream { ack: Ack::Client, ..plan.streams[0].clone() });
    plan.groups = vec![
        Group { roots: vec![0, 1], in_turn: true, ..Group::default() },
        Group { roots: vec![2], after: Some(0), ..Group::default() },
    ];
    let seen = run(&plan);
    assert_eq!(seen.nodes[1].wire_out, 2 * WIRE.ack, "one for both, and one for the third");
    let [Some(first), Some(second)] = seen.finished[..] else { panic!("{:?}", seen.finished) };
    assert_eq!(second, first + end(&chain(1, 1_000, SERVICE)));
}

#[test]
fn the_same_plan_gives_the_same_trace() {
    let plan = chain(4, 100_000, SERVICE);
    assert_eq!(run(&plan), run(&plan));
    assert_ne!(run(&plan).trace_hash, run(&chain(4, 100_001, SERVICE)).trace_hash);
}
