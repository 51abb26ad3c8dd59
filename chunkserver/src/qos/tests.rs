//! A server that does so many requests a second, and tenants that want more than they have, in
//! virtual time.

use towpath_qos::{Engine, FromMonitor, PoolWord, Rules, Share};
use towpath_transport::{Nanos, Time};

use super::clients::Comer;
use super::model::{Asks, Model};
use super::node::{Mail, Node};
use super::tenant::{Seat, TenantId, Work};
use super::{JoinError, QosConfig, Shares};

mod owed;

const IOPS: u32 = 50_000;

fn tenants(list: &[(&str, Share)]) -> Shares {
    list.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect()
}

fn share(reservation: u32, limit: Option<u32>, weight: u16) -> Share {
    Share { reservation, limit, weight }
}

fn config(list: &[(&str, Share)]) -> QosConfig {
    QosConfig {
        period: Nanos::from_millis(100),
        tick: Nanos::from_micros(200),
        tenants: tenants(list),
        ..QosConfig::new(IOPS)
    }
}

fn world(config: QosConfig, wants: &[(&'static str, u32, usize)]) -> Model {
    let node = Node::new(config).expect("memory for a test");
    assert_eq!(node.refused(), []);
    let seed = 28;
    println!("seed {seed}");
    let mut model = Model::new(node, IOPS, seed);
    for &(name, cost, waiting) in wants {
        assert!(model.add(name, cost, Asks::Always(waiting)), "{name} is a tenant");
    }
    model
}

fn comer(seat: Seat, is_member: bool, runs_engine: bool) -> Comer {
    Comer { seat, is_member, is_seen: true, runs_engine }
}

/// What one did in each period, as a share of what it would at `rate` a second.
fn shares(model: &Model, name: &str, rate: u32) -> Vec<f64> {
    let full = f64::from(rate) / 10.0;
    model.of(name).into_iter().map(|done| f64::from(done) / full).collect()
}

/// What all did, as a share of what the server can do, from a period on.
fn total(model: &Model, from: usize) -> f64 {
    let sum: u32 = model.done[from..].iter().flatten().sum();
    f64::from(sum) / (model.done.len() - from) as f64 / (f64::from(model.rate) / 10.0)
}

#[test]
fn each_gets_its_reservation_in_each_period_whatever_a_greedy_one_does() {
    let list = [
        ("large", share(IOPS / 10 * 6, None, 1)),
        ("middle", share(IOPS / 5, None, 1)),
        ("small", share(IOPS / 10, None, 1)),
    ];
    let wants = [("large", 1, 64), ("middle", 1, 64), ("small", 1, 64), ("others", 1, 500)];
    let mut model = world(config(&list), &wants);
    model.run(30);
    for (name, rate) in [("large", IOPS / 10 * 6), ("middle", IOPS / 5), ("small", IOPS / 10)] {
        let found = shares(&model, name, rate);
        assert!(found.iter().skip(1).all(|share| *share >= 0.995), "{name}: {found:?}");
    }
    assert!(total(&model, 1) > 0.99, "{}", total(&model, 1));
}

#[test]
fn reservations_are_served_side_by_side_and_not_the_largest_first() {
    let list = [("large", share(IOPS / 10 * 6, None, 1)), ("small", share(IOPS / 10, None, 1))];
    let mut model = world(config(&list), &[("large", 1, 64), ("small", 1, 64)]);
    let half = model.now + Nanos::from_millis(40);
    while model.now < half {
        model.now += Nanos::from_micros(10);
        model.turn();
    }
    let done = model.done.last().expect("a period is under way");
    let used = [(0, 3_000.0), (1, 500.0)].map(|(i, all)| f64::from(done[i]) / all);
    // In 40 ms of 100, of a server with which 70 % are reserved.
    assert!(
        used.iter().all(|part| (0.3..0.6).contains(part)),
        "parts of the reservations: {used:?}"
    );
}

#[test]
fn what_is_not_used_goes_to_others_by_weight() {
    let list = [
        ("idle", share(IOPS / 2, None, 1)),
        ("one", share(0, None, 1)),
        ("three", share(0, None, 3)),
    ];
    let mut model = world(config(&list), &[("one", 1, 200), ("three", 1, 200)]);
    model.run(10);
    let (one, three) = (shares(&model, "one", IOPS), shares(&model, "three", IOPS));
    for (one, three) in one.iter().zip(&three).skip(1) {
        assert!((2.7..3.3).contains(&(three / one)), "{one} {three}");
    }
    assert!(total(&model, 1) > 0.98, "{}", total(&model, 1));
}

#[test]
fn costly_requests_use_as_many_tokens_as_they_cost() {
    let list = [("long", share(IOPS / 2, None, 1)), ("short", share(IOPS / 5 * 2, None, 1))];
    let mut model = world(config(&list), &[("long", 16, 32), ("short", 1, 64)]);
    model.run(12);
    for (name, rate) in [("long", IOPS / 2), ("short", IOPS / 5 * 2)] {
        let found = shares(&model, name, rate);
        assert!(found.iter().skip(1).all(|share| *share >= 0.99), "{name}: {found:?}");
    }
}

#[test]
fn a_limit_holds_where_nobody_else_wants_anything() {
    let list = [("limited", share(IOPS / 10, Some(IOPS / 5), 1))];
    let mut model = world(config(&list), &[("limited", 1, 100)]);
    model.run(8);
    let found = shares(&model, "limited", IOPS / 5);
    assert!(found.iter().all(|share| (0.98..=1.01).contains(share)), "{found:?}");
}

#[test]
fn a_server_that_does_less_than_was_thought_does_what_is_reserved_first() {
    let list = [("reserved", share(IOPS / 2, None, 1))];
    let mut model = world(config(&list), &[("reserved", 1, 64), ("others", 1, 500)]);
    model.rate = IOPS / 100 * 60;
    model.run(20);
    let found = shares(&model, "reserved", IOPS / 2);
    assert!(found.iter().skip(1).all(|share| *share >= 0.98), "{found:?}");
    let estimate = model.node.monitor.estimate();
    assert!((2_700..3_400).contains(&estimate), "of a period of 100 ms: {estimate}");
}

#[test]
fn reservations_change_while_the_server_runs_and_a_refusal_says_what_is_left() {
    let list = [("a", share(IOPS / 2, None, 1)), ("b", share(IOPS / 4, None, 1))];
    let mut model = world(config(&list), &[("a", 1, 64), ("b", 1, 64), ("others", 1, 500)]);
    model.run(3);
    let more = [("a", share(IOPS / 4, None, 1)), ("b", share(IOPS / 2, None, 1))];
    model.node.set_tenants(&tenants(&more));
    assert_eq!(model.node.refused(), [], "who gives up comes first");
    model.done.clear();
    model.run(4);
    let found = shares(&model, "b", IOPS / 2);
    assert!(found.iter().skip(2).all(|share| *share >= 0.99), "{found:?}");
    let too_much = [("a", share(IOPS / 4, None, 1)), ("b", share(IOPS, None, 1))];
    model.node.set_tenants(&tenants(&too_much));
    let refused = model.node.refused();
    assert_eq!(refused.len(), 1);
    let said = refused[0].error.to_string();
    let left = model.node.monitor.estimate() - IOPS / 40;
    assert!(said.starts_with(&format!("the other reservations leave {left} tokens")), "{said}");
    model.node.set_tenants(&Shares::new());
    model.done.clear();
    // Who has no tenant any more is one of the others.
    model.run(2);
    assert!(total(&model, 1) > 0.97, "{}", total(&model, 1));
}

/// A client with an engine of its own, as the server sees it.
struct Far {
    engine: Engine,
    id: TenantId,
    work: Work,
}

#[test]
fn a_client_without_tokens_is_cut_off_and_named_and_the_others_keep_theirs() {
    let list = [("greedy", share(IOPS / 10, None, 1)), ("b", share(IOPS / 2, None, 1))];
    let mut model = world(config(&list), &[("b", 1, 64), ("others", 1, 100)]);
    model.run(2);
    let seat = super::tenant::tests::seat(0);
    let now = model.now;
    let joined = model.node.join(now, "greedy", comer(seat, false, true)).expect("it may");
    let mut far = Far {
        engine: Engine::new(Rules::OURS).tick(Nanos::from_micros(200)),
        id: joined.tenant,
        work: Work::default(),
    };
    assert!(joined.words.is_some());
    model.node.served(now, far.id, seat, far.work);
    let mut was_cut_off = false;
    for step in 1..=2_000_u64 {
        model.now += Nanos::from_micros(10);
        model.turn();
        for mail in model.node.take_mail().collect::<Vec<_>>() {
            match mail {
                Mail::Push(to, bytes) => {
                    assert_eq!(to, seat);
                    match FromMonitor::parse(&bytes).expect("it is a message") {
                        FromMonitor::Start(start) => far.engine.start(model.now, &start),
                        FromMonitor::Notice(notice) => far.engine.notice(model.now, &notice),
                    }
                }
                Mail::CutOff(to) => {
                    assert_eq!(to, seat);
                    was_cut_off = true;
                }
            }
        }
        // It does without tokens what it likes.
        far.work.tokens += 10;
        if step % 20 == 0 && !was_cut_off {
            model.node.served(model.now, far.id, seat, std::mem::take(&mut far.work));
        }
    }
    assert!(was_cut_off && far.engine.epoch().is_some());
    let report = model.node.report();
    let greedy = report.tenants.iter().find(|tenant| tenant.name == "greedy").expect("it is one");
    assert_eq!((greedy.cut_off, greedy.has_client), (1, false));
    assert!(greedy.overrun > 0 && greedy.used_one_sided > u64::from(IOPS / 100));
    let again = model.node.join(model.now, "greedy", comer(seat, true, true));
    assert!(matches!(again, Err(JoinError::Barred(_))), "{again:?}");
}

#[test]
fn a_tenant_has_one_engine_and_who_leaves_gives_it_back() {
    let list = [("a", share(IOPS / 2, None, 1))];
    let mut model = world(config(&list), &[("others", 1, 10)]);
    model.run(1);
    let (first, second) = (super::tenant::tests::seat(0), super::tenant::tests::seat(1));
    let now = model.now;
    let node = &mut model.node;
    let joined = node.join(now, "a", comer(first, false, true)).expect("nobody has it");
    assert_eq!(
        node.join(now, "a", comer(first, true, true)),
        Ok(joined.clone()),
        "it may ask again"
    );
    for runs_engine in [false, true] {
        let other = node.join(now, "a", comer(second, false, runs_engine));
        assert_eq!(other, Err(JoinError::Taken));
    }
    assert_eq!(node.join(now, "b", comer(second, false, false)), Err(JoinError::NoSuchTenant));
    node.leave(joined.tenant, second);
    assert_eq!(node.join(now, "a", comer(second, false, false)), Err(JoinError::Taken));
    node.leave(joined.tenant, first);
    node.forget(joined.tenant);
    let plain = node.join(now, "a", comer(second, false, false));
    assert!(plain.is_ok_and(|joined| joined.words.is_none()));
    // Who shares the tenant with others does not take all its tokens.
    let third = super::tenant::tests::seat(2);
    assert_eq!(node.join(now, "a", comer(third, false, true)), Err(JoinError::Taken));
    assert!(
        node.join(now, "a", comer(second, true, true)).is_ok_and(|joined| joined.words.is_some())
    );
}

#[test]
fn a_server_that_nobody_uses_sleeps_and_the_next_request_begins_a_period() {
    let mut model = world(config(&[]), &[("others", 1, 4)]);
    model.run(2);
    model.clients[0].asks = Asks::Always(0);
    for _ in 0..60_000 {
        model.now += Nanos::from_micros(10);
        model.turn();
    }
    assert_eq!(model.node.next_due(), Time::NEVER);
    let before = model.node.periods;
    model.clients[0].asks = Asks::Always(4);
    model.turn();
    assert_eq!(model.node.periods, before + 1);
    assert!(model.clients[0].waiting < 4, "it is served at once");
}

#[test]
fn what_waits_for_tokens_is_done_in_later_periods_though_nobody_asks_again() {
    let list = [("limited", share(0, Some(100), 1))];
    let mut model = world(config(&list), &[("limited", 1, 25)]);
    model.turn();
    model.clients[0].asks = Asks::Always(0);
    // Ten in each period of a tenth of a second.
    for _ in 0..50_000 {
        model.now += Nanos::from_micros(10);
        model.turn();
    }
    assert_eq!(model.clients[0].waiting, 0);
    assert_eq!(model.of("limited")[..3], [10, 10, 5]);
    assert_eq!(model.node.arrived(model.now, model.clients[0].id, 11), Err(10));
}

#[test]
fn nobody_takes_the_tokens_of_those_who_have_named_no_tenant() {
    let mut model = world(config(&[]), &[("others", 1, 10)]);
    model.run(1);
    let seat = super::tenant::tests::seat(0);
    for name in ["others", "scrub"] {
        let taken = model.node.join(model.now, name, comer(seat, false, true));
        assert_eq!(taken, Err(JoinError::Taken), "{name}");
        assert!(model.node.join(model.now, name, comer(seat, false, false)).is_ok(), "{name}");
    }
}

#[test]
fn a_renamed_tenant_has_its_word_for_itself() {
    let mut model = world(config(&[("web", share(1_000, None, 1))]), &[("others", 1, 10)]);
    model.run(1);
    model.node.set_tenants(&tenants(&[("www", share(1_000, None, 1))]));
    let seat = super::tenant::tests::seat(0);
    let joined = model.node.join(model.now, "www", comer(seat, false, true)).expect("it is new");
    // It is known to the ledger at once, and does nothing.
    model.node.served(model.now, joined.tenant, seat, Work::default());
    model.node.served(model.now, joined.tenant, seat, Work::default());
    let slot = model.node.tenants[joined.tenant.index()].slot;
    model.run(1);
    let word = 0x1234_5678;
    model.node.table.write_report(slot, word);
    for _ in 0..100 {
        model.now += Nanos::from_micros(10);
        model.turn();
    }
    let words: &mut super::WordTable = &mut model.node.table;
    assert_eq!(towpath_qos::Words::report(words, slot), word, "only its client writes there");
    let report = model.node.report();
    let www = report.tenants.iter().find(|tenant| tenant.name == "www").expect("it is one");
    assert_eq!((www.cut_off, www.overrun), (0, 0));
}

#[test]
fn additions_that_take_nothing_from_the_pool_give_leave_for_nothing() {
    let list = [("idle", share(0, None, 1)), ("a", share(IOPS, None, 1))];
    let mut model = world(config(&list), &[("a", 1, 64)]);
    model.run(2);
    let seat = super::tenant::tests::seat(0);
    let joined = model.node.join(model.now, "idle", comer(seat, false, true)).expect("it may");
    let mut done = 0;
    while model.node.tenants[joined.tenant.index()].seat().is_some() {
        model.now += Nanos::from_micros(200);
        model.turn();
        // Eight additions of nothing in each look.
        let work = Work { tokens: 10, additions: 8, words: 1 };
        model.node.served(model.now, joined.tenant, seat, work);
        done += 10;
        assert!(done < IOPS, "it is cut off");
    }
    assert!(done < 200, "{done}");
}

#[test]
fn an_addition_gives_leave_for_no_more_than_it_can_have_taken() {
    let list = [("greedy", share(0, None, 1))];
    let mut model = world(config(&list), &[("others", 1, 1)]);
    model.run(1);
    let seat = super::tenant::tests::seat(0);
    let joined = model.node.join(model.now, "greedy", comer(seat, false, true)).expect("it may");
    let mut done = 0;
    while model.node.tenants[joined.tenant.index()].seat().is_some() {
        model.now += Nanos::from_micros(200);
        model.turn();
        // Another one takes five times as much as it has leave for.
        model.node.table.fetch_add(PoolWord::operand(500));
        let work = Work { tokens: 100, additions: 1, words: 1 };
        model.node.served(model.now, joined.tenant, seat, work);
        done += 100;
        assert!(done < IOPS / 10, "it is cut off");
    }
    assert!(done < 500, "{done}");
}

#[test]
fn what_was_done_before_a_period_began_is_not_charged_to_it() {
    let list = [("a", share(IOPS / 2, None, 1))];
    let mut model = world(config(&list), &[("others", 1, 1)]);
    model.run(1);
    let seat = super::tenant::tests::seat(1);
    let joined = model.node.join(model.now, "a", comer(seat, false, true)).expect("it may");
    let look = |model: &mut Model, tokens: u32| {
        let work = Work { tokens: tokens.into(), additions: 0, words: 0 };
        model.node.served(model.now, joined.tenant, seat, work);
        model.node.tenants[joined.tenant.index()].seat().is_some()
    };
    let wait = |model: &mut Model, until: Time| {
        while model.now < until {
            model.now += Nanos::from_micros(10);
            model.turn();
        }
    };
    // Its worker looks a fifth of a period before the next begins, and is away then.
    let next = model.node.next_period;
    wait(&mut model, Time(next.0 - 20_000_000));
    assert!(look(&mut model, 0));
    wait(&mut model, next + Nanos::from_micros(10));
    assert!(look(&mut model, IOPS / 50), "all of it may have been done before");
    // A tenth of a second's reservation.
    wait(&mut model, next + Nanos::from_millis(50));
    assert!(look(&mut model, IOPS / 20), "it has tokens for that");
    wait(&mut model, next + Nanos::from_millis(60));
    assert!(!look(&mut model, IOPS / 100), "and for no more");
}

#[test]
fn a_client_that_does_not_report_is_named_once_for_each_period() {
    let list = [("silent", share(IOPS / 10, None, 1))];
    let mut model = world(config(&list), &[("others", 1, 100)]);
    model.run(1);
    let seat = super::tenant::tests::seat(0);
    model.node.join(model.now, "silent", comer(seat, false, true)).expect("it may");
    let lost = |model: &mut Model| {
        let report = model.node.report();
        let found = report.tenants.into_iter().find(|tenant| tenant.name == "silent");
        found.map(|tenant| tenant.lost_periods)
    };
    assert_eq!(lost(&mut model), Some(0));
    // It came within the first of these.
    model.done.clear();
    model.run(4);
    assert_eq!(lost(&mut model), Some(3));
}

#[test]
fn nothing_is_held_against_clients_that_are_trusted() {
    let list = [("greedy", share(IOPS / 10, None, 1))];
    let trusts = QosConfig { trusts_clients: true, rules: Rules::PUBLISHED, ..config(&list) };
    let mut model = world(trusts, &[("others", 1, 10)]);
    model.run(1);
    let seat = super::tenant::tests::seat(0);
    let joined = model.node.join(model.now, "greedy", comer(seat, false, true)).expect("it may");
    for _ in 0..1_000 {
        model.now += Nanos::from_micros(200);
        model.turn();
        let work = Work { tokens: 100, additions: 9, words: 9 };
        model.node.served(model.now, joined.tenant, seat, work);
    }
    let report = model.node.report();
    let found = report.tenants.into_iter().find(|tenant| tenant.name == "greedy").expect("is one");
    assert_eq!((found.has_client, found.cut_off, found.overrun, found.misreports), (true, 0, 0, 0));
    assert!(found.used_one_sided >= 100_000, "{}", found.used_one_sided);
}

#[test]
fn who_gives_something_up_may_while_more_is_reserved_than_the_server_does() {
    let list = [("a", share(IOPS / 2, None, 1)), ("b", share(IOPS / 2, None, 1))];
    let wants = [("a", 1, 64), ("b", 1, 64)];
    let mut model = world(config(&list), &wants);
    model.rate = IOPS / 2;
    model.run(12);
    assert!(model.node.monitor.is_overcommitted(), "{}", model.node.monitor.estimate());
    let less = [("a", share(IOPS / 5, None, 2)), ("b", share(IOPS / 2, None, 1))];
    model.node.set_tenants(&tenants(&less));
    assert_eq!(model.node.refused(), []);
}

#[test]
fn another_worker_goes_on_while_the_first_is_away() {
    let handles = super::Qos::for_workers(config(&[]), 2).expect("memory for a test");
    let [mut first, mut second]: [super::Qos; 2] = handles.try_into().expect("two");
    first.attach(Time(1_000), None);
    second.attach(Time(1_000), None);
    let tick = Nanos::from_micros(200);
    let (others, start) = (TenantId::default(), Time(2_000));
    first.at(start, |node, now| node.arrived(now, others, 1)).expect("it is within its limit");
    let periods = |qos: &super::Qos| qos.at(start, |node, _| node.periods);
    assert_eq!(periods(&first), 1);
    // Its clock began at another time, by less than a second in this test.
    let later = second.next_due() + tick;
    assert!(later < Time(start.0 + 2_000_000_000), "it has a part in it");
    let end = later + Nanos::from_secs(2);
    let mut now = later;
    while now < end {
        second.turn(now);
        second.at(now, |node, now| node.arrived(now, others, 1)).expect("it is within its limit");
        now += tick;
    }
    assert!(periods(&second) > 15, "{}", periods(&second));
}

#[test]
fn the_room_below_a_limit_is_used_up_and_there_again_in_the_next_period() {
    let list = [("slow", share(0, Some(500), 1)), ("free", share(0, None, 1))];
    let mut node = Node::new(config(&list)).expect("memory for a test");
    let id = |name: &str| {
        let index = node.tenants.iter().position(|tenant| tenant.name == name);
        TenantId::of_index(index.expect("a tenant"))
    };
    let (slow, free) = (id("slow"), id("free"));
    let mut now = Time(1_000_000);
    node.wake(now);
    assert_eq!(node.room_below_limit(free), None);
    for left in (0..50).rev() {
        node.arrived(now, slow, 1).expect("less than its limit");
        drop(node.admit(now, slow, 1).expect("the pool has enough"));
        assert_eq!(node.room_below_limit(slow), Some(left));
    }
    node.arrived(now, slow, 1).expect("less than its limit");
    assert!(node.admit(now, slow, 1).is_none(), "its limit is used up");
    while node.periods < 2 {
        now = node.next_due();
        node.turn(now);
    }
    assert_eq!(node.room_below_limit(slow), Some(50));
}
