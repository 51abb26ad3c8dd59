//! Files over several servers: `towpath put --servers`, and the commands that take its layout.
//!
//! Signals end these commands at once: what a put has not finished is never read, and servers
//! delete it after a while; a file that is fetched takes its name when it is whole.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args as ClapArgs;
use serde::Serialize;
use tempfile::NamedTempFile;
use towpath_fastpath::ClientConfig;
use towpath_fastpath::cap::Grant;
use towpath_spread::{Layout, NodeState, PutOptions, Servers, ShardSet};
use towpath_transport::Nanos;

use super::args::{LinkArgs, PutArgs};
use super::bytes::{gbps, show_size};
use super::chunk::{Output, capability};
use super::error::{CliError, FileVerb, SpreadFailed};
use super::progress::Progress;
use super::session::Server;
use super::{print_json, print_text};

/// Bytes of a layout's text: longer files are none.
const LAYOUT_BYTES_MAX: u64 = 64 << 10;

/// Flags of `towpath repair`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct RepairArgs {
    /// Layout of the file, as `towpath put --servers` makes it; it is replaced by the new one
    #[arg(value_name = "LAYOUT")]
    layout: PathBuf,
    /// Servers for parts whose own do not answer, with commas between
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    replacements: Vec<String>,
    /// Read every byte first, and make parts anew that have damaged slices as well
    #[arg(long)]
    scrub: bool,
    #[command(flatten)]
    link: LinkArgs,
}

/// What a layout is used with.
struct Opened {
    layout: Layout,
    servers: Servers,
    signer: Option<Grant>,
}

impl Opened {
    fn new(path: &Path, link: &LinkArgs) -> Result<Self, CliError> {
        let (servers, signer) = servers(link)?;
        let read = |e| CliError::file(FileVerb::Read, path, e);
        let mut text = String::new();
        let file = fs::File::open(path).map_err(read)?;
        file.take(LAYOUT_BYTES_MAX + 1).read_to_string(&mut text).map_err(read)?;
        let layout = Layout::parse(&text, signer.as_ref());
        let layout = layout.map_err(|error| CliError::Layout { path: path.into(), error })?;
        Ok(Self { layout, servers, signer })
    }
}

/// The servers, and what layouts are signed with.
fn servers(link: &LinkArgs) -> Result<(Servers, Option<Grant>), CliError> {
    if link.is_for_trials() {
        return Err(CliError::Put(
            "several servers are reached over the default device, without faults of its own: leave \
             out --device, --mtu, --class, --loss and --black-hole",
        ));
    }
    let mut config = ClientConfig::new()
        .timeout(Nanos::from_millis(link.timeout_ms))
        .paths(usize::from(link.paths));
    if let Some(ip) = link.device_ip {
        config = config.local_ip(ip);
    }
    if let Some(tenant) = &link.tenant {
        config = config.tenant(tenant);
    }
    let signer = capability(link)?;
    if let Some(grant) = signer {
        config = config.capability(grant);
    }
    Ok((Servers::new(config), signer))
}

fn addresses(names: &[String]) -> Result<Vec<SocketAddr>, CliError> {
    let find = |name: &String| Ok(Server::find(Some(name))?.0);
    names.iter().map(find).collect()
}

/// Puts a text in place of what a file has: wholly, or not at all.
fn replace(path: &Path, text: &str) -> Result<(), CliError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let write = |e| CliError::file(FileVerb::Write, path, e);
    let mut file = NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).map_err(write)?;
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(write)?;
    file.persist(path).map(drop).map_err(|error| write(error.error))
}

#[derive(Debug, Serialize)]
struct Moved {
    layout: String,
    policy: String,
    bytes: u64,
    seconds: f64,
    gbps: f64,
    /// Parts that are not whole, or were read around.
    without: Vec<usize>,
    /// Stripes that were made of others.
    decoded: u64,
}

/// Stores one file.
pub(crate) fn put(args: &PutArgs) -> Result<(), CliError> {
    let [file] = &args.words[..] else {
        return Err(CliError::Put("--servers stores one file at a time"));
    };
    let Some(policy) = args.spread.policy else {
        return Err(CliError::Put("--servers needs --policy, as in flat:3 or rs:6+3"));
    };
    if args.server.is_some() || args.chunk.is_some() || args.resident {
        return Err(CliError::Put("--server, --chunk and --resident are for one server"));
    }
    let place = args.spread.layout.clone().unwrap_or_else(|| {
        let mut name = file.clone().into_os_string();
        name.push(".layout");
        name.into()
    });
    if place.symlink_metadata().is_ok() {
        return Err(CliError::Put(
            "there is a file where the layout belongs: --layout names another",
        ));
    }
    let read = |e| CliError::file(FileVerb::Read, file, e);
    let (whole, mut source): (u64, Box<dyn Read>) = match file.to_str() {
        Some("-") if args.spread.layout.is_none() => {
            return Err(CliError::Put("of stdin (-) the layout needs a name: --layout FILE"));
        }
        Some("-") => (0, Box::new(io::stdin().lock())),
        _ => {
            let opened = fs::File::open(file).map_err(read)?;
            (opened.metadata().map_err(read)?.len(), Box::new(opened))
        }
    };
    let (servers, signer) = servers(&args.link)?;
    let mut options = PutOptions::new(policy);
    if let Some(least) = args.spread.least {
        options = options.least(least);
    }
    let places = addresses(&args.spread.servers)?;
    let (began, mut progress) = (Instant::now(), Progress::bytes("put", whole));
    let layout = servers.put(&places, &options, &mut source, |done| progress.at(done));
    let layout = layout.map_err(SpreadFailed::from)?;
    drop(progress);
    let seconds = began.elapsed().as_secs_f64();
    replace(&place, &layout.to_text(signer.as_ref()))?;
    let missing = (0..).zip(&layout.nodes).filter(|(_, node)| node.version.is_none());
    let without: Vec<usize> = missing.map(|(part, _)| part).collect();
    if args.link.json {
        return print_json(&Moved {
            layout: place.display().to_string(),
            policy: policy.to_string(),
            bytes: layout.bytes,
            seconds,
            gbps: gbps(layout.bytes, seconds),
            without,
            decoded: 0,
        });
    }
    let mut text = format!("{}\n", place.display());
    if !without.is_empty() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "parts {without:?} are not whole: `towpath repair` makes them");
    }
    print_text(&text)
}

/// Gives bytes to an output.
struct Sink<'a>(&'a mut Output);

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|error| io::Error::other(error.chain()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Fetches a file.
pub(crate) fn get(path: &Path, file: &Path, force: bool, link: &LinkArgs) -> Result<(), CliError> {
    let Opened { layout, servers, .. } = Opened::new(path, link)?;
    let mut output = Output::create(file, force)?;
    let to_stdout = matches!(output, Output::Stdout);
    let (began, mut progress) = (Instant::now(), Progress::bytes("get", layout.bytes));
    let got = servers.get(&layout, &mut Sink(&mut output), |done| progress.at(done));
    let got = got.map_err(SpreadFailed::from)?;
    drop(progress);
    output.finish()?;
    let seconds = began.elapsed().as_secs_f64();
    if to_stdout {
        return Ok(());
    }
    if link.json {
        return print_json(&Moved {
            layout: path.display().to_string(),
            policy: layout.policy.to_string(),
            bytes: got.bytes,
            seconds,
            gbps: gbps(got.bytes, seconds),
            without: got.without.iter().collect(),
            decoded: got.decoded,
        });
    }
    let mut text = format!("{} in {seconds:.2} s\n", show_size(got.bytes));
    if !got.without.is_empty() {
        let parts: Vec<usize> = got.without.iter().collect();
        let _ = writeln!(text, "without parts {parts:?}: {} stripes were decoded", got.decoded);
    }
    print_text(&text)
}

#[derive(Debug, Serialize)]
struct Part {
    part: usize,
    server: String,
    chunk: String,
    state: String,
}

fn words(state: NodeState) -> String {
    match state {
        NodeState::Whole => "whole".into(),
        NodeState::Missing => "missing".into(),
        NodeState::Changed(version) => format!("changed, version {version}"),
        NodeState::Unreachable => "its server does not answer".into(),
        NodeState::Refused => "its server refuses it".into(),
    }
}

/// Shows where a file is, and what has become of its parts.
pub(crate) fn stat(path: &Path, link: &LinkArgs) -> Result<(), CliError> {
    let Opened { layout, servers, .. } = Opened::new(path, link)?;
    let states = servers.stat(&layout).map_err(SpreadFailed::from)?;
    let parts = layout.nodes.iter().zip(states).enumerate().map(|(part, (node, state))| Part {
        part,
        server: node.server.to_string(),
        chunk: node.chunk.to_string(),
        state: words(state),
    });
    let parts: Vec<Part> = parts.collect();
    let whole = parts.iter().filter(|part| part.state == "whole").count();
    if link.json {
        return print_json(&serde_json::json!({
            "bytes": layout.bytes,
            "policy": layout.policy.to_string(),
            "unit_bytes": layout.unit_bytes,
            "generation": layout.generation,
            "whole": whole,
            "enough": layout.policy.enough(),
            "parts": parts,
        }));
    }
    let mut text = format!(
        "bytes   {} ({})\npolicy  {}: {whole} of {} parts are whole, {} are enough\n",
        layout.bytes,
        show_size(layout.bytes),
        layout.policy,
        parts.len(),
        layout.policy.enough()
    );
    for Part { part, server, chunk, state } in &parts {
        let _ = writeln!(text, "{part:>4}  {server:<24} {chunk}  {state}");
    }
    print_text(&text)
}

/// Removes a file and its layout.
pub(crate) fn rm(path: &Path, link: &LinkArgs) -> Result<(), CliError> {
    let Opened { layout, servers, .. } = Opened::new(path, link)?;
    let left = servers.remove(&layout).map_err(SpreadFailed::from)?;
    if left > 0 {
        return Err(CliError::PartsLeft { left });
    }
    fs::remove_file(path).map_err(|e| CliError::file(FileVerb::Write, path, e))?;
    if link.json {
        return print_json(&serde_json::json!({ "removed": path.display().to_string() }));
    }
    Ok(())
}

/// Reads all of a file and compares.
pub(crate) fn scrub(path: &Path, link: &LinkArgs) -> Result<(), CliError> {
    let Opened { layout, servers, .. } = Opened::new(path, link)?;
    let mut progress = Progress::bytes("scrub", layout.bytes);
    let found = servers.scrub(&layout, |done| progress.at(done)).map_err(SpreadFailed::from)?;
    drop(progress);
    let bad: Vec<usize> = found.bad.iter().collect();
    if link.json {
        print_json(&serde_json::json!({
            "stripes": found.stripes, "bad_parts": bad, "torn_stripes": found.torn,
        }))?;
    } else {
        print_text(&format!(
            "{} stripes compared, {} do not belong together; parts with damage: {bad:?}\n",
            found.stripes, found.torn
        ))?;
    }
    match (bad.len(), found.torn) {
        (0, 0) => Ok(()),
        (parts, torn) => Err(CliError::BadParts { parts, torn }),
    }
}

/// Makes parts anew.
pub(crate) fn repair(args: &RepairArgs) -> Result<(), CliError> {
    let Opened { layout, servers, signer } = Opened::new(&args.layout, &args.link)?;
    let also = match args.scrub {
        true => servers.scrub(&layout, |_| {}).map_err(SpreadFailed::from)?.bad,
        false => ShardSet::NONE,
    };
    let replacements = addresses(&args.replacements)?;
    let mut progress = Progress::bytes("repair", layout.bytes);
    let repaired = servers.repair(&layout, also, &replacements, |done| progress.at(done));
    let repaired = repaired.map_err(SpreadFailed::from)?;
    drop(progress);
    if !repaired.parts.is_empty() {
        replace(&args.layout, &repaired.layout.to_text(signer.as_ref()))?;
    }
    let parts: Vec<usize> = repaired.parts.iter().collect();
    if args.link.json {
        return print_json(&serde_json::json!({
            "made": parts,
            "bytes_read": repaired.bytes_read,
            "bytes_written": repaired.bytes_written,
            "generation": repaired.layout.generation,
        }));
    }
    print_text(&match parts.is_empty() {
        true => "all parts are whole\n".into(),
        false => format!(
            "parts {parts:?} made anew: {} read, {} written\n",
            show_size(repaired.bytes_read),
            show_size(repaired.bytes_written)
        ),
    })
}
