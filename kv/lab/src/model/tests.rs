//! What must hold whatever the figures: closed forms, counts, orders.

use super::machine::{Alarm, Machine, Mode, Thread};
use super::store::Lock;
use super::*;
use towpath_kv::workload::Mix;

fn hardware() -> Hardware {
    Hardware {
        cores: 4,
        shared_percent: 50,
        quantum: 1_000_000,
        interrupt: 1_000,
        wake: 2_500,
        event: 2_000,
        line_gbps: 56,
        link: 400,
        host: 300,
        card: 40,
        card_rc: 1_000,
        cache: 64,
        cache_rc: 2,
        miss: 600,
    }
}

fn costs() -> Costs {
    Costs {
        client: 1_000,
        client_serial: 500,
        post: 300,
        reap: 200,
        crowd: 25,
        tcp: 5_000,
        tcp_arrival: 4_000,
        towpath: 640,
        store: 300,
        list: 500,
        change: 300,
        check: 100,
    }
}

fn plan(program: Program, transport: Transport, waiting: Waiting, clients: u32) -> Plan {
    Plan {
        transport,
        waiting,
        server_waiting: waiting,
        program,
        clients,
        workers: None,
        operations: 20_000,
        mix: Mix::Study,
        reads: 2,
        keys: 400,
        lists: 4,
        hardware: hardware(),
        costs: costs(),
        losses: Losses {
            share: 0.0,
            rc: 10_000_000,
            tcp: 20_000_000,
            towpath: 1_000_000,
            client: 1_000_000,
        },
        seed: 1,
    }
}

fn go(plan: &Plan) -> Outcome {
    println!("seed {}", plan.seed);
    run(plan, &|| false).expect("it comes to an end")
}

#[test]
fn a_lone_get_takes_what_its_parts_take() {
    let one = |transport, waiting| {
        let plan =
            Plan { operations: 1, mix: Mix::C, ..plan(Program::Ours, transport, waiting, 1) };
        // Nobody has a queue pair's state at the begin.
        let plan = Plan { hardware: Hardware { miss: 0, ..hardware() }, ..plan };
        u64::from(go(&plan).latencies[0])
    };
    // Card, bus and wire, with 46 bytes of headers: a request of 55 bytes, a reply of 1,024.
    let way = 2 * (40 + 300) + 400;
    let (request, reply) = (way + 101 * 8 / 56, way + 1_070 * 8 / 56);
    let polls = 300 + request + (200 + 300 + 300) + reply + 200;
    assert_eq!(one(Transport::Uc, Waiting::Polling), polls);
    // An interrupt, the time until it runs, and the event, at each end.
    let sleeps = polls + 2 * (1_000 + 2_500 + 2_000);
    assert_eq!(one(Transport::Uc, Waiting::Blocking), sleeps);
    // Two READs: 46 bytes there, 1,046 back, and from the server's memory.
    let found = way + 46 * 8 / 56 + 300 + 40 - 300 + 300 + 1_046 * 8 / 56 + 400;
    let read = 300 + found + 40 - 40 + 300 + 200 - 300;
    let seen = one(Transport::OneSided, Waiting::Polling);
    assert!(seen.abs_diff(2 * read + 100) < 1_000, "{seen}, about {}", 2 * read + 100);
}

#[test]
fn without_loss_each_operation_is_carried_out_once() {
    for program in [Program::Thesis, Program::Ours] {
        for transport in Transport::ALL {
            for waiting in [Waiting::Polling, Waiting::Blocking] {
                let plan = plan(program, transport, waiting, 6);
                let seen = go(&plan);
                let what = format!("{program:?} {transport:?} {waiting:?}");
                assert_eq!(seen.latencies.len() as u64, plan.operations, "{what}");
                assert_eq!(seen.executed + seen.one_sided, plan.operations, "{what}");
                assert_eq!((seen.repeated, seen.again, seen.lost), (0, 0, 0), "{what}");
                assert_eq!(seen.one_sided > 0, transport == Transport::OneSided, "{what}");
            }
        }
    }
}

#[test]
fn with_loss_raw_transports_repeat_and_the_others_do_each_operation_once() {
    for transport in Transport::ALL {
        for waiting in [Waiting::Polling, Waiting::Blocking] {
            let mut plan = plan(Program::Ours, transport, waiting, 6);
            plan.losses.share = 0.01;
            let (seen, what) = (go(&plan), format!("{transport:?} {waiting:?}"));
            assert_eq!(seen.latencies.len() as u64, plan.operations, "{what}");
            assert!(seen.lost > 100, "{what}: {}", seen.lost);
            if transport.is_raw() {
                assert_eq!(seen.repeated, seen.lost, "{what}: each loss is seen by a client");
                assert!(seen.again > seen.lost / 3, "{what}: {}", seen.again);
                assert_eq!(seen.executed, plan.operations + seen.again, "{what}");
            } else {
                assert_eq!(seen.executed + seen.one_sided, plan.operations, "{what}");
                assert_eq!((seen.repeated, seen.again), (0, 0), "{what}");
            }
        }
    }
}

#[test]
fn threads_that_sleep_switch_twice_for_each_operation_and_those_that_poll_never() {
    // As many threads as there are for them, and no two that want the same list.
    let base = |waiting| Plan { mix: Mix::C, ..plan(Program::Thesis, Transport::Uc, waiting, 8) };
    let seen = go(&base(Waiting::Blocking));
    for side in [0, 1] {
        assert!(seen.switches(side).abs_diff(40_000) < 100, "{}", seen.switches(side));
    }
    let seen = go(&base(Waiting::Polling));
    assert_eq!([seen.switches(0), seen.switches(1)], [0, 0]);
    let plan = Plan { clients: 12, ..base(Waiting::Polling) };
    assert!(go(&plan).involuntary.iter().all(|&switches| switches > 10));
}

#[test]
fn polling_collapses_past_the_processors_and_sleeping_does_not() {
    for transport in [Transport::Uc, Transport::Ud] {
        let per_s =
            |waiting, clients| go(&plan(Program::Thesis, transport, waiting, clients)).per_s();
        let (polls, sleeps) = (Waiting::Polling, Waiting::Blocking);
        let [full, many] = [8, 24].map(|clients| per_s(polls, clients));
        assert!(many < 0.85 * full, "{transport:?} polls: {full} {many}");
        let [full, many] = [8, 24].map(|clients| per_s(sleeps, clients));
        assert!(many > 0.95 * full, "{transport:?} sleeps: {full} {many}");
    }
}

#[test]
fn a_server_whose_gets_are_one_sided_does_nothing() {
    let gets = |transport| Plan {
        mix: Mix::C,
        server_waiting: Waiting::Blocking,
        ..plan(Program::Ours, transport, Waiting::Polling, 6)
    };
    let seen = go(&gets(Transport::OneSided));
    assert_eq!((seen.server_worked, seen.executed, seen.switches(1)), (0, 0, 0));
    let two_sided = go(&gets(Transport::Rc));
    assert!(two_sided.server_worked > 0);
    assert!(seen.per_s() > 1.2 * two_sided.per_s(), "a server that sleeps has to be woken");
}

#[test]
fn queue_pairs_beyond_the_cache_are_missed() {
    let of = |transport, clients| {
        let plan =
            Plan { workers: Some(4), ..plan(Program::Ours, transport, Waiting::Blocking, clients) };
        go(&plan).misses
    };
    assert_eq!(of(Transport::Uc, 64), 64, "each once");
    assert_eq!(of(Transport::Rc, 32), 32);
    assert!(of(Transport::Rc, 64) > 10_000, "one of RC counts for two");
    assert!(of(Transport::Uc, 128) > 10_000);
    assert_eq!(of(Transport::Ud, 128), 1, "one for all");
    assert_eq!(of(Transport::Towpath, 128), 4, "one for each worker");
    assert_eq!(of(Transport::Tcp, 128), 128, "the kernel has all");
}

#[test]
fn a_seed_decides_everything() {
    let of = |seed| {
        let plan = plan(Program::Thesis, Transport::Ud, Waiting::Polling, 12);
        go(&Plan { seed, ..plan })
    };
    assert_eq!(of(7), of(7));
    assert_ne!(of(7).hash, of(8).hash);
}

#[test]
fn a_run_stops_when_asked() {
    let plan = plan(Program::Thesis, Transport::Uc, Waiting::Polling, 2);
    assert_eq!(run(&plan, &|| true), Err(RunError::Stopped));
}

#[test]
fn two_threads_of_a_core_share_it() {
    let hardware = Hardware { cores: 1, ..hardware() };
    let mut machine = Machine::new(&hardware);
    let working = Thread { mode: Mode::Working(100 * 100), on: None };
    let mut threads = [working; 3];
    let end = |machine: &mut Machine| {
        machine.alarms.drain(..).rfind(|alarm| matches!(alarm, Alarm::End { .. }))
    };
    assert!(machine.want(0, 0, &mut threads));
    assert_eq!(end(&mut machine), Some(Alarm::End { cpu: 0, generation: 1, at: 100 }));
    // Half of the work is done when another one comes: the rest takes twice as long.
    assert!(machine.want(50, 1, &mut threads));
    let ends: Vec<_> = machine.alarms.drain(..).collect();
    assert!(ends.contains(&Alarm::End { cpu: 0, generation: 2, at: 150 }), "{ends:?}");
    assert!(ends.contains(&Alarm::End { cpu: 1, generation: 2, at: 250 }), "{ends:?}");
    assert_eq!(machine.ended(150, 0, 1), None, "an old alarm is void");
    assert_eq!(machine.ended(150, 0, 2), Some(0));
    // A third one waits, and its turn comes when the quantum of another is over.
    assert!(!machine.want(150, 2, &mut threads));
    let slice = machine.alarms.iter().find(|alarm| matches!(alarm, Alarm::Slice { .. }));
    assert_eq!(slice, Some(&Alarm::Slice { cpu: 0, at: hardware.quantum }));
    assert_eq!(machine.slice(hardware.quantum, 0, &mut threads), Some(2));
    assert_eq!((threads[0].on, threads[2].on, machine.involuntary), (None, Some(0), 1));
}

#[test]
fn a_lock_goes_to_the_thread_that_has_waited_longest() {
    let mut lock = Lock::default();
    assert!(lock.take(1));
    assert!(!lock.take(2));
    assert!(!lock.take(3));
    assert_eq!([lock.release(), lock.release(), lock.release()], [Some(2), Some(3), None]);
    assert!(lock.take(4));
}
