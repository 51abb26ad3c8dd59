//! What runs over a wire, as shell commands for its two ends, and the figures of each run.

use super::cases::{Case, Wire, Work};
use super::ground::{self, Ends, Ran};
use crate::failure::Failure;
use crate::process::quote;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Bytes of a file that is put and fetched.
pub(super) const BYTES: u64 = 64 << 20;

/// Messages of the tools: 64 KiB each.
const MESSAGE: u64 = 65_536;

const SERVER: &str = "10.0.0.1";
const STORE_PORT: u16 = 7_400;
const TOOL_PORT: u16 = 18_515;
const TCP_PORT: u16 = 18_516;

/// Messages of a stream that are under way. Kernel TCP confirms a quarter of them at a time, which
/// has to be little beside what a slow wire carries in some seconds.
const DEPTH: u32 = 32;

/// Seconds of a stream beside kernel TCP, as the figures are wanted of.
const BESIDE_SECONDS: u32 = 20;

/// What a set of programs did in one run; a figure is missing where it is not known.
pub(super) type Values = Vec<(&'static str, Option<f64>)>;

/// The programs of one side, and where it works.
pub(super) struct Rig<'a> {
    /// Folder of `towpath`, `towpath-chunkserver` and `tow_write_bw`.
    pub(super) programs: &'a Path,
    pub(super) lossy: &'a Path,
    /// In memory; has the file `source`.
    pub(super) folder: &'a Path,
    /// Seconds of a stream, and until a transfer is given up.
    pub(super) seconds: u32,
    pub(super) patience: u32,
    /// Of kernel TCP.
    pub(super) congestion: Option<&'a str>,
}

impl Rig<'_> {
    fn program(&self, name: &str) -> String {
        quote(&self.programs.join(name).to_string_lossy())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn quoted(&self, name: &str) -> String {
        quote(&self.file(name).to_string_lossy())
    }

    fn run(
        &self,
        wire: &Wire,
        (server, port, client, limit): (&str, u16, &str, u32),
    ) -> Result<Ran, Failure> {
        // By the route: a namespace may not choose every algorithm for itself. 125 is a wire that
        // could not be made.
        let set = self.congestion.map_or_else(String::new, |name| {
            let to = format!("10.0.0.0/24 dev eth0 congctl {}", quote(name));
            format!("ip route replace {to} || exit 125; ")
        });
        let (server, client) = (format!("{set}{server}"), format!("{set}{client}"));
        let ran =
            ground::run(wire, self.lossy, &Ends { server: &server, port, client: &client, limit })?;
        if !ran.done {
            let last: Vec<&str> = ran.said.lines().rev().take(3).collect();
            eprintln!("wire: not done within {limit} s: {}", last.join(" | "));
        }
        Ok(ran)
    }

    /// Towpath once over the wire of the case.
    pub(super) fn towpath(&self, case: &Case) -> Result<Values, Failure> {
        match case.work {
            Work::File { .. } => self.put_and_get(&case.wire),
            Work::Stream { .. } => self.stream(&case.wire),
            Work::Beside { .. } => self.beside(&case.wire),
            Work::Shrink { both, .. } => self.shrink(&case.wire, both),
        }
    }

    /// Kernel TCP once over the same, from memory to memory: Mb/s.
    pub(super) fn kernel_tcp(&self, case: &Case) -> Result<Option<f64>, Failure> {
        let (flags, limit) = match case.work {
            Work::File { .. } => (format!("-n {}", BYTES / MESSAGE), self.patience),
            Work::Stream { .. } => (format!("-t {DEPTH} -D {}", self.seconds), self.seconds + 10),
            Work::Beside { .. } | Work::Shrink { .. } => return Ok(None),
        };
        let end = format!("{} -c TCP {flags}", self.program("tow_write_bw"));
        let client = format!("{end} --json {SERVER}");
        let ran = self.run(&case.wire, (&end, TOOL_PORT, &client, limit))?;
        // What is not done in time has at most this goodput.
        let at_most = BYTES as f64 * 8.0 / 1e6 / f64::from(limit);
        let gbps = ran.number("results.0.gbps").filter(|_| ran.done);
        Ok(Some(gbps.map_or(at_most, |gbps| gbps * 1e3)))
    }

    fn stream(&self, wire: &Wire) -> Result<Values, Failure> {
        let end = format!("{} -t {DEPTH} -D {}", self.program("tow_write_bw"), self.seconds);
        let client = format!("{end} --json {SERVER}");
        let ran = self.run(wire, (&end, TOOL_PORT, &client, self.seconds + 10))?;
        Ok(stream_values(&ran.objects, ran.done))
    }

    fn beside(&self, wire: &Wire) -> Result<Values, Failure> {
        let tool = self.program("tow_write_bw");
        // Longer by the margins, which are not measured.
        let end = format!("{tool} -t {DEPTH} -D {} -f 1", BESIDE_SECONDS + 2);
        let tcp = format!("{end} -c TCP -p {TCP_PORT}");
        let server = format!("{tcp} & {end}");
        let client = format!(
            "{tcp} --json {SERVER} >{tcp_out} & {end} --json {SERVER}; wait; cat {tcp_out}",
            tcp_out = self.quoted("tcp.json"),
        );
        let ran = self.run(wire, (&server, TOOL_PORT, &client, BESIDE_SECONDS + 15))?;
        let is_tcp = |object: &&Value| object["test_info"]["Connection_type"] == "TCP";
        let (tcp, ours): (Vec<Value>, Vec<Value>) =
            ran.objects.iter().cloned().partition(|object| is_tcp(&object));
        let mut values = stream_values(&ours, ran.done);
        let mbps = |objects: &[Value]| {
            let first = objects.first();
            first.and_then(|object| crate::metric::within(object, "results.0.gbps")).unwrap_or(0.0)
        };
        let (ours, tcp) = (mbps(&ours) * 1e3, mbps(&tcp) * 1e3);
        values.push(("tcp_mbps", Some(tcp)));
        values.push(("share_percent", Some(100.0 * ours / (ours + tcp).max(1e-9))));
        Ok(values)
    }

    fn put_and_get(&self, wire: &Wire) -> Result<Values, Failure> {
        let (towpath, out) = (self.program("towpath"), self.quoted("out"));
        let client = format!(
            "{watch} {towpath} put --json {source} {SERVER} >{put} && \
             {towpath} get --json --force \"$(sed 's/.*\"chunk\":\"\\([0-9a-f]*\\)\".*/\\1/' \
             {put})\" {out} {SERVER} >{get}; code=$?; kill $watch; cat {put} {get}; \
             cmp {source} {out} && exit $code",
            watch = self.watch(),
            source = self.quoted("source"),
            put = self.quoted("put.json"),
            get = self.quoted("get.json"),
        );
        self.forget(&["out", "put.json", "get.json"]);
        let ran = self.run(wire, (&self.store(), STORE_PORT, &client, self.patience))?;
        let told = |at: usize, what: &str| {
            ran.objects.get(at).and_then(|object| crate::metric::within(object, what))
        };
        let sum = |what| Some(told(0, what)? + told(1, what).unwrap_or(0.0));
        let mut values = vec![
            ("arrived_percent", Some(if ran.done { 100.0 } else { 0.0 })),
            ("put_mbps", Some(told(0, "gbps").unwrap_or(0.0) * 1e3)),
            ("get_mbps", Some(told(1, "gbps").unwrap_or(0.0) * 1e3)),
            ("chunks_again", sum("chunks_retransmitted")),
            ("port_changes", sum("port_changes")),
        ];
        values.extend(self.watched());
        Ok(values)
    }

    fn shrink(&self, wire: &Wire, both: bool) -> Result<Values, Failure> {
        let near = if both { "ip link set eth0 mtu 1280;" } else { "" };
        // The transfer takes some 5 s.
        let cut =
            format!("(sleep 2; ip netns exec $SERVER_NS ip link set eth0 mtu 1280; {near}) & ");
        let mut times = Vec::new();
        for before in ["", &cut] {
            let client = format!(
                "{before}{} put --json {} {SERVER}",
                self.program("towpath"),
                self.quoted("source")
            );
            let ran = self.run(wire, (&self.store(), STORE_PORT, &client, self.patience))?;
            times.push(ran.number("seconds").filter(|_| ran.done));
        }
        let [plain, cut] = times[..] else { unreachable!("two runs") };
        let longer = plain.zip(cut).map_or(f64::from(self.patience), |(plain, cut)| cut - plain);
        Ok(vec![
            ("arrived_percent", Some(if cut.is_some() { 100.0 } else { 0.0 })),
            ("seconds", cut),
            ("seconds_unchanged", plain),
            ("longer_seconds", Some(longer)),
        ])
    }

    /// A chunk server with an empty store in memory, whose space is there already.
    fn store(&self) -> String {
        let _ = std::fs::remove_dir_all(self.file("store"));
        format!(
            "exec {} --data-dir {} --listen {SERVER}:{STORE_PORT} --log error \
             --preallocate=true --capacity-bytes 256MiB",
            self.program("towpath-chunkserver"),
            self.quoted("store")
        )
    }

    fn forget(&self, names: &[&str]) {
        for name in names {
            let _ = std::fs::remove_file(self.file(name));
        }
    }

    /// Asks the server four times a second how its links stand, until `kill $watch`.
    fn watch(&self) -> String {
        format!(
            "(while :; do {} links --json {}; sleep 0.25; done >{} 2>/dev/null) & watch=$!;",
            self.program("towpath"),
            self.quoted("store"),
            self.quoted("links.jsonl")
        )
    }

    /// What the server said last of the link that sent most: that of the get.
    fn watched(&self) -> Values {
        let text = std::fs::read_to_string(self.file("links.jsonl")).unwrap_or_default();
        let links = text.lines().filter_map(|line| {
            Some(serde_json::from_str::<Value>(line).ok()?["links"].get(0)?.clone())
        });
        let sent = |link: &Value| link["chunks_sent"].as_u64().unwrap_or(0);
        let link = links.max_by_key(sent).unwrap_or_default();
        let number = |of: &str| crate::metric::within(&link, of);
        let again = number("chunks_retransmitted").zip(number("chunks_sent"));
        vec![
            ("get_again_percent", again.map(|(again, sent)| 100.0 * again / sent.max(1.0))),
            ("get_window_kb", number("window_bytes").map(|bytes| bytes / 1e3)),
            ("get_rtt_us", number("rtt_ns").map(|ns| ns / 1e3)),
            ("get_mtu", number("paths.0.mtu_bytes").or_else(|| number("mtu_bytes"))),
        ]
    }
}

fn stream_values(objects: &[Value], done: bool) -> Values {
    let number = |of: &str| crate::metric::within(objects.first()?, of);
    let mbps = number("results.0.gbps").filter(|_| done).unwrap_or(0.0) * 1e3;
    let again = number("results.0.chunks_retransmitted").zip(number("results.0.chunks_sent"));
    vec![
        ("mbps", Some(mbps)),
        ("again_percent", again.map(|(again, sent)| 100.0 * again / sent.max(1.0))),
        ("window_kb", number("results.0.window_bytes").map(|bytes| bytes / 1e3)),
        ("rtt_us", number("results.0.rtt_us")),
        ("path_mtu", number("test_info.Mtu").or_else(|| mtu_text(objects.first()?))),
    ]
}

/// Versions of the tool whose head is text.
fn mtu_text(object: &Value) -> Option<f64> {
    object["test_info"]["Mtu"].as_str()?.parse().ok()
}
