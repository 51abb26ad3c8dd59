//! Keys of hosts: `towpath keygen` and `towpath trust`, and the flags by which links are sealed
//! (docs/secure-links.md).

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fmt};

use clap::Args as ClapArgs;
use serde_json::json;
use towpath_base::Time;
use towpath_transport::keys::{
    Handshake, HandshakeError, Host, HostKey, Mode, Peer, PeerName, PeerRefused, Peers, PeersFile,
    PublicKey, Roles, Sealing, Trust, WallTime, system_random,
};
use towpath_transport::{Secure, SecureError};

use super::error::{CliError, FileVerb};
use super::session::Server;
use super::{print_json, print_text};

/// Names the file of the host's key where no flag does.
const KEY_VARIABLE: &str = "TOWPATH_KEY";

/// How long a host may take to show its key.
const PATIENCE: Duration = Duration::from_secs(5);

/// Heading of the flags.
const SECRECY: &str = "Secrecy";

/// Who this host proves to be, and whom it trusts.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct SecureArgs {
    /// File of the key of this host, as `towpath keygen` makes it. With it links are encrypted, and
    /// a server without a key, or that is not trusted, is refused [default: $TOWPATH_KEY, or none]
    #[arg(long, value_name = "FILE", help_heading = SECRECY)]
    key: Option<PathBuf>,
    /// File of the hosts that are trusted, which `towpath trust` adds to [default: authorized_peers
    /// beside the key]
    #[arg(long, value_name = "FILE", help_heading = SECRECY)]
    peers: Option<PathBuf>,
    /// Name that the server must have among the trusted hosts [default: any; a trusted host could
    /// answer in the place of another]
    #[arg(long, value_name = "NAME", value_parser = parse_name, help_heading = SECRECY)]
    server_name: Option<PeerName>,
    /// What is done with what links carry: encrypt, or authenticate (signed and readable). Both
    /// ends say the same
    #[arg(long, value_name = "MODE", default_value = "encrypt", value_parser = parse_sealing,
          help_heading = SECRECY)]
    secure_mode: Sealing,
}

fn parse_sealing(text: &str) -> Result<Sealing, String> {
    let mode = text.parse().ok().and_then(Mode::sealing);
    mode.ok_or_else(|| "use encrypt or authenticate; links without a key are open".to_owned())
}

fn key_path(flag: Option<&Path>) -> Option<PathBuf> {
    let variable = || env::var_os(KEY_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    flag.map(Path::to_owned).or_else(variable)
}

impl SecureArgs {
    /// The keys of the host, where it has some.
    pub(crate) fn keys(&self) -> Result<Option<Secure>, CliError> {
        let Some(key) = key_path(self.key.as_deref()) else { return Ok(None) };
        let peers = self.peers.clone().unwrap_or_else(|| Secure::peers_beside(&key));
        let keys = Secure::open(&key, &peers, self.secure_mode)?;
        self.server_name.iter().cloned().for_each(|name| keys.expect(name));
        Ok(Some(keys))
    }
}

/// Flags of `towpath keygen`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct KeygenArgs {
    /// File to make; one that exists stays as it is
    #[arg(value_name = "FILE", default_value = "host_key")]
    file: PathBuf,
    /// Name of this host in the line that others add to their authorized peers [default: what the
    /// system calls it]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    name: Option<PeerName>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn parse_name(text: &str) -> Result<PeerName, String> {
    PeerName::parse(text)
        .ok_or_else(|| "use up to 64 letters, digits, dots, hyphens and underscores".to_owned())
}

/// A name made of whatever text.
fn name_of(text: &str) -> PeerName {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let name: String = text.chars().map(|c| if fits(c) { c } else { '-' }).take(64).collect();
    let name = PeerName::parse(&name).or_else(|| PeerName::parse("host"));
    name.unwrap_or_else(|| unreachable!("it is a name"))
}

/// Makes a key, and says what others need to know of it.
pub(crate) fn keygen(args: &KeygenArgs) -> Result<(), CliError> {
    let made = HostKey::create(&args.file, system_random()).map_err(SecureError::Key)?;
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = args.name.clone().unwrap_or_else(|| name_of(&host()));
    let (public, line) = (made.public(), Peer::new(made.public(), name).to_string());
    let fingerprint = public.fingerprint().to_string();
    if args.json {
        return print_json(&json!({
            "file": args.file.display().to_string(),
            "public": public.to_string(),
            "fingerprint": fingerprint,
            "line": line,
        }));
    }
    print_text(&format!(
        "the key of this host is in {}, and nobody else may read it\n\
         its fingerprint is {fingerprint}\n\
         hosts that shall trust it have this line in authorized_peers:\n{line}\n",
        args.file.display()
    ))
}

/// Flags of `towpath trust`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct TrustArgs {
    /// The host as HOST or HOST:PORT, where its chunk server listens
    #[arg(value_name = "HOST")]
    host: String,
    /// File of the hosts that are trusted [default: authorized_peers beside the key]
    #[arg(long, value_name = "FILE", help_heading = SECRECY)]
    peers: Option<PathBuf>,
    /// File of the key of this host, for the default of --peers [default: $TOWPATH_KEY]
    #[arg(long, value_name = "FILE", help_heading = SECRECY)]
    key: Option<PathBuf>,
    /// Name to give it [default: HOST]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    name: Option<PeerName>,
    /// What it may be: server (this host connects to it), client (it connects to this host), or
    /// both with a comma between
    #[arg(long, value_name = "ROLES", default_value = "server", value_parser = parse_roles)]
    roles: Roles,
    /// Add it without a question; compare the fingerprint afterwards
    #[arg(long)]
    yes: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn parse_roles(text: &str) -> Result<Roles, String> {
    text.parse().map_err(|_| "use client, server, or both with a comma between".to_owned())
}

/// Shows the key of a host, and trusts it from now on.
pub(crate) fn trust(args: &TrustArgs) -> Result<(), CliError> {
    let beside = || key_path(args.key.as_deref()).map(|key| Secure::peers_beside(&key));
    let peers = args.peers.clone().or_else(beside).ok_or(CliError::Trust(TrustError::NoPeers))?;
    let Server(addr) = Server::find(Some(&args.host))?;
    let key = key_of(addr)?;
    let fingerprint = key.fingerprint().to_string();
    let known = match PeersFile::open(&peers, WallTime::now()) {
        Ok(file) => file.peers().find(&key).map(|peer| peer.name.clone()),
        // The file is made, or what is wrong with it is said, when a line is added.
        Err(_) => None,
    };
    let name = known.clone().or_else(|| args.name.clone());
    let name = name.unwrap_or_else(|| name_of(args.host.split(':').next().unwrap_or("host")));
    if known.is_none() {
        ask(args, addr, &fingerprint)?;
        let peer = Peer { roles: args.roles, ..Peer::new(key, name.clone()) };
        PeersFile::add(&peers, &peer).map_err(SecureError::Peers)?;
    }
    if args.json {
        return print_json(&json!({
            "host": addr.to_string(),
            "name": name.as_str(),
            "public": key.to_string(),
            "fingerprint": fingerprint,
            "peers": peers.display().to_string(),
            "added": known.is_none(),
        }));
    }
    print_text(&match known {
        Some(name) => format!("{addr} has {fingerprint}, which is trusted already as {name}\n"),
        None => format!("{addr} has {fingerprint}\n{name} is in {} now\n", peers.display()),
    })
}

/// Asks whether a key is the right one.
fn ask(args: &TrustArgs, addr: SocketAddr, fingerprint: &str) -> Result<(), CliError> {
    if args.yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(CliError::Trust(TrustError::NobodyToAsk {
            fingerprint: fingerprint.to_owned(),
        }));
    }
    let mut out = io::stderr().lock();
    let asked = write!(
        out,
        "{addr} has the key {fingerprint}.\nIts log said so when it started, and `towpath keygen` \
         there before. Is it the same? (yes/no) "
    );
    asked.and_then(|()| out.flush()).map_err(CliError::Stdout)?;
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    read.map_err(|error| CliError::file(FileVerb::Read, Path::new("stdin"), error))?;
    match answer.trim() {
        "yes" | "y" => Ok(()),
        _ => Err(CliError::Trust(TrustError::NotTrusted)),
    }
}

/// The key that a host proves to have. The handshake ends there: this host shows none.
fn key_of(addr: SocketAddr) -> Result<PublicKey, CliError> {
    let failed = |why: String| CliError::Trust(TrustError::NoKey { addr, why });
    let broken = |error: io::Error| failed(error.to_string());
    let own = HostKey::generate(system_random()).map_err(SecureError::Key)?;
    let nobody = Trust::Keys(Arc::new(Peers::default()));
    // The mode is told behind the keys, so any does.
    let host = Host::new(&own, nobody, Sealing::Encrypt, system_random());
    let host = host.map_err(SecureError::Host)?;
    let mut stream = TcpStream::connect_timeout(&addr, PATIENCE).map_err(broken)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    let (wall, now) = (WallTime::now(), Time(0));
    let mut handshake = Handshake::client(&host, None, wall, now);
    loop {
        let shaking = handshake.as_mut().map_err(|error| failed(error.to_string()))?;
        let mut bytes = Vec::new();
        shaking.transmit(&mut bytes);
        stream.write_all(&bytes).map_err(broken)?;
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).map_err(broken)?;
        if count == 0 {
            return Err(failed("it closed the connection".to_owned()));
        }
        match shaking.receive(now, &bytes[..count]) {
            Ok(_) => {}
            Err(HandshakeError::Peer(PeerRefused::Unknown { key })) => return Ok(key),
            Err(error) => return Err(failed(error.to_string())),
        }
    }
}

/// Why a host is not trusted.
#[derive(Debug)]
pub(crate) enum TrustError {
    /// Nobody said where.
    NoPeers,
    /// The host showed no key.
    NoKey {
        /// Where it is.
        addr: SocketAddr,
        /// Why.
        why: String,
    },
    /// Nobody can say whether it is the right one.
    NobodyToAsk {
        /// The one that it has.
        fingerprint: String,
    },
    /// It is not.
    NotTrusted,
}

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPeers => write!(
                f,
                "say in which file: --peers FILE, or --key FILE for `authorized_peers` beside it"
            ),
            Self::NoKey { addr, why } => write!(f, "{addr} has shown no key: {why}"),
            Self::NobodyToAsk { fingerprint } => write!(
                f,
                "its fingerprint is {fingerprint}, and stdin is no terminal to ask whether it is \
                 the right one: compare it, and add --yes"
            ),
            Self::NotTrusted => f.write_str("it is not trusted: nothing was changed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_host_is_called_makes_a_name() {
        for (text, name) in
            [("rack4-a.example", "rack4-a.example"), ("a b/c", "a-b-c"), ("", "host")]
        {
            assert_eq!(name_of(text).as_str(), name);
        }
        assert_eq!(name_of(&"x".repeat(99)).as_str().len(), 64);
    }

    #[test]
    fn links_are_encrypted_or_signed_and_no_flag_makes_them_open() {
        assert_eq!(parse_sealing("encrypt"), Ok(Sealing::Encrypt));
        assert_eq!(parse_sealing("authenticate"), Ok(Sealing::Authenticate));
        assert!(parse_sealing("open").is_err() && parse_sealing("").is_err());
    }
}
