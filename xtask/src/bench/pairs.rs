//! Two processes over loopback: rates in turn, latencies in slices of milliseconds.

use super::Amount;
use super::figure::{Figure, Wanted, ratios};
use super::programs::Programs;
use crate::failure::Failure;
use crate::turns::Turns;
use crate::{metric, process};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub(super) const GBPS: &str = "results.0.gbps";
pub(super) const MESSAGES: &str = "results.0.MsgRate";
pub(super) const ONE_WAY: &str = "results.0.t_typical";

/// How long one latency pair goes on while the other stands still: longer than a slice of the
/// kernel's scheduler, shorter than the machine keeps its speed.
pub(super) const SLICE: Duration = Duration::from_millis(20);

/// Both latency pairs take so many times as long as another run: half of it is each one's own,
/// and a median wants samples of several states of the machine.
pub(super) const LATENCY_FACTOR: u32 = 8;

/// Bulk, beside kernel TCP and with loss, and short messages.
pub(super) fn network(programs: &Programs, amount: Amount) -> Result<Vec<Figure>, Failure> {
    let run = |flags: &str, metric| {
        let (mut command, line) = pair(programs.folder(), "tow_write_bw", flags, amount.seconds)?;
        metric::of(&line, &process::output(&mut command)?, metric)
    };
    let [tcp, bulk, lossy, short] = amount.rounds("network", || {
        Ok([
            run("-c TCP", GBPS)?,
            run("", GBPS)?,
            run("--loss 0.01", GBPS)?,
            run("-s 64", MESSAGES)?,
        ])
    })?;
    let (to_tcp, of_lossless) = (ratios(&bulk, &tcp), ratios(&lossy, &bulk));
    Ok(vec![
        Figure::of("bulk_gbps", "64 KiB, Gb/s", &bulk, Wanted::Nothing),
        Figure::of("bulk_tcp_gbps", "64 KiB over kernel TCP, Gb/s", &tcp, Wanted::Nothing),
        Figure::of("bulk_to_tcp", "64 KiB to kernel TCP", &to_tcp, Wanted::AtLeast(1.3)),
        Figure::of(
            "lossy_to_lossless",
            "64 KiB with 1 % lost to without",
            &of_lossless,
            Wanted::AtLeast(0.8),
        ),
        Figure::of("short_mega_per_s", "64 B, M/s", &short, Wanted::AtLeast(2.0)),
    ])
}

/// One way, both ends polling.
pub(super) fn latency(programs: &Programs, amount: Amount) -> Result<Vec<Figure>, Failure> {
    let seconds = LATENCY_FACTOR * amount.seconds;
    let turns = Turns::of(SLICE);
    let [tcp, towpath] = amount.rounds("latency", || {
        let (tcp, tcp_line) = pair(programs.folder(), "tow_write_lat", "-s 64 -c TCP", seconds)?;
        let (towpath, line) = pair(programs.folder(), "tow_write_lat", "-s 64", seconds)?;
        let [of_tcp, ours] = turns.outputs(tcp, towpath)?;
        Ok([metric::of(&tcp_line, &of_tcp, ONE_WAY)?, metric::of(&line, &ours, ONE_WAY)?])
    })?;
    let to_tcp = ratios(&towpath, &tcp);
    Ok(vec![
        Figure::of("one_way_us", "64 B one way, us", &towpath, Wanted::Nothing),
        Figure::of("one_way_tcp_us", "64 B one way over kernel TCP, us", &tcp, Wanted::Nothing),
        Figure::of("one_way_to_tcp", "64 B one way to kernel TCP", &to_tcp, Wanted::Below(1.0)),
    ])
}

/// Both ends of a run as one command, whose output is the client's, and how to name it.
pub(super) fn pair(
    programs: &Path,
    program: &str,
    flags: &str,
    seconds: u32,
) -> Result<(Command, String), Failure> {
    let port = process::free_port()?;
    let path = process::quote(&programs.join(program).to_string_lossy());
    let end = format!("{path} {flags} -D {seconds} -p {port}");
    // The server has to listen before its client comes.
    let line = format!("{end} >/dev/null & sleep 0.2; {end} --json {}; wait", Ipv4Addr::LOCALHOST);
    Ok((process::shell(&line), line))
}

#[cfg(test)]
mod tests {
    use super::super::programs::tests::Fakes;
    use super::*;

    const ONE: Amount = Amount { rounds: 1, seconds: 1 };

    /// A client that prints one thing for kernel TCP and another for anything else.
    fn client(tcp: &str, ours: &str) -> String {
        format!(
            "case \"$*\" in *127.0.0.1) ;; *) echo server; exit;; esac\n\
             case \"$*\" in *TCP*) echo '{tcp}';; *) echo '{ours}';; esac"
        )
    }

    fn result(fields: &str) -> String {
        format!("{{\"results\": [{{{fields}}}]}}")
    }

    fn median(figures: &[Figure], name: &str) -> f64 {
        figures.iter().find(|figure| figure.name == name).expect("it is measured").median
    }

    #[test]
    fn rates_are_those_of_the_client_and_ratios_those_of_each_round() {
        let fakes = Fakes::of("rates");
        let ours = result("\"gbps\": 30, \"MsgRate\": 2.5");
        fakes.put("tow_write_bw", &client(&result("\"gbps\": 20"), &ours));
        let figures = network(&fakes.programs(), ONE).unwrap();
        assert_eq!(median(&figures, "bulk_to_tcp"), 1.5);
        assert_eq!(median(&figures, "lossy_to_lossless"), 1.0);
        assert_eq!(median(&figures, "short_mega_per_s"), 2.5);
    }

    #[test]
    fn latencies_are_compared_with_those_of_kernel_tcp() {
        let fakes = Fakes::of("latencies");
        let (tcp, ours) = (result("\"t_typical\": 4"), result("\"t_typical\": 5"));
        fakes.put("tow_write_lat", &client(&tcp, &ours));
        let figures = latency(&fakes.programs(), ONE).unwrap();
        assert_eq!(median(&figures, "one_way_to_tcp"), 1.25);
    }

    #[test]
    fn a_client_that_prints_no_figure_is_named_with_its_flags() {
        let fakes = Fakes::of("nothing");
        fakes.put("tow_write_bw", "echo no figure");
        let failure = network(&fakes.programs(), ONE).expect_err("nothing was printed");
        assert!(failure.to_string().contains("tow_write_bw' -c TCP"), "{failure}");
    }
}
