//! The receive buffer: what is advertised fits, what is over is counted.

use super::{STOCK_BUFFER_BYTES, UdpLink, V4, V6, bind, collect_now, packets, payloads, stock};
use towpath_base::Prng;
use towpath_verbs::PacketLink;

/// Shapes of messages: how many packets of how many bytes.
const SHAPES: [(usize, usize); 9] = [
    (15, 4_112),
    (1, 4_112),
    (1, 144),
    (16, 144),
    (128, 144),
    (1, 300),
    (1, 1_040),
    (1, 2_064),
    (1, 3_900),
];

/// What the advertisement says that a message of a shape takes.
fn cost_bytes(rx: &UdpLink, (count, size): (usize, usize), segmentation: bool) -> u64 {
    let messages = if segmentation { count.div_ceil(64) } else { count };
    (count * size + messages * rx.caps().rx_charge_bytes as usize) as u64
}

fn send_shape(tx: &mut UdpLink, rx: &UdpLink, (count, size): (usize, usize)) {
    let sent = payloads(&vec![size; count]);
    assert_eq!(tx.transmit(&packets(rx.local_addr(), &sent)), count);
}

#[test]
fn stock_limits_hold_five_full_sends() {
    let rx = bind(stock(V4));
    let held = rx.caps().rx_buffer_bytes.expect("a socket has a bound");
    assert_eq!(held, u64::from(STOCK_BUFFER_BYTES) / 4 * 3);
    if rx.segmentation() && rx.coalescing() {
        assert_eq!(held / cost_bytes(&rx, SHAPES[0], true), 5);
    }
}

#[test]
fn filling_up_to_what_is_advertised_drops_nothing() {
    for ip in [V4, V6] {
        for segmentation in [true, false] {
            for shape in SHAPES {
                let config = stock(ip).segmentation(segmentation);
                let (mut tx, mut rx) = (bind(config.clone()), bind(config));
                let cost = cost_bytes(&rx, shape, tx.segmentation());
                let held = rx.caps().rx_buffer_bytes.expect("a socket has a bound");
                let count = held / cost;
                if count == 0 {
                    continue;
                }
                for _ in 0..count {
                    send_shape(&mut tx, &rx, shape);
                }
                let what = format!("{shape:?} x {count}, {ip}, segmentation {segmentation}");
                super::settle(&mut rx);
                let wanted = count as usize * shape.0;
                assert_eq!(super::collect(&mut rx, wanted).len(), wanted, "{what}");
                assert_eq!(rx.counters().packets_dropped, 0, "{what}");
            }
        }
    }
}

#[test]
fn staying_below_what_is_advertised_drops_nothing_while_packets_come_and_go() {
    let seed = 7;
    let mut rng = Prng::new(seed);
    let (mut tx, mut rx) = (bind(stock(V4)), bind(stock(V4)));
    let held = rx.caps().rx_buffer_bytes.expect("a socket has a bound");
    // Costs and packet counts of what is in the socket, oldest first.
    let mut inside: std::collections::VecDeque<(u64, usize)> = std::collections::VecDeque::new();
    for _ in 0..20_000 {
        let shape = SHAPES[rng.below(SHAPES.len() as u64) as usize];
        let cost = cost_bytes(&rx, shape, tx.segmentation());
        let used: u64 = inside.iter().map(|&(cost, _)| cost).sum();
        if used + cost <= held && rng.chance(0.7) {
            send_shape(&mut tx, &rx, shape);
            inside.push_back((cost, shape.0));
        } else if let Some(&(_, count)) = inside.front() {
            let handed = rx.receive(count, &mut |_| {});
            assert!(handed > 0 || rx.wait_readable(super::PATIENCE), "seed {seed}");
            if let Some(oldest) = inside.front_mut() {
                oldest.1 -= handed;
            }
            inside.retain(|&(_, left)| left > 0);
        }
    }
    assert_eq!(rx.counters().packets_dropped, 0, "seed {seed}");
}

#[test]
fn what_the_kernel_drops_is_counted_at_once_and_once() {
    for segmentation in [true, false] {
        let config = stock(V4).segmentation(segmentation);
        let (mut tx, mut rx) = (bind(config.clone()), bind(config));
        let (sends, packets_each) = (20, 15);
        for _ in 0..sends {
            send_shape(&mut tx, &rx, (packets_each, 4_112));
        }
        super::settle(&mut rx);
        // Expect: drops show before any further packet comes in, a run as one.
        let at_once = rx.counters().packets_dropped;
        let mut received = collect_now(&mut rx);
        let per_drop = if tx.segmentation() && rx.coalescing() { packets_each } else { 1 };
        assert!(at_once > 0 && received > 0);
        let told =
            |rx: &UdpLink, received| rx.counters().packets_dropped as usize * per_drop + received;
        // A kernel that is busy may bring some only now.
        while told(&rx, received) < sends * packets_each && rx.wait_readable(super::PATIENCE) {
            received += collect_now(&mut rx);
        }
        assert_eq!(told(&rx, received), sends * packets_each);
        let dropped = rx.counters().packets_dropped;
        // The next packet tells of the same drops, which are not counted twice.
        send_shape(&mut tx, &rx, (1, 100));
        assert_eq!(super::collect(&mut rx, 1).len(), 1);
        assert_eq!(rx.counters().packets_dropped, dropped);
    }
}
