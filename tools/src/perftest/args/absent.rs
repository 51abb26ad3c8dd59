//! Flags that perftest has and these tools do not: what each does there, and what to do here.

/// A flag that is absent.
#[derive(Debug)]
pub(crate) struct Absent {
    /// Its letter; none where it has only a name.
    short: Option<char>,
    /// Its name, without dashes.
    long: &'static str,
    /// What it does in perftest.
    there: &'static str,
    /// Why it is not here, or what to use in its place.
    here: &'static str,
}

const fn absent(
    short: Option<char>,
    long: &'static str,
    there: &'static str,
    here: &'static str,
) -> Absent {
    Absent { short, long, there, here }
}

const CM: &str = "the ends always meet over a TCP connection (-p, --bind): leave it out";
const NO_RAW_ETHERNET: &str = "these tools send no raw Ethernet frames: leave it out";
const NO_GPU: &str = "messages are in the memory of the host only: leave it out";
const NO_LIMITER: &str = "there is no rate limiter; --cc fixed:WINDOW@RATE paces Towpath, as in \
                          --cc fixed:1MiB@10Gbps";
const NO_JUDGE: &str = "no result makes a run fail: compare the number of --output or --json";
const POLLS: &str = "both ends poll; on -d roce an end without work waits for its sockets: leave \
                     it out";
const NO_DUAL: &str = "a run has one port: start one pair of ends for each port (-i)";

/// All of them, letters first.
pub(crate) const ABSENT: &[Absent] = &[
    absent(
        Some('C'),
        "report-cycles",
        "reports latency in CPU cycles",
        "times are in microseconds",
    ),
    absent(Some('e'), "events", "sleeps until a completion event", POLLS),
    absent(Some('X'), "vector", "chooses the completion vector of events", POLLS),
    absent(Some('g'), "mcg", "sends to a multicast group", "there is no multicast"),
    absent(Some('M'), "MGID", "names the multicast group", "there is no multicast"),
    absent(Some('L'), "hop_limit", "sets the hop limit of packets", "packets have the usual one"),
    absent(Some('O'), "dualport", "uses both ports of a device", NO_DUAL),
    absent(
        Some('P'),
        "client",
        "makes a raw Ethernet tool the client",
        "the end that is given a host is the client",
    ),
    absent(
        Some('Z'),
        "server",
        "makes a raw Ethernet tool the server",
        "the end that is given no host is the server",
    ),
    absent(Some('R'), "rdma_cm", "connects queue pairs by the RDMA connection manager", CM),
    absent(Some('z'), "comm_rdma_cm", "lets the ends meet by the RDMA connection manager", CM),
    absent(
        Some('S'),
        "sl",
        "sets the service level of queue pairs",
        "use --class, or --tclass for the DSCP, which switches map to a priority",
    ),
    absent(
        Some('T'),
        "tos",
        "sets the type of service of connections by the RDMA connection manager",
        "use --tclass",
    ),
    absent(
        Some('W'),
        "report-counters",
        "reports counters of the port",
        "see /sys/class/infiniband",
    ),
    absent(Some('w'), "limit_bw", "fails below a bandwidth", NO_JUDGE),
    absent(Some('y'), "limit_msgrate", "fails below a message rate", NO_JUDGE),
    absent(Some('B'), "source_mac", "sets the source of raw Ethernet frames", NO_RAW_ETHERNET),
    absent(Some('E'), "dest_mac", "sets the destination of raw Ethernet frames", NO_RAW_ETHERNET),
    absent(Some('G'), "use_rss", "spreads raw Ethernet frames over receivers", NO_RAW_ETHERNET),
    absent(Some('J'), "dest_ip", "sets the IP destination of raw Ethernet frames", NO_RAW_ETHERNET),
    absent(Some('j'), "source_ip", "sets the IP source of raw Ethernet frames", NO_RAW_ETHERNET),
    absent(Some('K'), "dest_port", "sets the UDP port of raw Ethernet frames", NO_RAW_ETHERNET),
    absent(Some('k'), "source_port", "sets the UDP port of raw Ethernet frames", NO_RAW_ETHERNET),
    absent(Some('v'), "mac_fwd", "forwards raw Ethernet frames", NO_RAW_ETHERNET),
    absent(Some('Y'), "ethertype", "sets the type of raw Ethernet frames", NO_RAW_ETHERNET),
    absent(
        None,
        "bind_source_ip",
        "sets the local address of the set-up connection",
        "use --bind, which sets that of the data as well",
    ),
    absent(None, "burst_size", "sets how many messages the rate limiter sends at once", NO_LIMITER),
    absent(
        None,
        "congest_type",
        "chooses the congestion control of the device",
        "use --cc, which chooses Towpath's",
    ),
    absent(
        None,
        "disable_pcie_relaxed",
        "registers memory without relaxed ordering",
        "memory is registered without it: leave it out",
    ),
    absent(None, "dlid", "sets the destination LID", "addresses are GIDs (-x): leave it out"),
    absent(
        None,
        "dont_xchg_versions",
        "does not compare versions",
        "both ends must be of one version, and are compared",
    ),
    absent(
        None,
        "flow_label",
        "sets the IPv6 flow label",
        "source ports spread flows: see --paths",
    ),
    absent(
        None,
        "force-link",
        "treats the port as InfiniBand or Ethernet",
        "the device knows which",
    ),
    absent(
        None,
        "ipv6",
        "uses an IPv6 address of the device",
        "give the server an IPv6 address to connect to; on an RDMA device choose the GID with -x",
    ),
    absent(
        None,
        "ipv6-addr",
        "lets the ends meet over IPv6",
        "give the server's IPv6 address in its place",
    ),
    absent(None, "latency_gap", "waits between messages", "messages follow each other at once"),
    absent(None, "mmap", "uses a mapped file as buffer", NO_GPU),
    absent(None, "mmap-offset", "says where in a mapped file the buffer is", NO_GPU),
    absent(None, "mr_per_qp", "registers memory for each queue pair", "see --cold"),
    absent(None, "no_ddp", "switches off placement out of order", "leave it out"),
    absent(None, "no_lock", "uses a thread domain", "each end has one thread: leave it out"),
    absent(None, "odp", "pages memory on demand", "memory is registered: leave it out"),
    absent(
        None,
        "payload_file_path",
        "takes the payload from a file",
        "use --data_validation, which numbers and checks every message",
    ),
    absent(None, "pkey_index", "chooses the partition key", "the first one is used"),
    absent(None, "rate_limit", "limits the rate of packets", NO_LIMITER),
    absent(None, "rate_limit_type", "says who limits the rate", NO_LIMITER),
    absent(None, "rate_units", "sets the unit of --rate_limit", NO_LIMITER),
    absent(None, "recv_post_list", "posts receives in lists", "leave it out"),
    absent(
        None,
        "report-both",
        "reports the two directions of -b apart",
        "run the tool once in each direction, without -b, at the same time",
    ),
    absent(None, "report-per-port", "reports both ports apart", NO_DUAL),
    absent(
        None,
        "retry_count",
        "sets how often RC retransmits",
        "use -u, which sets how long each retransmission may take",
    ),
    absent(None, "reversed", "lets the server send", "start the client where the server was"),
    absent(None, "typical_pkt_size", "tells the rate limiter the size of packets", NO_LIMITER),
    absent(None, "use-null-mr", "uses a null memory region", "leave it out"),
    absent(
        None,
        "use-srq",
        "uses a shared receive queue",
        "Towpath shares one where the device allows it (`Using SRQ` in the head); --raw uses none",
    ),
    absent(None, "use_cuda", "uses memory of a GPU", NO_GPU),
    absent(None, "use_cuda_bus_id", "uses memory of a GPU", NO_GPU),
    absent(None, "use_cuda_dmabuf", "uses memory of a GPU", NO_GPU),
    absent(None, "use_hl", "uses memory of an accelerator", NO_GPU),
    absent(None, "use_hugepages", "uses huge pages", "leave it out"),
    absent(None, "use_mlu", "uses memory of an accelerator", NO_GPU),
    absent(None, "use_neuron", "uses memory of an accelerator", NO_GPU),
    absent(None, "use_old_post_send", "posts by the older call", "the older call is always used"),
    absent(None, "use_ooo", "uses placement out of order", "leave it out"),
    absent(None, "use_rocm", "uses memory of a GPU", NO_GPU),
    absent(None, "wait_destroy", "waits before it frees its resources", "leave it out"),
    absent(
        None,
        "write_with_imm",
        "writes with immediate data",
        "tow_write_* --raw writes without; tow_send_* tells the receiver of each message",
    ),
];

impl Absent {
    /// The flag that `word` of a command line is, if it is one of these.
    pub(crate) fn of(word: &str) -> Option<&'static Self> {
        let word = word.split_once('=').map_or(word, |(name, _)| name);
        ABSENT.iter().find(|absent| match word.strip_prefix("--") {
            Some(long) => absent.long == long,
            None => word
                .strip_prefix('-')
                .is_some_and(|rest| absent.short.is_some_and(|short| rest.starts_with(short))),
        })
    }

    /// As it is written: letter and name.
    pub(crate) fn name(&self) -> String {
        let Self { short, long, .. } = self;
        short.map_or_else(|| format!("--{long}"), |short| format!("-{short} (--{long})"))
    }

    /// What to tell whoever gives it.
    pub(crate) fn message(&self) -> String {
        let Self { there, here, .. } = self;
        format!("{} of perftest is not here; there it {there}. Here: {here}.\n", self.name())
    }
}

/// For the end of `--help`: all names, in lines of at most 100 columns.
pub(crate) fn list() -> String {
    let mut text = String::from(
        "Flags of perftest that are not here (give one to learn why; docs/tools.md has all):\n",
    );
    let mut width = 0;
    for (place, absent) in ABSENT.iter().enumerate() {
        let short = absent.short.map_or_else(String::new, |short| format!("-{short}/"));
        let name = format!("{short}--{}", absent.long);
        if place > 0 && width + 1 + name.len() > 96 {
            text.push('\n');
            width = 0;
        }
        text.push_str(if width == 0 { "  " } else { " " });
        text.push_str(&name);
        width += 1 + name.len();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{command, parse};
    use super::*;
    use crate::perftest::tool::Tool;

    #[test]
    fn a_flag_of_perftest_that_is_not_here_says_what_to_do() {
        let said = |words: &[&str]| {
            let words = [&["tow_send_bw"], words].concat();
            let error = parse(Tool::SendBw, words).expect_err("it is not there");
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        for flag in [
            "-R",
            "-z",
            "-e",
            "-g",
            "-S",
            "-T",
            "-O",
            "-w",
            "-Z",
            "-P",
            "-M",
            "--rate_limit",
            "--report-both",
            "--use-srq",
            "--ipv6",
        ] {
            let text = said(&[flag, "127.0.0.1"]);
            assert!(text.contains(flag) && text.contains("of perftest is not here"), "{text}");
            assert!(text.contains("Here: "), "{text}");
        }
        assert!(said(&["-S", "3"]).contains("--tclass"));
        assert!(said(&["-T46"]).contains("--tclass"));
        assert!(said(&["--rate_limit=10"]).contains("--cc fixed"));
        assert!(!said(&["--colour"]).contains("of perftest"), "nobody knows it");
        let long = command(Tool::SendBw).render_long_help().to_string();
        for flag in ["-R/--rdma_cm", "--rate_limit", "--use-srq"] {
            assert!(long.contains(flag), "{flag} is not in {long}");
        }
    }

    #[test]
    fn flags_are_found_by_letter_and_by_name_with_and_without_a_value() {
        for (word, long) in [
            ("-R", "rdma_cm"),
            ("-S3", "sl"),
            ("--rate_limit=10", "rate_limit"),
            ("--rate_limit", "rate_limit"),
            ("--report-both", "report-both"),
        ] {
            assert_eq!(Absent::of(word).map(|absent| absent.long), Some(long), "{word}");
        }
        for word in ["--rate", "-", "--", "R", "-p", "--colour"] {
            assert!(Absent::of(word).is_none(), "{word}");
        }
    }

    #[test]
    fn the_documentation_has_each_of_them() {
        let docs = include_str!("../../../../docs/tools.md");
        for absent in ABSENT {
            let short = absent.short.map_or_else(String::new, |short| format!("`-{short}`, "));
            let row =
                format!("| {short}`--{}` | {} | {} |", absent.long, absent.there, absent.here);
            assert!(docs.contains(&row), "docs/tools.md lacks this row:\n{row}");
        }
    }
}
