//! The same block requests by each carrier of Towpath, over plain kernel TCP, and by fio on nbdkit,
//! in turn: what an application has of a carrier.

use super::figure::{Figure, Wanted, ratios};
use super::programs::Programs;
use super::store;
use super::store::rig::{Folder, MEMORY};
use super::store::seen::Seen;
use super::store::server::Server;
use super::{Amount, chosen};
use crate::failure::Failure;
use crate::{process, workspace};
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// MiB that the requests go to.
const MIB: u32 = 64;

/// What the server of the example prints first.
const READY: &str = "listening on ";

/// How long nbdkit may take until it listens.
const NBD_WAIT: Duration = Duration::from_secs(10);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    name: &'static str,
    title: &'static str,
    /// Bytes of a request.
    bs: u32,
    /// Of 100 requests, how many are reads.
    reads: u8,
    depth: u32,
}

const CASES: [Case; 4] = [
    Case { name: "mixed-4k-1", title: "4 KiB, 70 % reads, 1 deep", bs: 4096, reads: 70, depth: 1 },
    Case {
        name: "mixed-4k-32",
        title: "4 KiB, 70 % reads, 32 deep",
        bs: 4096,
        reads: 70,
        depth: 32,
    },
    Case { name: "read-64k-1", title: "64 KiB reads, 1 deep", bs: 65_536, reads: 100, depth: 1 },
    Case { name: "read-64k-8", title: "64 KiB reads, 8 deep", bs: 65_536, reads: 100, depth: 8 },
];

/// Who does the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// A chunk server, its link on UC, RC, or a TCP connection.
    Carrier(&'static str),
    /// The same protocol and store over a TCP connection, without Towpath.
    Kernel,
    /// fio on nbdkit, over a TCP connection.
    Nbd,
}

const SIDES: [Side; 5] =
    [Side::Carrier("uc"), Side::Carrier("rc"), Side::Carrier("tcp"), Side::Kernel, Side::Nbd];

impl Side {
    /// As part of a figure's name.
    fn word(self) -> &'static str {
        match self {
            Self::Carrier(word) => word,
            Self::Kernel => "kernel_tcp",
            Self::Nbd => "nbd",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Carrier(word) => write!(f, "Towpath, {}", word.to_uppercase()),
            Self::Kernel => f.write_str("kernel TCP"),
            Self::Nbd => f.write_str("fio on nbdkit"),
        }
    }
}

/// What one measurement brought: requests a second, and their median and 99th percentile, in us.
#[derive(Clone, Copy, Debug)]
struct Did {
    iops: f64,
    reads: [f64; 2],
    writes: Option<[f64; 2]>,
}

impl Did {
    fn of(line: &str, output: &str, path: &[&str], case: Case) -> Result<Self, Failure> {
        let of = |direction| Seen::of(line, output, &[path, &[direction]].concat());
        let value = |seen: &Seen, name: &str| seen.value(name).unwrap_or(f64::NAN);
        let times = |seen: &Seen| ["p50_us", "p99_us"].map(|name| value(seen, name));
        let read = of("read")?;
        let write = if case.reads < 100 { Some(of("write")?) } else { None };
        let iops = value(&read, "iops") + write.as_ref().map_or(0.0, |seen| value(seen, "iops"));
        Ok(Self { iops, reads: times(&read), writes: write.as_ref().map(times) })
    }
}

/// Runs the cases round by round and returns the figures; what is not there is left out, and said.
pub(super) fn run(
    programs: &Programs,
    names: &[String],
    amount: Amount,
) -> Result<Vec<Figure>, Failure> {
    let cases = chosen(&CASES, |case| case.name, names)?;
    let folder = Folder::in_folder(Path::new(MEMORY))?;
    let interrupted = store::Interrupted::on_signals();
    let has_nbd = store::has_nbd();
    if !has_nbd {
        eprintln!(
            "application: not measured: fio on nbdkit, which needs nbdkit and a fio with the \
             engine nbd (apt-get install fio nbdkit)"
        );
    }
    let sides: Vec<Side> = SIDES.into_iter().filter(|side| has_nbd || *side != Side::Nbd).collect();
    let mut all: Vec<Vec<Vec<Did>>> = vec![vec![Vec::new(); sides.len()]; cases.len()];
    for round in 0..=amount.rounds {
        for (case, of_case) in cases.iter().zip(&mut all) {
            for (side, of_side) in sides.iter().zip(of_case) {
                interrupted.check()?;
                let did = measure(programs, &folder, *case, *side, amount.seconds)?;
                eprintln!(
                    "application: round {round} of {}: {}, {side}: {:.0} a second, reads {:.1} us",
                    amount.rounds, case.name, did.iops, did.reads[0]
                );
                // The first round pays for cold caches.
                if round > 0 {
                    of_side.push(did);
                }
            }
        }
    }
    Ok(cases.iter().zip(&all).flat_map(|(case, of_case)| figures(*case, &sides, of_case)).collect())
}

fn figures(case: Case, sides: &[Side], all: &[Vec<Did>]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let rates = |at: usize| all[at].iter().map(|did| did.iops).collect::<Vec<_>>();
    let kernel = sides.iter().position(|side| *side == Side::Kernel).map(rates);
    for (at, side) in sides.iter().enumerate() {
        let key = |name: &str| format!("{}.{}.{name}", case.name, side.word());
        let mut put = |name: &str, what: &str, values: &[f64]| {
            let title = format!("{}, {side}: {what}", case.title);
            figures.push(Figure::of(key(name), title, values, Wanted::Nothing));
        };
        put("iops", "requests a second", &rates(at));
        let kinds = [("read", "reads"), ("write", "writes")];
        for (kind, title) in kinds {
            for (place, name) in ["p50", "p99"].into_iter().enumerate() {
                let time = |did: &Did| {
                    let times = if kind == "read" { Some(did.reads) } else { did.writes };
                    times.map(|times| times[place])
                };
                let values: Vec<f64> = all[at].iter().filter_map(time).collect();
                if !values.is_empty() {
                    put(&format!("{kind}_{name}_us"), &format!("{title}, {name}, us"), &values);
                }
            }
        }
        if let Some(kernel) = kernel.as_ref().filter(|_| *side != Side::Kernel) {
            put("to_kernel_tcp", "to kernel TCP", &ratios(&rates(at), kernel));
        }
    }
    figures
}

fn measure(
    programs: &Programs,
    folder: &Folder,
    case: Case,
    side: Side,
    seconds: u32,
) -> Result<Did, Failure> {
    let dir = folder.path().join("store");
    workspace::remove_dir(&dir)?;
    let did = match side {
        Side::Carrier(carrier) => on_towpath(programs, &dir, case, carrier, seconds),
        Side::Kernel => on_kernel(programs, &dir, case, seconds),
        Side::Nbd => on_nbd(case, seconds),
    }?;
    workspace::remove_dir(&dir)?;
    Ok(did)
}

fn on_towpath(
    programs: &Programs,
    dir: &Path,
    case: Case,
    carrier: &str,
    seconds: u32,
) -> Result<Did, Failure> {
    let server = Server::start(programs.folder(), dir)?;
    let mut command = Command::new(programs.folder().join("towpath"));
    command.args(["bench", "store", &server.address, "--json", "--time-based"]);
    command.args(["--carrier", &format!("127.0.0.0/8={carrier}")]);
    let rw = if case.reads == 100 { "randread" } else { "randrw" };
    command.args(["--rw", rw, "--rwmixread", &case.reads.to_string(), "--overwrite"]);
    command.args(["--bs", &case.bs.to_string(), "--iodepth", &case.depth.to_string()]);
    command.args(["--size", &format!("{MIB}m"), "--runtime", &seconds.to_string()]);
    let (line, output) = (process::line(&command), process::quiet_output(&mut command)?);
    let did = Did::of(&line, &output, &[], case)?;
    server.stop()?;
    Ok(did)
}

fn on_kernel(programs: &Programs, dir: &Path, case: Case, seconds: u32) -> Result<Did, Failure> {
    let mut command = programs.example("tcp_store");
    command.arg("serve").arg(dir).arg(MIB.to_string());
    let line = process::line(&command);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let failed = |source| Failure::Start { command: line.clone(), source };
    let mut server = Ended(child.map_err(failed)?);
    let mut said = String::new();
    if let Some(stdout) = server.0.stdout.as_mut() {
        BufReader::new(stdout).read_line(&mut said).map_err(failed)?;
    }
    let address = said.trim().strip_prefix(READY).map(str::to_owned);
    let address = address.ok_or(Failure::NotReady { command: line, said })?;
    let mut command = programs.example("tcp_store");
    command.args(["load", &address, "--rwmixread", &case.reads.to_string()]);
    command.args(["--bs", &case.bs.to_string(), "--iodepth", &case.depth.to_string()]);
    command.args(["--mib", &MIB.to_string(), "--runtime", &seconds.to_string()]);
    let (line, output) = (process::line(&command), process::quiet_output(&mut command)?);
    Did::of(&line, &output, &[], case)
}

fn on_nbd(case: Case, seconds: u32) -> Result<Did, Failure> {
    let port = process::free_port()?.to_string();
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--exit-with-parent", "--ipaddr", "127.0.0.1", "--port", &port]);
    command.args(["memory", &format!("{MIB}M")]);
    let line = process::line(&command);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let failed = |source| Failure::Start { command: line.clone(), source };
    let mut server = Ended(child.map_err(failed)?);
    let began = std::time::Instant::now();
    while std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
        if let Some(status) = server.0.try_wait().map_err(failed)? {
            return Err(Failure::Status { command: line, status });
        }
        if began.elapsed() > NBD_WAIT {
            return Err(Failure::NotReady { command: line, said: String::new() });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut command = Command::new("fio");
    command.args(["--name=load", "--ioengine=nbd", "--size=100%", "--time_based"]);
    command.args(["--output-format=json", "--lat_percentiles=1", "--clat_percentiles=0"]);
    let rw = if case.reads == 100 { "randread" } else { "randrw" };
    command.arg(format!("--rw={rw}")).arg(format!("--rwmixread={}", case.reads));
    command.arg(format!("--bs={}", case.bs)).arg(format!("--iodepth={}", case.depth));
    command.arg(format!("--runtime={seconds}")).arg(format!("--uri=nbd://127.0.0.1:{port}"));
    let (line, output) = (process::line(&command), process::quiet_output(&mut command)?);
    Did::of(&line, &output, &["jobs", "0"], case)
}

/// A server that ends with this.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::super::programs::tests::Fakes;
    use super::*;

    const DIRECTION: &str = r#"{"iops": %, "bw_bytes": 1, "lat_ns": {"mean": 1,
        "percentile": {"50.000000": 2000, "99.000000": 9000}}}"#;

    /// Prints so many reads and writes a second; a server listens nowhere and ends in order.
    fn program(reads: u32, writes: u32) -> String {
        let of = |iops: u32| DIRECTION.replace('%', &iops.to_string());
        format!(
            "case \"$1\" in serve|--data-dir) trap 'exit 0' TERM; echo listening on 127.0.0.1:1\n\
             while :; do sleep 0.01; done;; esac\n\
             echo '{{\"read\": {}, \"write\": {}}}'",
            of(reads),
            of(writes)
        )
    }

    #[test]
    fn each_carrier_is_compared_with_kernel_tcp_of_the_same_round() {
        let fakes = Fakes::of("application");
        fakes.put("towpath-chunkserver", &program(0, 0));
        fakes.put("towpath", &program(70, 30));
        fakes.put("tcp_store", &program(35, 15));
        let (programs, amount) = (fakes.programs(), Amount { rounds: 1, seconds: 1 });
        let folder = Folder::in_folder(fakes.folder()).unwrap();
        let sides = [Side::Carrier("rc"), Side::Kernel];
        let all = sides
            .map(|side| vec![measure(&programs, &folder, CASES[0], side, amount.seconds).unwrap()]);
        let figures = figures(CASES[0], &sides, &all);
        let median = |name: &str| {
            let found = figures.iter().find(|figure| figure.name == name);
            found.unwrap_or_else(|| panic!("no figure {name}")).median
        };
        assert_eq!(median("mixed-4k-1.rc.iops"), 100.0);
        assert_eq!(median("mixed-4k-1.kernel_tcp.iops"), 50.0);
        assert_eq!(median("mixed-4k-1.rc.to_kernel_tcp"), 2.0);
        assert_eq!(median("mixed-4k-1.kernel_tcp.write_p99_us"), 9.0);
        assert!(!figures.iter().any(|figure| figure.name == "mixed-4k-1.kernel_tcp.to_kernel_tcp"));
    }

    #[test]
    fn a_case_of_reads_alone_has_no_figures_of_writes() {
        let did = Did { iops: 1.0, reads: [2.0, 3.0], writes: None };
        let figures = figures(CASES[3], &[Side::Kernel], &[vec![did]]);
        let names: Vec<_> = figures.iter().map(|figure| &*figure.name).collect();
        assert_eq!(
            names,
            [
                "read-64k-8.kernel_tcp.iops",
                "read-64k-8.kernel_tcp.read_p50_us",
                "read-64k-8.kernel_tcp.read_p99_us"
            ]
        );
    }
}
