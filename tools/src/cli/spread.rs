//! Files over several servers: `towpath put --servers`, and the commands that take its layout.
//!
//! Signals end these commands at once. What a put or a repair has not finished by then is never
//! read, and servers delete it after a while; what it has finished and no layout names yet stays. A
//! file that is fetched takes its name when it is whole, as a layout does.

mod at;
mod file;
mod repair;
mod wanted;
mod words;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use clap::Args as ClapArgs;
use serde::Serialize;
use towpath_fastpath::ClientConfig;
use towpath_fastpath::cap::Grant;
use towpath_spread::{Layout, NodeState, PutOptions, Scrubbed, Servers};
use towpath_status::say;
use towpath_transport::Nanos;

use super::args::{LinkArgs, PutArgs, ServerArgs};
use super::bytes::{gbps, show_count, show_size};
use super::chunk::{Output, capability};
use super::error::{CliError, FileVerb, SpreadFailed};
use super::progress::Progress;
use super::session::Server;
use super::source::open_regular;
use super::{print_json, print_text};
pub(crate) use at::put_at;
use file::LayoutFile;
pub(super) use repair::{RepairArgs, repair};
use wanted::Chosen;
pub(super) use wanted::SpreadArgs;

/// Bytes of a layout's text: longer files are none.
const LAYOUT_BYTES_MAX: u64 = 64 << 10;

/// What is checked.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ScrubArgs {
    #[command(flatten)]
    pub(super) server: ServerArgs,
    /// Of a layout: read every byte of all parts, and compare the bytes themselves
    #[arg(long)]
    read: bool,
}

impl ScrubArgs {
    /// Whether it is of a layout, or means to be.
    pub(super) fn is_for_layout(&self) -> bool {
        self.read || self.server.layout().is_some()
    }
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
        let file = open_regular(path).map_err(read)?;
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
             out --device and what belongs to it, --mtu, --class, --loss, --seed and --black-hole",
        ));
    }
    let config = ClientConfig::new()
        .timeout(Nanos::from_millis(link.timeout_ms))
        .patience(Nanos::from_secs(link.patience));
    let mut config = link.ways.client(config);
    if let Some(keys) = link.secure.keys()? {
        config = config.secure(keys);
    }
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
    let servers = Servers::new(config).on_notice(|notice| say(format_args!("towpath: {notice}")));
    Ok((servers, signer))
}

fn addresses(names: &[String]) -> Result<Vec<SocketAddr>, CliError> {
    let find = |name: &String| Ok(Server::find(Some(name))?.0);
    names.iter().map(find).collect()
}

/// What is said of flags that are for one server.
const OF_ONE_SERVER: &str = "SERVER, --hedge, --depth and --op-size are for a chunk of one server: \
                             leave them out where files are on several";

/// Refuses flags that a file on several servers has no use for.
pub(crate) fn refuse_flags(is_given: bool) -> Result<(), CliError> {
    if is_given { Err(CliError::Put(OF_ONE_SERVER)) } else { Ok(()) }
}

#[derive(Debug, Serialize)]
struct Moved {
    layout: String,
    policy: String,
    bytes: u64,
    seconds: f64,
    gbps: f64,
    /// Parts that are not whole, or whose servers do not answer.
    without: Vec<usize>,
    /// Parts that were late, so that others were read in their place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    late: Vec<usize>,
    /// Stripes that were made of others.
    decoded: u64,
    /// Why the policy is this one, where it was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<Chosen>,
}

impl Moved {
    fn of(
        place: &Path,
        layout: &Layout,
        seconds: f64,
        (without, decoded): (Vec<usize>, u64),
    ) -> Self {
        let bytes = layout.bytes;
        Self {
            layout: place.display().to_string(),
            policy: layout.policy.to_string(),
            bytes,
            seconds,
            gbps: gbps(bytes, seconds),
            without,
            late: Vec::new(),
            decoded,
            chosen: None,
        }
    }
}

/// Stores one file.
pub(crate) fn put(args: &PutArgs) -> Result<(), CliError> {
    let [file] = &args.words[..] else {
        return Err(CliError::Put("--servers stores one file at a time"));
    };
    let Some(wanted) = args.spread.policy else {
        return Err(CliError::Put("--servers needs --policy, as in flat:3, auto:3 or rs:6+3"));
    };
    if args.server.is_some() || args.chunk.is_some() || args.resident {
        return Err(CliError::Put("--server, --chunk and --resident are for one server"));
    }
    refuse_flags(!args.pipeline.is_default())?;
    let place = args.spread.layout.clone().unwrap_or_else(|| {
        let mut name = file.clone().into_os_string();
        name.push(".layout");
        name.into()
    });
    let (whole, mut source) = input(file, args.spread.layout.is_some())?;
    let (servers, signer) = servers(&args.link)?;
    let places = addresses(&args.spread.servers)?;
    let (policy, chosen) = wanted.settle(&servers, &places, whole, args.spread.costs)?;
    let mut options = PutOptions::new(policy);
    if let Some(least) = args.spread.least {
        options = options.least(least);
    }
    let kept = LayoutFile::create(&place)?;
    let (began, mut progress) = (Instant::now(), Progress::bytes("put", whole));
    let layout = servers.put(&places, &options, &mut source, |done| progress.at(done));
    let layout = layout.map_err(SpreadFailed::from)?;
    drop(progress);
    let seconds = began.elapsed().as_secs_f64();
    let text = layout.to_text(signer.as_ref());
    if let Err(unkept) = kept.keep(&text) {
        // Nobody could ever find what is stored.
        let left = servers.remove(&layout).map_err(SpreadFailed::from)?;
        if !left.is_empty() {
            say(format_args!(
                "towpath: parts are left on servers; `towpath rm` takes their layout:"
            ));
            say(format_args!("{}", text.trim_end()));
        }
        return Err(*unkept.error);
    }
    show_put(args, &place, &layout, (seconds, chosen))
}

/// What is to be stored, and its length where that is known.
fn input(file: &Path, has_layout: bool) -> Result<(u64, Box<dyn Read>), CliError> {
    let read = |e| CliError::file(FileVerb::Read, file, e);
    match file.to_str() {
        Some("-") if !has_layout => {
            Err(CliError::Put("of stdin (-) the layout needs a name: --layout FILE"))
        }
        Some("-") => Ok((0, Box::new(io::stdin().lock()))),
        _ => {
            let opened = open_regular(file).map_err(|e| CliError::input(file, e))?;
            Ok((opened.metadata().map_err(read)?.len(), Box::new(opened)))
        }
    }
}

fn show_put(
    args: &PutArgs,
    place: &Path,
    layout: &Layout,
    (seconds, chosen): (f64, Option<Chosen>),
) -> Result<(), CliError> {
    let missing = (0..).zip(&layout.nodes).filter(|(_, node)| node.version.is_none());
    let without: Vec<usize> = missing.map(|(part, _)| part).collect();
    if !without.is_empty() {
        let path = place.display();
        let servers = without.iter().map(|part| layout.nodes[*part].server.to_string());
        let servers = servers.collect::<Vec<_>>().join(", ");
        say(format_args!(
            "towpath: stored without {} ({servers}): `towpath repair {path}` makes what is missing \
             when its server is back, and `towpath repair {path} --replacements SERVERS` makes it \
             on others",
            words::parts(&without)
        ));
    }
    if args.link.json {
        let moved = Moved::of(place, layout, seconds, (without, 0));
        return print_json(&Moved { chosen, ..moved });
    }
    let mut text = format!("{}\n", place.display());
    text.extend(chosen.map(|chosen| chosen.text(layout.policy)));
    print_text(&text)
}

/// Gives bytes to an output.
struct Sink<'a> {
    output: &'a mut Output,
    /// Why it takes no more.
    failed: Option<CliError>,
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.output.write(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                let said = io::Error::other(error.chain());
                self.failed = Some(error);
                Err(said)
            }
        }
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
    let mut sink = Sink { output: &mut output, failed: None };
    let got = servers.get(&layout, &mut sink, |done| progress.at(done));
    if let Some(error) = sink.failed {
        return Err(error);
    }
    let got = got.map_err(SpreadFailed::from)?;
    drop(progress);
    output.finish()?;
    let seconds = began.elapsed().as_secs_f64();
    if to_stdout {
        return Ok(());
    }
    let without: Vec<usize> = got.without.iter().collect();
    let late: Vec<usize> = got.late.iter().collect();
    if link.json {
        let moved = Moved::of(path, &layout, seconds, (without, got.decoded));
        return print_json(&Moved { late, ..moved });
    }
    let mut text = format!("{} in {seconds:.2} s\n", show_size(got.bytes));
    if !without.is_empty() {
        let _ = writeln!(
            text,
            "All bytes are right, though {} could not be read: `towpath stat {}` says what is \
             wrong.",
            words::parts(&without),
            path.display()
        );
    }
    if got.decoded > 0 && !late.is_empty() {
        let late = words::parts(&late);
        let _ = writeln!(text, "Other parts were read where {late} came late.");
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

fn state_words(state: NodeState) -> String {
    match state {
        NodeState::Whole => "whole".into(),
        NodeState::Missing => "missing".into(),
        NodeState::Changed(version) => format!("changed, version {version}"),
        NodeState::OtherLength(bytes) => format!("of another file, {bytes} bytes long"),
        NodeState::Unreachable => "its server does not answer".into(),
        NodeState::Refused => "its server refuses it".into(),
    }
}

/// Shows where a file is, and what has become of its parts.
pub(crate) fn stat(path: &Path, link: &LinkArgs) -> Result<(), CliError> {
    let Opened { layout, servers, .. } = Opened::new(path, link)?;
    let states = servers.stat(&layout).map_err(SpreadFailed::from)?;
    let parts = layout.nodes.iter().zip(&states).enumerate().map(|(part, (node, state))| Part {
        part,
        server: node.server.to_string(),
        chunk: node.chunk.to_string(),
        state: state_words(*state),
    });
    let parts: Vec<Part> = parts.collect();
    let whole = parts.iter().filter(|part| part.state == "whole").count();
    let enough = layout.policy.enough();
    if link.json {
        print_json(&serde_json::json!({
            "bytes": layout.bytes,
            "policy": layout.policy.to_string(),
            "unit_bytes": layout.unit_bytes,
            "generation": layout.generation,
            "whole": whole,
            "enough": enough,
            "parts": parts,
        }))?;
    } else {
        let mut text = format!(
            "bytes   {} ({})\npolicy  {}: {whole} of {} parts intact ({enough} needed to read)\n",
            layout.bytes,
            show_size(layout.bytes),
            layout.policy,
            parts.len(),
        );
        for Part { part, server, chunk, state } in &parts {
            let _ = writeln!(text, "{part:>4}  {server:<24} {chunk}  {state}");
        }
        print_text(&text)?;
    }
    let bad = states.iter().enumerate().filter(|(_, state)| **state != NodeState::Whole);
    let bad: Vec<usize> = bad.map(|(part, _)| part).collect();
    let advice = || words::advice(path, &layout, &bad, &states);
    match whole {
        _ if bad.is_empty() => Ok(()),
        whole if whole >= enough => Err(CliError::Degraded { advice: advice() }),
        _ => Err(CliError::BadParts { advice: advice() }),
    }
}

/// Removes a file and its layout.
pub(crate) fn rm(path: &Path, link: &LinkArgs) -> Result<(), CliError> {
    let Opened { layout, servers, .. } = Opened::new(path, link)?;
    let left = servers.remove(&layout).map_err(SpreadFailed::from)?;
    if !left.is_empty() {
        return Err(CliError::PartsLeft { left });
    }
    fs::remove_file(path).map_err(|e| CliError::file(FileVerb::Write, path, e))?;
    if link.json {
        return print_json(&serde_json::json!({ "removed": path.display().to_string() }));
    }
    Ok(())
}

/// Compares all parts of a file: by sketches, or by all of their bytes.
pub(crate) fn scrub(args: &ScrubArgs) -> Result<(), CliError> {
    let ScrubArgs { server: ServerArgs { link, .. }, read } = args;
    let Some(path) = args.server.layout() else {
        return Err(CliError::Put("--read is for a layout: a server reads every slice anyway"));
    };
    let Opened { mut layout, servers, signer } = Opened::new(path, link)?;
    sweep(path, &mut layout, &servers, signer.as_ref());
    let mut progress = Progress::bytes("scrub", layout.bytes);
    let found = match *read {
        true => servers.scrub_by_reading(&layout, |done| progress.at(done)),
        false => servers.scrub(&layout, |done| progress.at(done)),
    };
    let found = found.map_err(SpreadFailed::from)?;
    drop(progress);
    let bad: Vec<usize> = found.bad.iter().collect();
    if link.json {
        print_json(&serde_json::json!({
            "stripes": found.stripes, "uncompared_stripes": found.uncompared, "bad_parts": bad,
            "torn_stripes": found.torn, "lost_stripes": found.lost, "bytes_read": found.bytes_read,
        }))?;
    } else {
        print_text(&scrub_text(&found))?;
    }
    if let Some(at) = found.lost_at {
        return Err(CliError::Lost { stripes: found.lost, at });
    }
    match (bad.len(), found.torn) {
        (0, 0) => Ok(()),
        (_, 0) => {
            let states = servers.stat(&layout).map_err(SpreadFailed::from)?;
            Err(CliError::BadParts { advice: words::advice(path, &layout, &bad, &states) })
        }
        (parts, stripes) => Err(CliError::Torn { stripes, parts }),
    }
}

fn scrub_text(found: &Scrubbed) -> String {
    let Scrubbed { stripes, uncompared, torn, lost, bytes_read, .. } = found;
    let mut text = match torn {
        0 if *uncompared + *lost == 0 => format!("All {} stripes match.", show_count(*stripes)),
        0 => format!("{} stripes were compared and match.", show_count(*stripes)),
        torn => format!("{} of {} stripes do not match.", show_count(*torn), show_count(*stripes)),
    };
    // Writing to a string does not fail.
    if *uncompared > 0 {
        let _ = write!(text, " {} have no spare part to compare.", show_count(*uncompared));
    }
    if *lost > 0 {
        let _ = write!(text, " {} cannot be read.", show_count(*lost));
    }
    let bad: Vec<usize> = found.bad.iter().collect();
    let _ = match &bad[..] {
        [] => write!(text, " No parts missing or damaged."),
        [_] => write!(text, " {} is missing or damaged.", words::parts_first(&bad)),
        _ => write!(text, " {} are missing or damaged.", words::parts_first(&bad)),
    };
    let _ = writeln!(text, " {} transferred.", show_size(*bytes_read));
    text
}

/// Deletes chunks that earlier repairs replaced and could not delete, and keeps a layout without
/// them.
fn sweep(path: &Path, layout: &mut Layout, servers: &Servers, signer: Option<&Grant>) {
    if layout.left.is_empty() {
        return;
    }
    let left = servers.discard(&layout.left);
    if left.len() == layout.left.len() {
        return;
    }
    layout.left = left;
    let kept = LayoutFile::instead_of(path)
        .and_then(|kept| kept.keep(&layout.to_text(signer)).map_err(|unkept| *unkept.error));
    if let Err(error) = kept {
        // They are deleted all the same, and deleted once more the next time.
        say(format_args!("towpath: {}", error.chain()));
    }
}
