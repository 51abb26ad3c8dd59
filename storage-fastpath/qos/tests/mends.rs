//! Each mend of the published protocol, by what goes wrong without it.

mod model;

use model::{ClientPlan, Outcome, Pattern, Plan, run, zipf};
use towpath_base::{Nanos, Time};
use towpath_qos::{
    Action, Capacities, Conversion, Decay, Engine, Epoch, Estimation, Monitor, MonitorConfig,
    PeriodStart, PoolWord, Report, Rules, Share, Slot, Waiting, Words,
};

const ALL: u32 = 157_000;
const ONE: u32 = 40_000;
const PERIODS: usize = 8;
const SKIP: usize = 2;

fn plan(rules: Rules, clients: Vec<ClientPlan>) -> Plan {
    Plan {
        rules: Some(rules),
        clients,
        profiled: Capacities { all: ALL, one: ONE },
        truth: Vec::new(),
        period: Nanos::from_millis(100),
        tick: Nanos::from_micros(200),
        periods: PERIODS,
        seed: 3,
        message_delay: Nanos::from_micros(20),
        at_server: model::DEPTH,
    }
}

fn over(outcome: &Outcome) -> i64 {
    outcome.over_issued.iter().copied().max().unwrap_or(0)
}

/// Words whose pool engines add to just before the monitor writes it.
struct Raced {
    pool: u64,
    reports: Vec<u64>,
    takes: Vec<u32>,
    given: u64,
}

impl Raced {
    fn race(&mut self) {
        if let Some(count) = self.takes.pop() {
            let had = PoolWord::unpack(self.pool).tokens.max(0).min(i64::from(count));
            self.given += had as u64;
            self.pool = self.pool.wrapping_add(PoolWord::operand(count));
        }
    }
}

impl Words for Raced {
    fn pool(&mut self) -> u64 {
        self.pool
    }

    fn exchange_pool(&mut self, from: u64, to: u64) -> Result<(), u64> {
        self.race();
        if self.pool == from {
            self.pool = to;
            return Ok(());
        }
        Err(self.pool)
    }

    fn overwrite_pool(&mut self, to: u64) {
        self.race();
        self.pool = to;
    }

    fn report(&mut self, slot: Slot) -> u64 {
        self.reports[slot.index()]
    }
}

/// What was given in a period in which engines take tokens at the worst moment of each tick, and
/// report them the tick after.
fn given(rules: Rules) -> (u64, u32) {
    let config = MonitorConfig::new(Capacities { all: 1_000, one: 1_000 }).rules(rules);
    let config = MonitorConfig { period: Nanos::from_millis(10), ..config };
    let mut monitor = Monitor::new(config);
    monitor.join(Share::reserved(100)).expect("it fits");
    let mut words = Raced { pool: 0, reports: vec![0], takes: Vec::new(), given: 0 };
    monitor.begin(Time::ZERO, &mut words);
    for tick in 1..10u64 {
        let now = Time(tick * 1_000_000);
        let held = words.given as u32;
        let report = Report { held, done: 0, residual: 100, ..Report::default() };
        words.reports[0] = Report { beat: tick % 2 == 0, ..report }.pack(monitor.epoch(), 0);
        words.takes = vec![1_000];
        monitor.tick(now, &mut words);
        // One that asks in the middle of a tick.
        words.takes = vec![1_000];
        words.race();
    }
    (words.given, monitor.estimate())
}

#[test]
fn tokens_that_are_taken_while_the_pool_is_set_are_not_given_twice() {
    let (ours, capacity) = given(Rules::OURS);
    assert!(ours + 100 <= u64::from(capacity), "{ours} of {capacity}");
    let (overwritten, _) = given(Rules { conversion: Conversion::Overwrite, ..Rules::OURS });
    assert!(overwritten > u64::from(capacity), "the test sees what it is for: {overwritten}");
}

#[test]
fn an_engine_that_finds_the_pool_empty_asks_again_in_the_next_tick_and_not_at_once() {
    // Nearly all is reserved and used, so that those without a reservation find nothing.
    let clients = || {
        let mut all = vec![ClientPlan::new(39_000, 39_000, Pattern::Burst); 4];
        all.extend([ClientPlan::new(0, 10_000, Pattern::Burst); 6]);
        all
    };
    let ours = run(&plan(Rules::OURS, clients()));
    let eager = run(&plan(Rules { backs_off: false, ..Rules::OURS }, clients()));
    assert!(eager.atomics > ours.atomics * 2, "{} {}", eager.atomics, ours.atomics);
}

#[test]
fn an_addition_takes_what_is_there_and_not_what_it_asked_for() {
    let start = PeriodStart {
        epoch: Epoch(1),
        period: Nanos::from_secs(1),
        elapsed: Nanos::ZERO,
        reservation: 0,
        limit: None,
        batch: 1_000,
        goal: 0,
        expected: 0,
        window: towpath_qos::WINDOW_ALL,
        report_every: Nanos::from_millis(1),
        unit_shift: 0,
        reports: false,
        is_careful: false,
    };
    for (rules, held) in
        [(Rules::OURS, 7), (Rules { takes_what_is_there: false, ..Rules::OURS }, 1_000)]
    {
        let mut engine = Engine::new(rules);
        engine.start(Time::ZERO, &start);
        engine.arrived(Time::ZERO, 1, 1);
        assert!(engine.admit(Time::ZERO, 1).is_err());
        assert!(matches!(engine.poll(Time::ZERO), Some(Action::Fetch { .. })));
        engine.fetched(Time::ZERO, PoolWord { epoch: Epoch(1), tokens: 7 }.pack());
        assert_eq!(engine.tokens().1, held);
    }
}

#[test]
fn tokens_that_many_clients_hold_are_not_given_again() {
    let clients = || vec![ClientPlan::new(500, 2_000, Pattern::Burst); 200];
    let ours = run(&plan(Rules::OURS, clients()));
    let rules = Rules { counts_held: false, adapts_batch: false, ..Rules::OURS };
    let blind = run(&plan(Rules { reserved_first: false, ..rules }, clients()));
    assert!(over(&ours) < i64::from(ALL) / 100, "{}", over(&ours));
    assert!(over(&blind) > over(&ours), "{} {}", over(&blind), over(&ours));
}

#[test]
fn what_is_late_of_another_period_counts_for_nothing() {
    // An engine that stalled: its addition reached the pool of a period that it does not know.
    let mut engine = Engine::new(Rules::OURS);
    let start = |epoch: u16, elapsed| PeriodStart {
        epoch: Epoch(epoch),
        period: Nanos::from_secs(1),
        elapsed,
        reservation: 10,
        limit: Some(12),
        batch: 5,
        goal: 0,
        expected: 0,
        window: towpath_qos::WINDOW_ALL,
        report_every: Nanos::from_millis(1),
        unit_shift: 0,
        reports: true,
        is_careful: false,
    };
    let mut now = Time(5_000_000_000);
    engine.start(now, &start(1, Nanos::ZERO));
    engine.arrived(now, 20, 20);
    let tickets: Vec<_> = (0..10).map(|_| engine.admit(now, 1).expect("reserved")).collect();
    assert!(engine.admit(now, 1).is_err());
    let fetch = core::iter::from_fn(|| engine.poll(now));
    assert!(fetch.into_iter().any(|action| matches!(action, Action::Fetch { .. })));
    // The word is of a period before: nothing.
    engine.fetched(now, PoolWord { epoch: Epoch(0), tokens: 100 }.pack());
    assert_eq!(engine.tokens(), (0, 0));
    // I/Os that end in the next period are not its.
    now += Nanos::from_secs(1);
    assert!(engine.admit(now, 1).is_err(), "the period is over by its own clock");
    engine.start(now, &start(2, Nanos::ZERO));
    tickets.into_iter().for_each(|ticket| engine.done(now, ticket));
    assert_eq!(engine.completed(), 0);
    // A start that comes again, or late, changes nothing.
    let ticket = engine.admit(now, 1).expect("reserved");
    for epoch in [1, 2] {
        engine.start(now, &start(epoch, Nanos::ZERO));
        assert_eq!(engine.tokens().0, 9);
    }
    engine.done(now, ticket);
    assert_eq!(engine.completed(), 1);
    // Tokens of a period whose start is still on its way are kept for it.
    assert!((0..9).all(|_| engine.admit(now, 1).is_ok()));
    assert!(engine.admit(now, 1).is_err());
    while let Some(action) = engine.poll(now) {
        if let Action::Fetch { .. } = action {
            engine.fetched(now, PoolWord { epoch: Epoch(3), tokens: 100 }.pack());
            assert_eq!(engine.tokens(), (0, 0));
            break;
        }
    }
    engine.start(now, &start(3, Nanos::ZERO));
    assert_eq!(engine.tokens(), (10, 5));
    // The limit holds whatever tokens there are.
    assert!((0..12).all(|_| engine.admit(now, 1).is_ok()));
    assert_eq!(engine.admit(now, 1), Err(towpath_qos::Refusal::Limit));
}

#[test]
fn reports_of_another_period_are_not_believed() {
    for (rules, residual) in [(Rules::OURS, 500), (Rules { checks_epoch: false, ..Rules::OURS }, 0)]
    {
        let config = MonitorConfig::new(Capacities { all: 1_000, one: 1_000 }).rules(rules);
        let mut monitor = Monitor::new(config);
        let slot = monitor.join(Share::reserved(500)).expect("it fits");
        let late = Report { done: 500, ..Report::default() }.pack(Epoch(0), 0);
        let mut words = Raced { pool: 0, reports: vec![late], takes: Vec::new(), given: 0 };
        monitor.begin(Time::ZERO, &mut words);
        monitor.tick(Time(1_000_000), &mut words);
        let known = monitor.report(slot).expect("it has joined").last;
        assert_eq!((known.residual, known.done), (residual, 500 - residual));
    }
}

#[test]
fn a_client_that_the_server_does_not_serve_in_time_keeps_its_tokens() {
    let reservations = zipf(ALL / 10 * 9);
    let clients = || {
        let client = |&r: &u32| ClientPlan::new(r, r + ALL / 10, Pattern::Burst);
        reservations.iter().map(client).collect::<Vec<_>>()
    };
    // Alone: windows, and service by deadline, make up for it.
    let rules = Rules { reserved_first: false, keeps_windows: false, ..Rules::OURS };
    let short = |rules| {
        let outcome = run(&plan(rules, clients()));
        let done: u64 = outcome.done[SKIP..].iter().map(|period| u64::from(period[0])).sum();
        done as f64 / (f64::from(reservations[0]) * (PERIODS - SKIP) as f64)
    };
    let (demand, consumption) = (short(rules), short(Rules { decay: Decay::Consumption, ..rules }));
    assert!(demand > consumption + 0.05, "{demand} {consumption}");
}

#[test]
fn a_large_reservation_is_met_because_those_who_are_ahead_wait() {
    let mut spike = vec![28_500; 3];
    spike.extend([8_000; 7]);
    let clients = || {
        let client = |&r: &u32| ClientPlan::new(r, r + ALL / 10, Pattern::Burst);
        spike.iter().map(client).collect::<Vec<_>>()
    };
    let missed = |rules| run(&plan(rules, clients())).missed(0, 28_500, 0, SKIP);
    let alone = Rules { keeps_windows: false, ..Rules::OURS };
    assert_eq!(missed(alone), 0);
    assert!(missed(Rules { reserved_first: false, ..alone }) > 3);
}

/// A server that divides by what is under way divides by what each is to have.
#[test]
fn a_large_reservation_is_met_because_nobody_has_more_under_way_than_its_part() {
    let reservations = zipf(ALL / 10 * 9);
    let clients = || {
        let client = |&r: &u32| ClientPlan::new(r, r + ALL / 10, Pattern::Burst);
        reservations.iter().map(client).collect::<Vec<_>>()
    };
    let alone = Rules { reserved_first: false, ..Rules::OURS };
    let missed = |rules| run(&plan(rules, clients())).missed(0, reservations[0], 0, SKIP);
    assert_eq!(missed(alone), 0);
    assert!(missed(Rules { keeps_windows: false, ..alone }) > 3);
}

#[test]
fn what_a_dead_client_had_reserved_is_used_by_others() {
    let clients = || {
        let mut all = vec![ClientPlan::new(14_000, 60_000, Pattern::Burst); 10];
        let dies = Time(100_000_000 * 2 + 30_000_000);
        all[0].gone = Some((dies, Time::NEVER));
        all
    };
    let ours = run(&plan(Rules::OURS, clients()));
    let kept = run(&plan(Rules { leases: false, ..Rules::OURS }, clients()));
    let last = PERIODS - 2;
    assert!(ours.total(last) > u64::from(ALL) * 98 / 100, "{}", ours.total(last));
    assert!(kept.total(last) < u64::from(ALL) * 93 / 100, "{}", kept.total(last));
}

#[test]
fn who_stalls_over_the_end_of_a_period_takes_nothing_from_others() {
    let reservations = zipf(ALL / 10 * 9);
    let client = |&r: &u32| ClientPlan::new(r, r + ALL / 10, Pattern::Burst);
    let mut clients: Vec<_> = reservations.iter().map(client).collect();
    clients[9].gone = Some((Time(390_000_000), Time(425_000_000)));
    let ours = run(&plan(Rules::OURS, clients));
    for (client, &reservation) in reservations.iter().enumerate().take(9) {
        assert_eq!(ours.missed(client, reservation, 0, SKIP), 0, "client {client}");
    }
}

/// What is used up early is not given again as the tokens of the time to come.
#[test]
fn a_server_that_is_faster_than_its_estimate_does_no_more_than_that_in_a_period() {
    let make = |rules| {
        let mut plan = plan(rules, vec![ClientPlan::new(0, 3 * ALL, Pattern::Burst); 4]);
        plan.profiled = Capacities { all: ALL, one: 4 * ALL };
        plan.truth = vec![(0, 3_000)];
        plan
    };
    let ours = run(&make(Rules::OURS));
    for (period, tokens) in ours.tokens.iter().enumerate() {
        let (done, most) = (ours.total(period), u64::from(tokens + tokens / 100));
        assert!(done <= most, "period {period}: {done} of {tokens}");
    }
    let forgetful = run(&make(Rules { counts_held: false, ..Rules::OURS }));
    assert!(forgetful.total(0) > u64::from(ALL) * 2, "there is something to see");
}

/// Nor is what somebody has done that leaves within the period.
#[test]
fn who_leaves_takes_what_it_has_done_from_the_period() {
    let mut monitor = Monitor::new(MonitorConfig::new(Capacities { all: 1_000, one: 1_000 }));
    let slots = [0, 0].map(|none| monitor.join(Share::reserved(none)).expect("it fits"));
    let mut words = Raced { pool: 0, reports: vec![0; 2], takes: Vec::new(), given: 0 };
    monitor.begin(Time::ZERO, &mut words);
    let at = |ms| Time::ZERO + Nanos::from_millis(ms);
    let report = Report { beat: true, done: 900, ..Report::default() };
    words.reports[slots[0].index()] = report.pack(monitor.epoch(), monitor.unit_shift());
    words.pool = words.pool.wrapping_add(PoolWord::operand(900));
    for ms in 1..4 {
        monitor.tick(at(ms), &mut words);
    }
    monitor.leave(slots[0]);
    monitor.tick(at(4), &mut words);
    assert!(PoolWord::unpack(words.pool).tokens <= 100, "{:?}", PoolWord::unpack(words.pool));
}

#[test]
fn periods_without_demand_tell_nothing_of_capacity() {
    // Clients that want nine tenths of what there is, evenly.
    let clients = || vec![ClientPlan::new(10_000, ALL / 100 * 9, Pattern::Constant); 10];
    let ours = run(&plan(Rules::OURS, clients()));
    assert_eq!(ours.estimates.last(), Some(&ALL));
    // Beside: what Algorithm 1 makes of periods that lie just above its lower bound.
    let config = MonitorConfig::new(Capacities { all: ALL, one: ONE });
    let published = config.rules(Rules { estimation: Estimation::Published, ..Rules::OURS });
    let mut capacity = towpath_qos::Capacity::new(&published);
    capacity.learn(&published, u64::from(ALL - published.deviation * 2), Waiting::Few, false);
    assert!(capacity.estimate() < ALL - published.deviation);
    // And of a real loss beyond it: nothing at all.
    let mut capacity = towpath_qos::Capacity::new(&published);
    capacity.learn(&published, u64::from(ALL / 2), Waiting::Several, false);
    assert_eq!(capacity.estimate(), ALL);
    let ours = MonitorConfig::new(Capacities { all: ALL, one: ONE });
    let mut capacity = towpath_qos::Capacity::new(&ours);
    // One by itself may wait for its own host.
    capacity.learn(&ours, u64::from(ALL / 2), Waiting::One, false);
    assert_eq!(capacity.estimate(), ALL);
    capacity.learn(&ours, u64::from(ALL / 2), Waiting::Several, false);
    assert_eq!(capacity.estimate(), ALL / 2);
}

#[test]
fn a_start_that_comes_late_says_how_late_it_is() {
    let mut engine = Engine::new(Rules::OURS);
    let now = Time(10_000_000_000);
    let start = PeriodStart {
        epoch: Epoch(1),
        period: Nanos::from_secs(1),
        elapsed: Nanos::from_millis(400),
        reservation: 100,
        limit: None,
        batch: 1,
        goal: 0,
        expected: 0,
        window: towpath_qos::WINDOW_ALL,
        report_every: Nanos::from_millis(1),
        unit_shift: 0,
        reports: false,
        is_careful: false,
    };
    engine.start(now, &start);
    // Nothing is wanted: at the middle of the period half is given up, not a tenth.
    assert!(engine.poll(now + Nanos::from_millis(100)).is_none());
    assert_eq!(engine.tokens().0, 50);
}

#[test]
fn a_word_that_no_engine_makes_is_set_right_and_counted() {
    let config = MonitorConfig::new(Capacities { all: 1_000, one: 1_000 });
    let mut monitor = Monitor::new(config);
    monitor.join(Share::reserved(500)).expect("it fits");
    let mut words = Raced { pool: 0, reports: vec![0], takes: Vec::new(), given: 0 };
    monitor.begin(Time::ZERO, &mut words);
    let epoch = monitor.epoch();
    for spoilt in [PoolWord { epoch: epoch.next(), tokens: 5 }, PoolWord { epoch, tokens: 90_000 }]
    {
        words.pool = spoilt.pack();
        let look = monitor.tick(Time(1_000_000), &mut words);
        assert!(look.was_spoilt);
        assert_eq!(PoolWord::unpack(words.pool).epoch, epoch);
        assert!(PoolWord::unpack(words.pool).tokens <= 1_000);
    }
    assert_eq!(monitor.spoilt(), 2);
}

#[test]
fn a_reservation_that_the_estimate_no_longer_covers_is_told_and_nothing_new_is_admitted() {
    let config = MonitorConfig::new(Capacities { all: 1_000, one: 1_000 });
    let mut monitor = Monitor::new(config);
    let slots = [450; 2].map(|share| monitor.join(Share::reserved(share)).expect("it fits"));
    assert!(!monitor.is_overcommitted());
    let refused = monitor.join(Share::reserved(200));
    assert_eq!(refused, Err(towpath_qos::AdmissionError::Aggregate { left: 100, one: 1_000 }));
    let mut words = Raced { pool: 0, reports: vec![0; 2], takes: Vec::new(), given: 0 };
    monitor.begin(Time::ZERO, &mut words);
    for tick in 1..1000u64 {
        let done = tick as u32 / 4;
        let report = Report {
            beat: tick % 2 == 0,
            is_backlogged: true,
            is_at_server: true,
            held: 0,
            residual: 450 - done,
            done,
        };
        words.reports.fill(report.pack(monitor.epoch(), 0));
        monitor.tick(Time(tick * 1_000_000), &mut words);
    }
    let end = monitor.begin(Time(1_000_000_000), &mut words);
    assert!(end.was_saturated && end.was_behind);
    assert_eq!(end.completed, 498);
    assert!(monitor.is_overcommitted(), "{}", monitor.estimate());
    for slot in slots {
        assert!(monitor.report(slot).is_some_and(|report| report.missed_periods == 1));
    }
    assert!(monitor.join(Share::reserved(1)).is_err());
}

/// Point 8, the other way round: what it has reserved is beyond what its own host can do.
#[test]
fn a_client_that_cannot_use_its_reservation_holds_others_up_for_a_few_periods_only() {
    let mut clients = vec![ClientPlan::new(30_000, 35_000, Pattern::Burst)];
    clients[0].most = Some(10_000);
    clients.extend(vec![ClientPlan::new(10_000, 40_000, Pattern::Burst); 5]);
    let mut plan = plan(Rules::OURS, clients);
    plan.periods = 14;
    let outcome = run(&plan);
    let share = |period: usize| outcome.total(period) as f64 / f64::from(ALL);
    assert!(share(3) < 0.6, "there is something to mend: {}", share(3));
    for period in 7..13 {
        assert!(share(period) > 0.95, "period {period}: {}", share(period));
        assert!(outcome.done[period][0] >= 9_500, "it has what it can do");
        assert!(outcome.done[period][1..].iter().all(|&done| done >= 10_000));
    }
}

/// Point 7, for an engine that does not know how much its clients have under way.
#[test]
fn who_asks_again_as_soon_as_it_is_served_keeps_its_tokens_however_much_waits() {
    let period = Nanos::from_millis(100);
    let tick = Nanos::from_millis(1);
    let start = PeriodStart {
        epoch: Epoch(1),
        period,
        elapsed: Nanos::ZERO,
        reservation: 10_000,
        limit: None,
        batch: 1,
        goal: 0,
        expected: 0,
        window: towpath_qos::WINDOW_ALL,
        report_every: tick,
        unit_shift: 0,
        reports: true,
        is_careful: false,
    };
    let yielded = |engine: Engine| {
        let mut engine = engine.depth(32).tick(tick);
        engine.start(Time::ZERO, &start);
        engine.arrived(Time::ZERO, 128, 128);
        // It is served at half of the rate that it has reserved, and asks again each time.
        for ms in 1..=50 {
            let now = Time(ms * tick.0);
            for _ in 0..50 {
                let ticket = engine.admit(now, 1).expect("it has tokens");
                engine.done(now, ticket);
                engine.arrived(now, 1, 1);
            }
            let _ = engine.poll(now);
        }
        engine.yielded()
    };
    assert_eq!(yielded(Engine::new(Rules::OURS).closed_loop()), 0);
    assert!(yielded(Engine::new(Rules::OURS)) > 1_000, "there is something to see");
}
