//! The cases: which requests, where, beside what.

use crate::failure::Failure;
use std::fmt;

/// Where a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On the file system of fio's file.
    Disk,
    /// In memory: `/dev/shm`.
    Memory,
}

/// Who does the requests of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    /// fio on a file.
    Fio,
    /// fio on nbdkit, both in memory.
    Nbd,
    /// A chunk server in memory: what the network and the server take without a disk.
    Network,
    /// A chunk server with a new store.
    Fresh,
    /// A chunk server whose pages were overwritten at random.
    Aged,
    /// `towpath put`, the whole command, to a new store.
    Put,
    /// The same of the build that is compared with.
    Before,
    /// A chunk server without a client.
    Idle,
}

impl Side {
    /// As part of a figure's name.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Fio => "fio",
            Self::Nbd => "nbd",
            Self::Network => "network",
            Self::Fresh => "fresh",
            Self::Aged => "aged",
            Self::Put => "put",
            Self::Before => "put_before",
            Self::Idle => "idle",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fio => "fio",
            Self::Nbd => "fio on nbdkit",
            Self::Network => "server in memory",
            Self::Fresh => "fresh store",
            Self::Aged => "aged store",
            Self::Put => "whole put",
            Self::Before => "whole put, before",
            Self::Idle => "idle server",
        })
    }
}

/// Requests, in the words of fio and of `towpath bench store`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) rw: &'static str,
    pub(super) bs: &'static str,
    pub(super) depth: u32,
    /// What fio does in place of `rw`, and whether each of its writes is durable.
    pub(super) fio_rw: &'static str,
    pub(super) fio_dsync: bool,
}

impl Load {
    const fn of(rw: &'static str, bs: &'static str, depth: u32) -> Self {
        Self { rw, bs, depth, fio_rw: rw, fio_dsync: false }
    }

    /// fio writes one after the other, each durable, as a log is written.
    const fn beside_a_log(self) -> Self {
        Self { fio_rw: "write", fio_dsync: true, ..self }
    }

    /// Whether its requests are reads.
    pub(super) fn reads(self) -> bool {
        self.rw.ends_with("read")
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    Load(Load),
    Idle,
}

/// What there is to compare with, beside fio.
#[derive(Clone, Copy, Debug)]
pub(super) struct Has {
    pub(super) nbd: bool,
    pub(super) against: bool,
}

/// One case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) place: Place,
    pub(super) measure: Measure,
}

const ALL: [Case; 9] = [
    Case::on_disk(
        "durable-4k-1",
        "durable 4 KiB writes, 1 deep; fio: sequential, O_DSYNC",
        Load::of("randwrite", "4k", 1).beside_a_log(),
    ),
    Case::on_disk(
        "write-4k-32",
        "durable 4 KiB writes, 32 deep; fio: without flush",
        Load::of("randwrite", "4k", 32),
    ),
    Case::on_disk("read-4k-1", "4 KiB reads, 1 deep", Load::of("randread", "4k", 1)),
    Case::on_disk("read-4k-32", "4 KiB reads, 32 deep", Load::of("randread", "4k", 32)),
    Case::on_disk(
        "write-64k-16",
        "durable 64 KiB writes, 16 deep; fio: without flush",
        Load::of("randwrite", "64k", 16),
    ),
    Case::on_disk("read-1m-4", "1 MiB reads, 4 deep", Load::of("randread", "1m", 4)),
    Case::in_memory(
        "memory-4k-32",
        "4 KiB writes in memory, 32 deep",
        Load::of("randwrite", "4k", 32),
    ),
    Case::in_memory(
        "memory-64k-16",
        "64 KiB writes in memory, 16 deep",
        Load::of("randwrite", "64k", 16),
    ),
    Case {
        name: "idle",
        title: "an empty server without a client",
        place: Place::Disk,
        measure: Measure::Idle,
    },
];

/// The case of which the latency is compared with fio's and the network's together.
pub(super) const COLD_READ: &str = "read-4k-1";

impl Case {
    const fn on_disk(name: &'static str, title: &'static str, load: Load) -> Self {
        Self { name, title, place: Place::Disk, measure: Measure::Load(load) }
    }

    const fn in_memory(name: &'static str, title: &'static str, load: Load) -> Self {
        Self { place: Place::Memory, ..Self::on_disk(name, title, load) }
    }

    /// Who takes turns in it.
    pub(super) fn sides(&self, has: Has) -> Vec<Side> {
        if self.measure == Measure::Idle {
            return vec![Side::Idle];
        }
        let mut sides = match self.place {
            Place::Disk => vec![Side::Fio, Side::Fresh, Side::Aged],
            Place::Memory => vec![Side::Fresh, Side::Aged],
        };
        if self.name == COLD_READ {
            sides.insert(1, Side::Network);
        }
        if self.place == Place::Memory && has.nbd {
            sides.insert(0, Side::Nbd);
        }
        if self.place == Place::Memory && has.against {
            sides.extend([Side::Put, Side::Before]);
        }
        sides
    }

    /// Whether fio is part of it wherever it runs.
    pub(super) fn needs_fio(&self) -> bool {
        self.place == Place::Disk && self.measure != Measure::Idle
    }
}

/// The cases whose names begin so, all where none are named.
pub(super) fn chosen(names: &[String]) -> Result<Vec<Case>, Failure> {
    crate::bench::chosen(&ALL, |case| case.name, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_chosen_by_how_their_names_begin_and_an_unknown_one_lists_all() {
        assert_eq!(chosen(&[]).unwrap().len(), ALL.len());
        let names = |name: &str| {
            let cases = chosen(&[name.to_owned()]).unwrap();
            cases.iter().map(|case| case.name).collect::<Vec<_>>()
        };
        assert_eq!(names("read-4k"), ["read-4k-1", "read-4k-32"]);
        let failure = chosen(&["nothing".to_owned()]).unwrap_err().to_string();
        assert!(failure.contains("nothing") && failure.contains("durable-4k-1"), "{failure}");
    }

    #[test]
    fn each_case_is_measured_beside_what_it_is_compared_with() {
        let sides = |name: &str, nbd, against| {
            chosen(&[name.to_owned()]).unwrap()[0].sides(Has { nbd, against })
        };
        assert_eq!(sides("durable-4k-1", true, true), [Side::Fio, Side::Fresh, Side::Aged]);
        assert_eq!(sides(COLD_READ, false, false)[1], Side::Network);
        assert_eq!(sides("memory-4k-32", false, false), [Side::Fresh, Side::Aged]);
        let all = [Side::Nbd, Side::Fresh, Side::Aged, Side::Put, Side::Before];
        assert_eq!(sides("memory-64k-16", true, true), all);
        assert_eq!(sides("idle", true, true), [Side::Idle]);
        assert!(!chosen(&["idle".to_owned()]).unwrap()[0].needs_fio());
    }
}
