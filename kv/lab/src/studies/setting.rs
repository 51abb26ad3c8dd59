//! The machines of the thesis, and the parameters that all studies have.

use crate::model::{Costs, Hardware, Losses, Plan, Program, Transport, Waiting};
use towpath_kv::limits::BUCKETS;
use towpath_kv::workload::Mix;
use towpath_lab::studies::{Kind, Param, Params};

/// What the thesis divides among its clients.
pub(super) const THESIS_OPERATIONS: u64 = 10_000_000;

const fn count(
    name: &'static str,
    what: &'static str,
    unit: &'static str,
    is: &'static str,
) -> Param {
    Param { name, what, unit, kind: Kind::Count(0..=10_000_000), many: false, defaults: [is; 3] }
}

/// Latencies are kept one by one, four bytes each, of as many runs as there are threads.
pub(super) const OPERATIONS: Param = Param {
    kind: Kind::Count(1..=20_000_000),
    defaults: ["20000", "100000", "10000000"],
    ..count("operations", "Operations that the clients divide among them", "", "")
};
pub(super) const CORES: Param = Param {
    kind: Kind::Count(1..=32),
    ..count("cores", "Cores of each machine, two hardware threads each", "", "16")
};
pub(super) const SHARED: Param = Param {
    kind: Kind::Count(1..=100),
    ..count("smt-percent", "Speed of a hardware thread whose core is shared (fitted)", "%", "72")
};
pub(super) const QUANTUM: Param = Param {
    kind: Kind::Count(1..=1_000_000),
    ..count(
        "quantum-us",
        "How long a thread keeps a processor that others want (fitted)",
        "us",
        "7000",
    )
};
pub(super) const INTERRUPT: Param = count(
    "interrupt-ns",
    "What the processor that gets all interrupts takes for one (fitted)",
    "ns",
    "1750",
);
pub(super) const WAKE: Param =
    count("wake-ns", "From an interrupt until a sleeping thread may run", "ns", "2500");
pub(super) const EVENT: Param =
    count("event-ns", "What an event and a switch to the thread cost it", "ns", "2000");
pub(super) const LINE: Param = Param {
    kind: Kind::Count(1..=8_000),
    ..count("line-gbps", "What the wire carries each way", "Gb/s", "56")
};
pub(super) const LINK: Param = count("link-ns", "From one card to the other", "ns", "400");
pub(super) const HOST: Param = count("pcie-ns", "One way between a host and its card", "ns", "300");
pub(super) const CARD: Param = count("card-ns", "What a card takes for a packet", "ns", "40");
pub(super) const CARD_RC: Param =
    count("card-rc-ns", "The same of RC with the thesis's programs (fitted)", "ns", "1005");
pub(super) const CACHE: Param =
    count("cache", "Queue pairs whose state a card has at hand", "", "512");
pub(super) const CACHE_RC: Param = Param {
    kind: Kind::Count(1..=1_000),
    ..count("cache-rc", "For how many of them one of RC counts", "", "2")
};
pub(super) const MISS: Param =
    count("miss-ns", "What it takes to fetch the state of a queue pair", "ns", "600");
pub(super) const CLIENT: Param =
    count("client-ns", "What a client does beside its requests", "ns", "1000");
pub(super) const CLIENT_LOCK: Param =
    count("client-lock-ns", "And under a lock of all clients of the thesis (fitted)", "ns", "1950");
pub(super) const POST: Param = count("post-ns", "Handing a message to a card", "ns", "300");
pub(super) const REAP: Param = count("reap-ns", "Taking one that has come", "ns", "200");
pub(super) const CROWD: Param =
    count("crowd-ns", "More for each thread that asks the same completion queue", "ns", "25");
pub(super) const TCP: Param =
    count("tcp-ns", "What the kernel's TCP takes for a message at each end", "ns", "5000");
pub(super) const TCP_ARRIVAL: Param = count(
    "tcp-arrival-ns",
    "The same of the processor that gets its interrupts (fitted)",
    "ns",
    "4837",
);
pub(super) const TOWPATH: Param =
    count("towpath-ns", "What Towpath takes for a message at each end", "ns", "640");
pub(super) const STORE: Param = count("store-ns", "An operation of a store", "ns", "300");
pub(super) const ENTRY: Param =
    count("entry-ns", "Each entry of a list that is looked at (fitted)", "ns", "560");
pub(super) const CHANGE: Param = count("change-ns", "More for a change of our table", "ns", "300");
pub(super) const CHECK: Param =
    count("check-ns", "Checking version and CRC of a value that was READ", "ns", "100");
pub(super) const KEYS: Param = Param {
    kind: Kind::Count(1..=10_000_000),
    ..count("keys", "Keys, for ten million operations; fewer for fewer (fitted)", "", "170000")
};
pub(super) const RC_TIMEOUT: Param =
    count("rc-timeout-us", "When RC's hardware sends again", "us", "67109");
pub(super) const TCP_TIMEOUT: Param =
    count("tcp-timeout-us", "When TCP sends again, then twice as late", "us", "200000");
pub(super) const TOWPATH_TIMEOUT: Param =
    count("towpath-timeout-us", "When Towpath sends again, then twice as late", "us", "1000");
pub(super) const REPEAT: Param = Param {
    kind: Kind::Count(1..=10_000_000),
    ..count(
        "repeat-us",
        "When a client of raw UC or UD asks again, then twice as late",
        "us",
        "1000",
    )
};

/// The parameters of a study: its own, and what all have.
macro_rules! params {
    ($($own:expr),*) => {{
        use $crate::studies::setting as s;
        &[$($own,)* s::OPERATIONS, s::KEYS, s::CORES, s::SHARED, s::QUANTUM, s::INTERRUPT, s::WAKE,
            s::EVENT, s::LINE, s::LINK, s::HOST, s::CARD, s::CARD_RC, s::CACHE, s::CACHE_RC,
            s::MISS, s::CLIENT, s::CLIENT_LOCK, s::POST, s::REAP, s::CROWD, s::TCP,
            s::TCP_ARRIVAL, s::TOWPATH, s::STORE, s::ENTRY, s::CHANGE, s::CHECK, s::RC_TIMEOUT,
            s::TCP_TIMEOUT, s::TOWPATH_TIMEOUT, s::REPEAT]
    }};
}
pub(super) use params;

fn hardware(params: &Params) -> Hardware {
    let of = |param: &Param| params.count(param.name);
    Hardware {
        cores: of(&CORES) as u32,
        shared_percent: of(&SHARED),
        quantum: of(&QUANTUM) * 1_000,
        interrupt: of(&INTERRUPT),
        wake: of(&WAKE),
        event: of(&EVENT),
        line_gbps: of(&LINE),
        link: of(&LINK),
        host: of(&HOST),
        card: of(&CARD),
        card_rc: of(&CARD_RC),
        cache: of(&CACHE),
        cache_rc: of(&CACHE_RC),
        miss: of(&MISS),
    }
}

fn costs(params: &Params) -> Costs {
    let of = |param: &Param| params.count(param.name);
    Costs {
        client: of(&CLIENT),
        client_serial: of(&CLIENT_LOCK),
        post: of(&POST),
        reap: of(&REAP),
        crowd: of(&CROWD),
        tcp: of(&TCP),
        tcp_arrival: of(&TCP_ARRIVAL),
        towpath: of(&TOWPATH),
        store: of(&STORE),
        list: of(&ENTRY),
        change: of(&CHANGE),
        check: of(&CHECK),
    }
}

/// A plan of a study's parameters, without loss.
pub(super) fn plan(
    params: &Params,
    program: Program,
    (transport, waiting, clients): (Transport, Waiting, u32),
) -> Plan {
    let of = |param: &Param| params.count(param.name);
    let operations = of(&OPERATIONS);
    let half = THESIS_OPERATIONS / 2;
    let scaled = |whole: u64| ((whole * operations + half) / THESIS_OPERATIONS).max(1);
    Plan {
        transport,
        waiting,
        server_waiting: waiting,
        program,
        clients,
        workers: None,
        operations,
        mix: Mix::Study,
        reads: 1,
        keys: scaled(of(&KEYS)),
        lists: scaled(BUCKETS as u64) as u32,
        hardware: hardware(params),
        costs: costs(params),
        losses: Losses {
            share: 0.0,
            rc: of(&RC_TIMEOUT) * 1_000,
            tcp: of(&TCP_TIMEOUT) * 1_000,
            towpath: of(&TOWPATH_TIMEOUT) * 1_000,
            client: of(&REPEAT) * 1_000,
        },
        seed: params.seed,
    }
}

/// Clients.
pub(super) const CLIENTS: Param = Param {
    name: "clients",
    what: "How many clients, all on one machine, a thread each",
    unit: "",
    kind: Kind::Count(1..=10_000),
    many: true,
    defaults: [""; 3],
};

/// Transports of the thesis.
pub(super) const TRANSPORTS: Param = Param {
    name: "transports",
    what: "Transports: tcp, rc, uc, ud, towpath, one-sided",
    unit: "",
    kind: Kind::Word(|word| match Transport::of(word) {
        Some(_) => Ok(()),
        None => Err("tcp, rc, uc, ud, towpath or one-sided"),
    }),
    many: true,
    defaults: ["tcp,rc,uc,ud"; 3],
};

/// Those of a study.
pub(super) fn transports(params: &Params) -> Vec<Transport> {
    params.words(TRANSPORTS.name).iter().filter_map(|word| Transport::of(word)).collect()
}

/// Polling, blocking, or both.
pub(super) const WAITING: Param = Param {
    name: "waiting",
    what: "How threads wait: polling, blocking",
    unit: "",
    kind: Kind::Word(|word| match waiting_of(word) {
        Some(_) => Ok(()),
        None => Err("polling or blocking"),
    }),
    many: true,
    defaults: ["polling,blocking"; 3],
};

fn waiting_of(word: &str) -> Option<Waiting> {
    [Waiting::Polling, Waiting::Blocking].into_iter().find(|waiting| waiting.word() == word)
}

/// Those of a study.
pub(super) fn waitings(params: &Params) -> Vec<Waiting> {
    params.words(WAITING.name).iter().filter_map(|word| waiting_of(word)).collect()
}

/// Each transport with each way of waiting and each number of clients.
pub(super) fn points(params: &Params, clients: &Param) -> Vec<(Transport, Waiting, u32)> {
    let mut points = Vec::new();
    for waiting in waitings(params) {
        for transport in transports(params) {
            let clients = params.counts(clients.name).iter();
            points.extend(clients.map(|&clients| (transport, waiting, clients as u32)));
        }
    }
    points
}

/// Whose programs.
pub(super) const PROGRAM: Param = Param {
    name: "program",
    what: "Whose programs: thesis, ours",
    unit: "",
    kind: Kind::Word(|word| match program_of(word) {
        Some(_) => Ok(()),
        None => Err("thesis or ours"),
    }),
    many: false,
    defaults: ["thesis"; 3],
};

fn program_of(word: &str) -> Option<Program> {
    [Program::Thesis, Program::Ours].into_iter().find(|program| program.word() == word)
}

/// That of a study.
pub(super) fn program(params: &Params) -> Program {
    program_of(params.word(PROGRAM.name)).unwrap_or(Program::Thesis)
}
