//! The hardware that all have in common, and its parameters.

use crate::flow::{Cost, Granule, Ps, Service, Wire, ns};
use towpath_fastpath::choice::Costs;
use towpath_lab::studies::{Kind, Param, Params};

const fn count(
    name: &'static str,
    what: &'static str,
    unit: &'static str,
    is: &'static str,
) -> Param {
    Param { name, what, unit, kind: Kind::Count(0..=1_000_000), many: false, defaults: [is; 3] }
}

pub(super) const LINE: Param = Param {
    kind: Kind::Count(1..=8_000),
    ..count("line-gbps", "What a port carries each way", "Gb/s", "400")
};
pub(super) const LINK: Param = count("link-ns", "From one port to any other", "ns", "20");
pub(super) const MTU: Param = Param {
    name: "mtu",
    what: "Bytes of a packet at most, headers included",
    unit: "bytes",
    kind: Kind::Bytes(512..=16_384),
    many: true,
    defaults: ["2048", "2048,4096", "2048,4096"],
};
pub(super) const SIZES: Param = Param {
    name: "sizes",
    what: "Bytes of a write",
    unit: "bytes",
    kind: Kind::Bytes(1..=16 << 20),
    many: true,
    defaults: [
        "1K,8K,64K,512K,1M",
        "1K,2K,4K,8K,16K,32K,64K,128K,256K,512K,1M",
        "1K,2K,4K,8K,16K,32K,64K,128K,256K,512K,1M",
    ],
};
/// A round trip over PCIe takes up to 400 ns (the paper, section III).
pub(super) const PCIE: Param = count("pcie-ns", "One way between a card and its host", "ns", "200");
/// An assumption: small messages take 500 to 600 ns one way between good cards, and most of that is
/// PCIe.
pub(super) const CARD: Param =
    count("card-ns", "What a card takes for a packet, in and out", "ns", "50");
/// Two misses of the cache, of about 100 ns: the completion, and the request.
pub(super) const CPU: Param =
    count("cpu-ns", "From the host's memory until a processor has seen what came", "ns", "200");
/// The 211 cycles of the header handler, of 1 GHz there, at 3 GHz.
pub(super) const CPU_CHECK: Param =
    count("cpu-check-ns", "What a processor takes to check a request", "ns", "70");
/// 10 GB/s: what one core here copies out of the cache (docs/erasure-coding.md, section 8).
pub(super) const COPY: Param = Param {
    kind: Kind::Count(1..=100_000),
    ..count("copy-gbps", "What one core copies", "Gb/s", "80")
};
pub(super) const UNITS: Param =
    count("units", "Handlers at a time; 0: 32 of `spin`, 8 of `host`", "", "0");
pub(super) const PROFILE: Param = Param {
    name: "profile",
    what: "What handlers cost: `spin`, as the paper measured on its card; `host`, on our processor",
    unit: "",
    kind: Kind::Word(
        |word| {
            if ["spin", "host"].contains(&word) { Ok(()) } else { Err("spin or host") }
        },
    ),
    many: false,
    defaults: ["spin"; 3],
};

/// The parameters of a study: its own, and what all have.
macro_rules! params {
    ($($own:expr),*) => {{
        use $crate::studies::policies::setting as s;
        &[$($own,)* s::LINK, s::MTU, s::PCIE, s::CARD, s::CPU, s::CPU_CHECK, s::COPY, s::UNITS,
            s::PROFILE]
    }};
}
pub(super) use params;

/// What each packet has beside data: Ethernet and its checksum 18 bytes, IP 20, UDP 8, BTH 12,
/// ICRC 4; preamble and gap, another 20, are time of the port too.
const HEADER: u64 = 82;
/// RETH.
const RETH: u64 = 16;
/// RETH, a write's header and its proof (docs/capabilities.md).
const OURS: u64 = RETH + 44 + 120;
/// What precedes data that is read, beside RETH: a response's header.
const ANSWER: u64 = RETH + 44;
/// The address of a replica, and of the data there.
const REPLICA: u64 = 20;
/// AETH.
const ACK: u64 = HEADER + 4;

/// Durations of handlers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handlers {
    head: Ps,
    body: Cost,
    tail: Ps,
}

/// What handlers do with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Store it.
    Store,
    /// And pass it on to one, or two.
    Forward(usize),
    /// And make so much intermediate parity, in a stripe of so many data shards.
    Encode { data: usize, parity: usize },
    /// Add it to parity.
    Add,
}

/// All of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) wire: Wire,
    pub(super) pcie: Ps,
    cpu: Ps,
    cpu_check: Ps,
    copy_ps_per_kib: Ps,
    host: bool,
    units: u32,
}

impl Setting {
    pub(super) fn of(params: &Params, mtu: u64) -> Self {
        let span = |param: &Param| ns(params.count(param.name));
        let host = params.word(PROFILE.name) == "host";
        let units = match (params.count(UNITS.name), host) {
            (0, false) => 32,
            (0, true) => 8,
            (units, _) => units as u32,
        };
        let wire = Wire {
            // Whole picoseconds: 100, 200, 400 and 800 Gb/s are exact.
            ps_per_byte: (8_000 / params.count(LINE.name)).max(1),
            link: span(&LINK),
            card: span(&CARD),
            mtu,
            header: HEADER,
            ack: ACK,
        };
        Self {
            wire,
            pcie: span(&PCIE),
            cpu: span(&CPU),
            cpu_check: span(&CPU_CHECK),
            copy_ps_per_kib: 8_192_000 / params.count(COPY.name),
            host,
            units,
        }
    }

    /// The pools of a server: handlers, one core of its processor, and what has no bound.
    pub(super) fn pools(&self) -> Vec<Option<u32>> {
        vec![Some(self.units), Some(1), None]
    }

    /// How many handlers run at a time.
    pub(super) fn units(&self) -> u32 {
        self.units
    }

    /// A client hands a write to its card: the request with the doorbell, and the card fetches the
    /// data.
    pub(super) fn client_out(&self) -> Ps {
        3 * self.pcie
    }

    /// Its completion.
    pub(super) fn client_in(&self) -> Ps {
        self.pcie
    }

    /// Headers of the first packet of a plain write.
    pub(super) fn plain_header(&self) -> u64 {
        RETH
    }

    /// Headers of the first packet of ours.
    pub(super) fn our_header(&self, replicas: usize) -> u64 {
        OURS + REPLICA * replicas as u64
    }

    /// Headers of the first packet of data that was asked for.
    pub(super) fn answer_header(&self) -> u64 {
        ANSWER
    }

    /// A request for data: it is checked as a write is, and handing out the answer costs what
    /// passing on a packet costs. The card fetches the data.
    pub(super) fn our_read(&self) -> Service {
        let service = self.ours(Task::Forward(1), true);
        let out = service.out.max(2 * self.pcie);
        Service { granule: Granule::Message, out, store: 0, ..service }
    }

    /// Data comes to a client's memory, and its processor sees it.
    pub(super) fn client_gets(&self) -> Service {
        Service { into: Cost::fixed(self.pcie + self.cpu), store: 0, ..self.raw() }
    }

    /// A card by itself writes data to the host, and knows that it is there by a READ behind it.
    pub(super) fn raw(&self) -> Service {
        Service {
            granule: Granule::Packet,
            pool: 2,
            into: Cost::default(),
            head: 0,
            body: Cost::default(),
            after: Cost::default(),
            tail: 0,
            out: 0,
            holds: false,
            store: 2 * self.pcie,
            ack_out: 0,
            ack_in: 0,
        }
    }

    /// A processor has all of a message, and copies it to its place if `copies`.
    pub(super) fn cpu(&self, check: bool, copies: bool) -> Service {
        let per_kib = if copies { self.copy_ps_per_kib } else { 0 };
        Service {
            granule: Granule::Message,
            pool: 1,
            into: Cost::fixed(self.pcie),
            head: if check { self.cpu_check } else { 0 },
            body: Cost::fixed(self.cpu),
            after: Cost { fixed: 0, per_kib },
            tail: 0,
            // The doorbell; the card fetches the data.
            out: 3 * self.pcie,
            holds: false,
            store: 0,
            ack_out: self.pcie,
            ack_in: self.pcie + self.cpu,
        }
    }

    /// A card passes on what it has written to the host when that is complete, by requests that
    /// lie there: it fetches the request, then the data. It takes `each` for a request, one after
    /// the other.
    pub(super) fn triggered(&self, each: Ps) -> Service {
        Service {
            granule: Granule::Message,
            pool: 1,
            body: Cost::fixed(each),
            out: 4 * self.pcie,
            into: Cost::fixed(self.pcie),
            ..self.raw()
        }
    }

    /// A card answers a READ: it fetches the data.
    pub(super) fn read(&self) -> Service {
        Service { granule: Granule::Message, out: 2 * self.pcie, ..self.raw() }
    }

    /// One engine of a card encodes what lies in the host's memory: it takes so long for a
    /// message, beside writing it there, reading it again, and sending what was made.
    pub(super) fn engine(&self, cost: Cost) -> Service {
        Service { body: cost, ..self.triggered(0) }
    }

    /// An engine at the line's rate, with a round trip over PCIe for each chunk.
    pub(super) fn ideal(&self) -> Cost {
        Cost { fixed: 2 * self.pcie, per_kib: self.wire.ps_per_byte * 1_024 }
    }

    /// What our choice of a way knows of all this. Acknowledgements go `back` through each server,
    /// or from each to the client.
    pub(super) fn costs(&self, back: bool) -> Costs {
        let wire = &self.wire;
        let service = self.ours(Task::Forward(1), true);
        let full = wire.mtu - wire.header;
        let cross = |bytes: u64| bytes * wire.ps_per_byte + wire.link + 2 * wire.card;
        let there = cross(wire.mtu) + service.into.of(full) + service.body.of(full) + service.out;
        let back = if back { cross(wire.ack) + service.ack_in + service.ack_out } else { 0 };
        let twice = self.ours(Task::Forward(2), true).body.of(full);
        let fork = twice.saturating_sub(service.body.of(full)) + wire.mtu * wire.ps_per_byte;
        Costs {
            port_ps_per_kib: 1_024 * wire.ps_per_byte * wire.mtu / full,
            step_ns: (service.head + there + back) / 1_000,
            fork_ns: fork / 1_000,
        }
    }

    /// What our handlers do. `check` is false only where the price of the check is asked for.
    pub(super) fn ours(&self, task: Task, check: bool) -> Service {
        let handlers = if self.host { host(task) } else { spin(task) };
        let (into, out, store) = if self.host {
            // Packets come to memory, and go from there with a doorbell and a fetch; a unit polls.
            (Cost::fixed(self.pcie + ns(100)), 3 * self.pcie, 0)
        } else {
            // Into the packet buffer at 64 bytes a cycle (32 for 2 KiB), 2 to choose a cluster, 43
            // into its memory, 1 to choose a unit (figure 7). A card stores as `raw` does.
            (Cost { fixed: ns(46), per_kib: ns(16) }, 0, 2 * self.pcie)
        };
        Service {
            granule: Granule::Packet,
            pool: 0,
            into,
            head: if check { handlers.head } else { 0 },
            body: handlers.body,
            after: Cost::default(),
            tail: handlers.tail,
            out,
            // The tables' durations have the waiting in; that of two children is taken out.
            holds: !self.host && matches!(task, Task::Forward(2..)),
            store,
            ack_out: if self.host { self.pcie } else { 0 },
            // It comes in as a packet does, and the tail's handler sends the next.
            ack_in: into.fixed + handlers.tail,
        }
    }
}

/// Tables I and II of the paper, in nanoseconds. What handlers wait for the port is taken out where
/// the table has it in (two children: 2,106 and 1,487): the port is modelled. There the
/// instructions (130 and 82) at the rate of one child's (0.54 and 0.44 a cycle) are taken.
fn spin(task: Task) -> Handlers {
    let of =
        |head, body, tail| Handlers { head: ns(head), body: Cost::fixed(ns(body)), tail: ns(tail) };
    match task {
        Task::Store | Task::Forward(0) => of(211, 92, 107),
        Task::Forward(1) => of(212, 193, 146),
        Task::Forward(_) => of(214, 241, 186),
        // By bytes beyond what a packet costs at any rate: the table's packets have 2 KiB less the
        // headers.
        Task::Encode { data, parity } => {
            let (full, tail) = match (data, parity) {
                (3, 2) => (16_681, 105),
                (6, 3) => (23_018, 82),
                // 5 instructions a byte for two shards of parity, 7 for three, at 0.7 a cycle.
                (_, parity) => (1_966 * (2 * parity as u64 + 1) * 10 / 7 + 92, 105),
            };
            let per_kib = ns(full - 92) * 1_024 / FULL;
            Handlers { body: Cost { fixed: ns(92), per_kib }, ..of(215, 0, tail) }
        }
        // The paper has no figure. Three instructions (load, atomic xor, the loop) for each four
        // bytes, at 0.7 a cycle.
        Task::Add => {
            Handlers { body: Cost { fixed: ns(92), per_kib: ns(1_097) }, ..of(215, 0, 105) }
        }
    }
}

/// Bytes of data in the paper's full packets.
pub(super) const FULL: u64 = 2_048 - HEADER;

/// The CRC32C of 1 KiB on a processor, measured as what `host` says.
pub(super) const CRC_PS_PER_KIB: Ps = 23_500;

/// What was measured on the machine of docs/bench-method.md, which was busy with other things: a
/// check of a capability 224 ns and the CRC32C of 2 KiB 47 ns (`cargo run --profile dist
/// -p towpath-fastpath --example cap_bench`), a message handed to the device 213 ns
/// (docs/bench-log.md), contributions of one data shard 7.4 to 8.9 GB/s and a copy 10 GB/s
/// (docs/erasure-coding.md, section 8).
fn host(task: Task) -> Handlers {
    let of = |post: u64, per_kib: Ps| Handlers {
        head: ns(224),
        body: Cost { fixed: ns(213 * post), per_kib: per_kib + CRC_PS_PER_KIB },
        tail: ns(213),
    };
    match task {
        Task::Store => of(0, 0),
        Task::Forward(children) => of(children as u64, 0),
        Task::Encode { parity, .. } if parity < 3 => of(parity as u64, 115_056),
        Task::Encode { parity, .. } => of(parity as u64, 138_378),
        Task::Add => of(0, 102_400),
    }
}
