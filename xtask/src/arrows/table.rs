//! Who may use whom: the one table of the dependency arrows.

/// Which of our crates a crate may use.
#[derive(Clone, Copy, Debug)]
pub(super) enum MayUse {
    /// These, and no others.
    Only(&'static [&'static str]),
    /// Any that is a library, so not the tools, the tests and this program.
    AnyLibrary,
    /// All of them but this program.
    All,
}

/// One crate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// The name of the package without `towpath-`; that of the umbrella is `towpath`.
    pub(super) name: &'static str,
    /// Where it lies, from the root.
    pub(super) folder: &'static str,
    /// What it may use.
    pub(super) may_use: MayUse,
    /// What lives there.
    pub(super) what: &'static str,
}

/// The table. A row may stand before its crate does; a crate may not stand without its row.
pub(super) const TABLE: &[Row] = &[
    Row {
        name: "base",
        folder: "transport/base",
        may_use: MayUse::Only(&[]),
        what: "time, serial numbers, bitmaps, seeded randomness, checksums; `no_std`",
    },
    Row {
        name: "cc",
        folder: "cc",
        may_use: MayUse::Only(&["base"]),
        what: "congestion control as pure functions of samples; `no_std`",
    },
    Row {
        name: "qos",
        folder: "storage-fastpath/qos",
        may_use: MayUse::Only(&["base"]),
        what: "reservations by tokens (Haechi): engine, monitor, words; `no_std`",
    },
    Row {
        name: "ec",
        folder: "storage-fastpath/ec",
        may_use: MayUse::Only(&["base"]),
        what: "erasure coding: parity, decoding, updates, sketches of slices; `no_std` + alloc",
    },
    Row {
        name: "cap",
        folder: "storage-fastpath/cap",
        may_use: MayUse::Only(&["base"]),
        what: "capabilities: who may do what with which chunks, proved by a tag on each request",
    },
    Row {
        name: "verbs",
        folder: "transport/verbs",
        may_use: MayUse::Only(&["base"]),
        what: "the RDMA words and the device contract; `no_std`",
    },
    Row {
        name: "wake",
        folder: "transport/wake",
        may_use: MayUse::Only(&[]),
        what: "what ends a wait: a bell that any thread rings, files that have something new",
    },
    Row {
        name: "clock",
        folder: "transport/clock",
        may_use: MayUse::Only(&["base"]),
        what: "the host's monotonic clock, read as cheaply as is sound",
    },
    Row {
        name: "memory",
        folder: "transport/memory",
        may_use: MayUse::Only(&["base", "verbs"]),
        what: "registered memory and buffer pools",
    },
    Row {
        name: "proto",
        folder: "transport/proto",
        may_use: MayUse::Only(&["base", "cc", "verbs"]),
        what: "the sans-IO reliability core; `no_std` + alloc",
    },
    Row {
        name: "device-roce",
        folder: "transport/device-roce",
        may_use: MayUse::Only(&["base", "verbs", "wake", "clock", "memory"]),
        what: "a RoCEv2 NIC in userspace",
    },
    Row {
        name: "device-mem",
        folder: "transport/device-mem",
        may_use: MayUse::Only(&["base", "verbs", "clock", "memory"]),
        what: "an in-process wire that costs one copy",
    },
    Row {
        name: "device-verbs",
        folder: "transport/device-verbs",
        may_use: MayUse::Only(&["base", "verbs", "wake", "clock", "memory"]),
        what: "real NICs, behind a feature",
    },
    Row {
        name: "sim",
        folder: "transport/sim",
        may_use: MayUse::Only(&["base", "verbs"]),
        what: "virtual-time packet links and packet-link decorators",
    },
    Row {
        name: "secure",
        folder: "transport/secure",
        may_use: MayUse::Only(&["base"]),
        what: "secure links: host keys, authorized peers, handshake, key schedule, sealed chunks",
    },
    Row {
        name: "transport",
        folder: "transport/endpoint",
        may_use: MayUse::Only(&[
            "base",
            "cc",
            "verbs",
            "wake",
            "memory",
            "secure",
            "proto",
            "device-roce",
            "device-mem",
            "device-verbs",
        ]),
        what: "the face that users link: endpoints, channels, buffers, driver",
    },
    Row {
        name: "handle",
        folder: "transport/handle",
        may_use: MayUse::Only(&["base", "verbs", "wake", "memory", "proto", "transport"]),
        what: "thread-safe handles of endpoints: calls that block, and futures",
    },
    Row {
        name: "status",
        folder: "transport/status",
        may_use: MayUse::Only(&["base", "verbs", "memory", "transport"]),
        what: "what a running process reports: its links over a local socket, messages on stderr",
    },
    Row {
        name: "plot",
        folder: "tools/plot",
        may_use: MayUse::Only(&[]),
        what: "plots as data, and drawn as SVG",
    },
    Row {
        name: "study",
        folder: "tools/study",
        may_use: MayUse::Only(&["plot"]),
        what: "questions with parameters, run on threads, and reports that answer them",
    },
    Row {
        name: "lab",
        folder: "transport/lab",
        may_use: MayUse::Only(&[
            "base",
            "cc",
            "verbs",
            "memory",
            "proto",
            "device-roce",
            "device-mem",
            "sim",
            "transport",
            "handle",
            "study",
        ]),
        what: "links, devices and the core put together under one seed",
    },
    Row {
        name: "rpc",
        folder: "rpc",
        may_use: MayUse::Only(&["base", "transport"]),
        what: "requests, deadlines and handlers over channels",
    },
    Row {
        name: "towpath",
        folder: "transport/towpath",
        may_use: MayUse::Only(&["device-roce", "sim", "transport", "handle", "rpc"]),
        what: "the one crate that a program names: the face, requests, bad networks for tests",
    },
    Row {
        name: "capi",
        folder: "transport/capi",
        may_use: MayUse::Only(&["transport"]),
        what: "the same for programs in C and C++: a library, its header, a man page",
    },
    Row {
        name: "fastpath",
        folder: "storage-fastpath",
        may_use: MayUse::Only(&["base", "cap", "qos", "transport", "rpc"]),
        what: "fixed-layout read and write, checksums verified on receive, the client",
    },
    Row {
        name: "spread",
        folder: "storage-fastpath/spread",
        may_use: MayUse::Only(&["base", "cap", "ec", "transport", "fastpath"]),
        what: "files over several servers: copies or erasure coding, read while some are gone",
    },
    Row {
        name: "cluster",
        folder: "cluster",
        may_use: MayUse::Only(&["base"]),
        what: "the map of a cluster, and what keeps it: a file, others' consensus, virtual time",
    },
    Row {
        name: "disk",
        folder: "chunkserver/disk",
        may_use: MayUse::Only(&["base", "wake", "memory"]),
        what: "one disk of a store: operations with tags, flushes, and a simulated one",
    },
    Row {
        name: "chunkserver",
        folder: "chunkserver",
        may_use: MayUse::Only(&[
            "base",
            "qos",
            "ec",
            "wake",
            "memory",
            "secure",
            "transport",
            "status",
            "rpc",
            "fastpath",
            "ec",
            "disk",
        ]),
        what: "the chunk server: store, service, daemon",
    },
    Row {
        name: "storage-lab",
        folder: "chunkserver/lab",
        may_use: MayUse::Only(&[
            "base",
            "cc",
            "verbs",
            "memory",
            "proto",
            "device-roce",
            "sim",
            "transport",
            "plot",
            "lab",
            "rpc",
            "qos",
            "fastpath",
            "disk",
            "chunkserver",
        ]),
        what: "storage on the simulated fabric, a model of packets and handlers; studies of both",
    },
    Row {
        name: "kv",
        folder: "kv",
        may_use: MayUse::Only(&[
            "base",
            "cc",
            "verbs",
            "wake",
            "clock",
            "memory",
            "device-roce",
            "secure",
            "transport",
            "handle",
            "status",
            "rpc",
        ]),
        what: "a key-value store in memory, on every transport: store, fronts, clients, daemon",
    },
    Row {
        name: "kv-lab",
        folder: "kv/lab",
        may_use: MayUse::Only(&["base", "plot", "lab", "kv"]),
        what: "a model of key-value servers on every transport, and the studies of it",
    },
    Row {
        name: "tools",
        folder: "tools",
        may_use: MayUse::AnyLibrary,
        what: "the `towpath` command and the perftest-style binaries",
    },
    Row {
        name: "tests",
        folder: "tests",
        may_use: MayUse::All,
        what: "what needs more than one crate: loss, interop, crash, scale",
    },
    Row {
        name: "fuzz",
        folder: "fuzz",
        may_use: MayUse::AnyLibrary,
        what: "fuzz targets and their driver, outside the workspace",
    },
];

/// The rows that are programs and not libraries.
pub(super) const PROGRAMS: [&str; 3] = ["tools", "tests", "fuzz"];

/// Packages without `towpath-` in their name: programs about the repository itself.
pub(super) const EXEMPT: [&str; 2] = ["xtask", "no-std-proof"];
