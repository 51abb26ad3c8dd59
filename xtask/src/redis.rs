//! `cargo xtask redis`: others' tools and clients use `towpath-kv`, and their server is compared.

use crate::failure::Failure;
use crate::{process, stats, workspace};
use clap::Args as ClapArgs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Debian's names for the tools, and for the server that ours is compared with.
const TOOLS: [&str; 1] = ["redis-tools"];
const SERVER: [&str; 1] = ["redis-server"];

/// Debian's name for the tools of Valkey, which some releases have.
const VALKEY: &str = "valkey-tools";

/// How long a server may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Compare the rates of redis-benchmark with those of redis-server, in turns
    #[arg(long)]
    compare: bool,
    /// Rounds of the comparison, each with all cases against both servers
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Requests of each case and round
    #[arg(long, default_value_t = 400_000, value_parser = clap::value_parser!(u32).range(1..))]
    requests: u32,
    /// Connections of redis-benchmark
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    clients: u16,
    /// Bytes of a value
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    value_bytes: u32,
    /// Threads of our server; its default where it is not given
    #[arg(long)]
    workers: Option<u16>,
}

/// A server that ends with us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What redis-benchmark asks for, and how many requests it has under way on each connection.
const CASES: [(&str, u32); 4] = [("get", 1), ("set", 1), ("get", 16), ("set", 16)];

/// Installs what is missing, has the tools use our server, and compares if that was asked for.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let root = workspace::root();
    let install = root.join("tests/install.sh");
    process::run(Command::new(&install).args(TOOLS))?;
    let clients = root.join("target/kv-clients");
    process::run(Command::new(root.join("tests/kv-clients.sh")).arg(&clients))?;
    let mut tests = process::test("redis_tools");
    tests.args(["--", "--ignored"]);
    if !install_if_known(&install, VALKEY)? {
        println!("no {VALKEY} here: valkey-cli is left out");
        tests.args(["--skip", "valkey_cli"]);
    }
    process::run(tests.current_dir(&root).env("TOWPATH_KV_CLIENTS", &clients))?;
    if !args.compare {
        return Ok(());
    }
    process::run(Command::new(&install).args(SERVER))?;
    let mut build = process::cargo();
    build.args(["build", "--profile", process::DIST, "-p", "towpath-kv"]);
    process::run(build.current_dir(&root))?;
    compare(args, &root)
}

/// Installs a package; false where this release of Debian has none of this name.
fn install_if_known(install: &Path, package: &str) -> Result<bool, Failure> {
    let known =
        process::output(Command::new("apt-cache").args(["search", "--names-only", package]))?;
    let is_known = known.lines().any(|line| line.split(' ').next() == Some(package));
    if is_known {
        process::run(Command::new(install).arg(package))?;
    }
    Ok(is_known)
}

fn compare(args: &Args, root: &Path) -> Result<(), Failure> {
    let (ours, theirs) = (process::free_port()?, process::free_port()?);
    let mut command = Command::new(root.join("target").join(process::DIST).join("towpath-kv"));
    command.args(["--resp", &format!("127.0.0.1:{ours}")]);
    command.args(args.workers.iter().flat_map(|n| [String::from("--workers"), n.to_string()]));
    let _ours = start(command, ours)?;
    // In memory alone, as ours is.
    let mut command = Command::new("redis-server");
    command.args(["--port", &theirs.to_string(), "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no"]);
    let _theirs = start(command, theirs)?;
    let mut rates = vec![[Vec::new(), Vec::new()]; CASES.len()];
    for round in 0..args.rounds {
        for (case, rates) in CASES.iter().zip(&mut rates) {
            // Who is first changes, so that neither always follows the other.
            let mut turns = [(0, ours), (1, theirs)];
            turns.rotate_left(usize::from(round % 2));
            for (which, port) in turns {
                rates[which].push(measure(args, *case, port)?);
            }
        }
    }
    println!("| case | towpath-kv, 1/s | spread | redis-server, 1/s | spread | ratio |");
    println!("|---|---|---|---|---|---|");
    for ((name, pipeline), [ours, theirs]) in CASES.iter().zip(&rates) {
        let (our, their) = (stats::median(ours), stats::median(theirs));
        println!(
            "| {} -P {pipeline} | {our:.0} | {:.0} | {their:.0} | {:.0} | {:.2} |",
            name.to_uppercase(),
            stats::spread(ours),
            stats::spread(theirs),
            our / their
        );
    }
    Ok(())
}

fn start(mut command: Command, port: u16) -> Result<Running, Failure> {
    let line = process::line(&command);
    let child = command.stdout(Stdio::null()).spawn();
    let running =
        Running(child.map_err(|source| Failure::Start { command: line.clone(), source })?);
    let until = Instant::now() + START_TIMEOUT;
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(_) => return Ok(running),
            Err(source) if Instant::now() >= until => {
                return Err(Failure::Start { command: line, source });
            }
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// The rate of one run, in requests a second.
fn measure(args: &Args, (name, pipeline): (&str, u32), port: u16) -> Result<f64, Failure> {
    let mut command = Command::new("redis-benchmark");
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-t", name, "--csv"]);
    command.args(["-n", &args.requests.to_string(), "-c", &args.clients.to_string()]);
    command.args(["-d", &args.value_bytes.to_string(), "-P", &pipeline.to_string()]);
    // Keys at random, so that the table is asked and not one line of a cache.
    command.args(["-r", "100000"]);
    let output = process::output(&mut command)?;
    rate_of(&output).ok_or_else(|| Failure::NoMetric {
        command: process::line(&command),
        metric: String::from("rps"),
        output,
    })
}

/// The second column of the last line.
fn rate_of(csv: &str) -> Option<f64> {
    csv.lines().last()?.split(',').nth(1)?.trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_what_the_tool_prints() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"181818.19\",\"0.142\"\n";
        assert_eq!(rate_of(csv), Some(181_818.19));
        assert_eq!(rate_of("\"test\",\"rps\"\n"), None);
        assert_eq!(rate_of(""), None);
    }
}
