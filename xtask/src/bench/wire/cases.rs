//! The networks of the laboratory, and what is wanted of each.

use super::super::figure::Wanted;

/// What carries the packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// `towpath-lossy` with these flags.
    Bridge { mtu: u32, faults: &'static str },
    /// A veth whose ends the kernel limits (`tc ... tbf`).
    Veth { mtu: u32, mbit: u32, queue_kb: u32 },
}

/// What runs over the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Work {
    /// A file put to a chunk server and fetched again; kernel TCP moves as much. Wanted: of the
    /// goodput of kernel TCP, and port changes.
    File { to_tcp: Wanted, port_changes: Wanted },
    /// A stream for some seconds. Wanted: of the rate of the wire, and percent of chunks sent
    /// again.
    Stream { of_rate: Wanted, again_percent: Wanted },
    /// A stream beside one of kernel TCP, for 20 seconds. Wanted: percent of both together.
    Beside { share_percent: Wanted },
    /// A file put while the MTU shrinks to 1,280, at the server's end only or at both. Wanted: the
    /// seconds that the same takes longer than without.
    Shrink { both: bool, longer: Wanted },
}

/// One network, with what runs over it.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// As `--case` takes it.
    pub(super) name: String,
    /// For people.
    pub(super) title: String,
    pub(super) wire: Wire,
    pub(super) work: Work,
    /// Which congestion control kernel TCP has, unless another is asked for; `None` is that of the
    /// machine.
    pub(super) tcp: Option<&'static str>,
}

/// Faults of the bridge at both MTUs: name, title, flags, goodput to that of kernel TCP, and
/// whether they are nothing but reordering.
const FAULTS: [(&str, &str, &str, Wanted, bool); 9] = [
    ("clean", "no fault", "", Wanted::Nothing, true),
    ("jitter-20us", "jitter 20 us", "--jitter 20us", Wanted::AtLeast(0.3), true),
    ("jitter-200us", "jitter 0.2 ms", "--jitter 200us", Wanted::AtLeast(0.3), true),
    ("jitter-3ms", "jitter 3 ms", "--jitter 3ms", Wanted::AtLeast(0.3), true),
    (
        "delay-5ms-jitter-5ms",
        "5 ms and 0 to 5 ms",
        "--delay 5ms --jitter 5ms",
        Wanted::AtLeast(0.3),
        true,
    ),
    ("reorder-5", "5 % reordered", "--reorder 5%", Wanted::AtLeast(0.5), true),
    ("reorder-30", "30 % reordered", "--reorder 30%", Wanted::AtLeast(0.3), true),
    ("loss-15", "15 % lost", "--loss 15%", Wanted::AtLeast(1.0), false),
    ("loss-25", "25 % lost", "--loss 25%", Wanted::Nothing, false),
];

const EVERYTHING: &str = "--loss 2% --dup 2% --reorder 5% --corrupt 1% --jitter 1ms";

/// Every case, in the order in which they run.
pub(super) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for mtu in [1_500, 9_000] {
        bridge(mtu, &mut cases);
    }
    for mtu in [1_500, 9_000] {
        for mbit in [1_000, 100] {
            for queue_kb in [30, 64, 150] {
                queue(mtu, mbit, queue_kb, &mut cases);
            }
        }
    }
    for (name, title, both) in [
        ("shrink", "MTU shrinks to 1,280", true),
        ("shrink-silent", "the same, far end only", false),
    ] {
        cases.push(Case {
            name: name.to_owned(),
            title: title.to_owned(),
            wire: Wire::Veth { mtu: 9_000, mbit: 100, queue_kb: 64 },
            work: Work::Shrink { both, longer: Wanted::AtMost(2.0) },
            tcp: Some("cubic"),
        });
    }
    cases
}

fn bridge(mtu: u32, cases: &mut Vec<Case>) {
    let mut push = |name: &str, title: &str, faults, work| {
        cases.push(Case {
            name: format!("{name}-{mtu}"),
            title: format!("{title}, MTU {mtu}"),
            wire: Wire::Bridge { mtu, faults },
            work,
            tcp: None,
        });
    };
    let file = |to_tcp, order_only| Work::File {
        to_tcp,
        port_changes: if order_only { Wanted::AtMost(0.0) } else { Wanted::Nothing },
    };
    for (name, title, faults, to_tcp, order_only) in FAULTS {
        push(name, title, faults, file(to_tcp, order_only));
    }
    push("everything", "everything at once", EVERYTHING, file(Wanted::Nothing, false));
    let far = "--rate 1Gbit --queue 1MiB --delay 20ms";
    push("rtt-40ms", "40 ms round trip, 1 Gb/s", far, file(Wanted::AtLeast(0.5), true));
    let (of_rate, again_percent) = (Wanted::AtLeast(0.85), Wanted::Nothing);
    let random = "--rate 1Gbit --loss 1%";
    let work = Work::Stream { of_rate, again_percent };
    push("loss-1-gbit", "1 % lost, 1 Gb/s", random, work);
}

fn queue(mtu: u32, mbit: u32, queue_kb: u32, cases: &mut Vec<Case>) {
    let (of_rate, again_percent) = (Wanted::AtLeast(0.85), Wanted::AtMost(3.0));
    let share_percent = Wanted::Between(20.0, 80.0);
    for (name, title, work) in [
        ("tbf", "", Work::Stream { of_rate, again_percent }),
        ("beside", ", beside TCP", Work::Beside { share_percent }),
    ] {
        cases.push(Case {
            name: format!("{name}-{mbit}-{queue_kb}k-{mtu}"),
            title: format!("{mbit} Mb/s, queue {queue_kb} KB, MTU {mtu}{title}"),
            wire: Wire::Veth { mtu, mbit, queue_kb },
            work,
            tcp: Some("cubic"),
        });
    }
}

impl Wire {
    /// Mb/s, where it has a limit.
    pub(super) fn mbit(&self) -> Option<f64> {
        match self {
            Self::Bridge { faults, .. } => faults.contains("--rate 1Gbit").then_some(1_000.0),
            Self::Veth { mbit, .. } => Some(f64::from(*mbit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_case_has_a_name_of_its_own_that_needs_no_quotes() {
        let cases = all();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        for name in names {
            assert_eq!(crate::process::quote(name), name);
        }
    }

    #[test]
    fn a_share_of_the_rate_is_asked_only_of_wires_that_have_one() {
        for case in all() {
            let needed = matches!(case.work, Work::Stream { .. } | Work::Beside { .. });
            assert!(!needed || case.wire.mbit().is_some(), "{}", case.name);
        }
    }
}
