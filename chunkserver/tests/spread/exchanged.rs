//! Servers that exchange their addresses: nothing of another part is ever read for one.

use super::*;

/// Both servers are started again, each at the address of the other.
fn exchange(fleet: &mut Fleet, one: usize, other: usize) {
    fleet.stop([one, other]);
    fleet.places.swap(one, other);
    fleet.start([one, other]);
}

fn flipped(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| !byte).collect()
}

#[test]
fn a_file_whose_servers_have_exchanged_addresses_is_read_without_them_or_not_at_all() {
    let mut fleet = Fleet::new(4);
    let bytes = pattern(200_000, 31);
    for (policy, is_enough) in [
        ("ring:3", true),
        ("ring:2", false),
        ("rs:2+2", true),
        ("rs:2+1", false),
        ("rs:2+2,triec", true),
        ("rs:2+1,triec", false),
    ] {
        for is_changed in [false, true] {
            let told = format!("{policy}, changed where it is: {is_changed}");
            let layout = put(&servers(), &fleet, &options(policy), &bytes);
            let mut bytes = bytes.clone();
            if is_changed {
                let change = flipped(&bytes[10_000..50_000]);
                bytes[10_000..50_000].copy_from_slice(&change);
                servers().write_at(&layout, 10_000, &change).expect("all are there");
            }
            exchange(&mut fleet, 0, 1);
            let servers = servers();
            let states = servers.stat(&layout).expect("a layout");
            let are_known = states.iter().map(|state| *state == NodeState::Whole);
            let are_two_others = are_known.enumerate().all(|(part, whole)| whole == (part > 1));
            assert!(are_two_others, "{told}: {states:?}");
            let read = get(&servers, &layout);
            let repaired = servers.repair(&layout, &RepairOptions::new(), |_| {});
            let mut layout = layout;
            match is_enough {
                true => {
                    assert!(read.expect("two are left") == bytes, "{told}");
                    layout = repaired.expect("two are left").layout;
                    assert!(get(&servers, &layout).expect("it is whole") == bytes, "{told}");
                    let states = servers.stat(&layout).expect("a layout");
                    assert!(states.iter().all(|state| *state == NodeState::Whole), "{told}");
                }
                false => {
                    let error = read.expect_err("one is left").to_string();
                    assert!(
                        error.contains("version") || error.contains("there is no chunk"),
                        "{error}"
                    );
                    repaired.expect_err("one is left");
                }
            }
            exchange(&mut fleet, 0, 1);
            // Where nothing was made for the other addresses, all is as it was.
            let again = get(&self::servers(), &layout);
            let again = again.unwrap_or_else(|error| {
                let states = self::servers().stat(&layout);
                panic!("{told}: {error}; {states:?}");
            });
            assert!(again == bytes, "{told}");
        }
    }
}

/// The chunks of all parts have one name, so each server has one that takes the other's units.
#[test]
fn a_part_whose_server_has_another_address_in_the_middle_of_a_put_is_not_whole() {
    for policy in ["rs:2+2,triec", "ring:3", "rs:2+2"] {
        let mut fleet = Fleet::new(4);
        let bytes = pattern(800_000, 32);
        let places = fleet.places.clone();
        let mut is_done = false;
        let stored = servers().put(&places, &options(policy), &mut &bytes[..], |sent| {
            if sent >= bytes.len() as u64 / 2 && !std::mem::replace(&mut is_done, true) {
                exchange(&mut fleet, 0, 1);
            }
        });
        let layout = stored.unwrap_or_else(|error| panic!("{policy}: {error}"));
        assert!(get(&servers(), &layout).expect("two are left") == bytes, "{policy}");
        let whole = layout.nodes.iter().map(|node| node.version.is_some());
        let are_two_others = whole.enumerate().all(|(part, whole)| whole == (part > 1));
        assert!(is_done && are_two_others, "{policy}: {layout:?}");
        let repaired = servers().repair(&layout, &RepairOptions::new(), |_| {});
        let layout = repaired.expect("two are left").layout;
        assert!(get(&servers(), &layout).expect("it is whole") == bytes, "{policy}");
        let found = servers().scrub(&layout, |_| {}).expect("a layout");
        assert_eq!((found.bad, found.torn), (ShardSet::NONE, 0), "{policy}");
    }
}
