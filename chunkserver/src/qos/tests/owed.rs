//! Work that is known only when it is done: its tenant pays before it gets more.

use super::*;

/// What `scattered` and `plain` do, in tokens a period, with the same reservation and more wanted
/// than there is; each request of the first costs `cost` and turns out to cost `more`.
fn side_by_side(cost: u32, more: u32) -> [f64; 2] {
    let rate = IOPS / 10 * 4;
    let list = [("scattered", share(rate, None, 1)), ("plain", share(rate, None, 1))];
    let mut model = world(config(&list), &[("scattered", cost, 64), ("plain", 1, 64)]);
    model.clients[0].more = more;
    model.run(20);
    let plain = shares(&model, "plain", rate);
    assert!(plain.iter().skip(2).all(|share| *share >= 0.99), "of its reservation: {plain:?}");
    [("scattered", cost + more, cost), ("plain", 1, 1)].map(|(name, all, counted)| {
        let done: u32 = model.of(name).iter().skip(2).sum();
        f64::from(done) * f64::from(all) / f64::from(counted) / 18.0
    })
}

#[test]
fn a_tenant_whose_deletes_leave_much_behind_has_little_more_than_if_they_had_cost_it_before() {
    let [scattered, plain] = side_by_side(1, 9);
    let [before, beside] = side_by_side(10, 0);
    println!("{scattered} beside {plain}, and paid before {before} beside {beside}");
    // Of each period a part of the pool, as much as what is under way turns out to cost.
    let under_way = 32.0 * 9.0 * 1.25;
    assert!(scattered < before + under_way, "{scattered} and {before}");
    assert!(plain > beside - under_way, "{plain} and {beside}");
}

#[test]
fn what_is_owed_stays_while_others_want_something_and_is_paid_when_nobody_does() {
    let list = [("owes", share(IOPS / 10, None, 1)), ("busy", share(IOPS / 10, None, 1))];
    let mut model = world(config(&list), &[("busy", 1, 200)]);
    let id = model.node.find("owes").expect("it is a tenant");
    model.run(3);
    model.node.owe(model.now, id, 10 * u64::from(IOPS));
    model.run(5);
    assert!(!model.node.pays(model.now, id), "it has asked for nothing, but others have");
    // Ten periods in which nobody asks for anything.
    for _ in 0..100 {
        model.now += Nanos::from_millis(10);
        model.node.turn(model.now);
    }
    assert!(model.node.pays(model.now, id));
}

/// Twelve periods of a tenant beside others, which owes so many tokens and always wants one more.
fn while_it_pays(name: &str, of: Share, owed: u64) -> Model {
    let list = [(name, of)];
    let mut model = world(config(&list), &[("others", 1, 500)]);
    let id = model.node.find(name).expect("it is a tenant");
    model.run(3);
    model.node.owe(model.now, id, owed);
    assert!(model.add(name, 1, Asks::Always(1)));
    model.done.clear();
    model.run(12);
    model
}

#[test]
fn what_is_owed_is_paid_within_a_limit_however_low() {
    let model = while_it_pays("low", share(0, Some(30), 1), 6);
    // Three tokens a period. Three of those that it owes may be paid before the first request.
    let done = model.of("low");
    let all: u32 = done.iter().sum();
    assert!(done.iter().all(|done| *done <= 3) && (24..=33).contains(&all), "{done:?}");
}

#[test]
fn what_is_owed_is_paid_with_the_few_tokens_of_a_small_reservation() {
    let model = while_it_pays("small", share(100, None, 1), 40);
    // Ten tokens a period, which others cannot have.
    let done: u32 = model.of("small").iter().sum();
    assert!(done >= 40, "of 120 tokens 40 are for what is owed: {done}");
}
