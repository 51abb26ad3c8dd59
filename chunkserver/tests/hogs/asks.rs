//! What hostile links ask a server for, and what they show with it.

use std::sync::atomic::{AtomicU64, Ordering};

use towpath_base::Prng;
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::Method;
use towpath_fastpath::cap::{Capability, Grant, KeyRing, Prover, Rights, Scope};
use towpath_fastpath::proof::{PROVED, system_ms};
use towpath_fastpath::wire::{ReadHeader, tenant_number};
use towpath_rpc::{Header, Kind, Status};

/// How far ahead of the server's clock hogs say to be: a little less than is taken.
const AHEAD_MS: u64 = 900;

/// The tenants of hogs and of the others.
pub(crate) const HOGS: &str = "hogs";
pub(crate) const HONEST: &str = "honest";

pub(crate) const SHORT: usize = 4 << 10;
pub(crate) const LONG_BYTES: usize = 256 << 10;

/// What the hogs read.
pub(crate) const CHUNK: ChunkId = ChunkId(7);
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

/// What a hog asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// What is refused at once: no such method.
    UnknownMethod,
    /// The same: its length is wrong.
    Malformed,
    /// What became of a request that there never was.
    Cancel,
    /// How the server is: nobody needs a capability for that.
    Health,
    /// The same of the store.
    Info,
    /// A read of so many bytes.
    Read(usize),
}

pub(crate) const ALL: [Ask; 8] = [
    Ask::UnknownMethod,
    Ask::Malformed,
    Ask::Cancel,
    Ask::Health,
    Ask::Info,
    Ask::Read(SHORT),
    Ask::Read(LONG_BYTES),
    Ask::Read(CHUNK_BYTES),
];

impl Ask {
    pub(crate) fn bytes(self, request: u64, showing: &mut Showing) -> Vec<u8> {
        let (kind, method, body) = match self {
            Self::UnknownMethod | Self::Malformed => (Kind::Request, 999, Vec::new()),
            Self::Cancel => (Kind::Cancel, Method::Read as u16, Vec::new()),
            Self::Health => (Kind::Request, Method::Health as u16, Vec::new()),
            Self::Info => (Kind::Request, Method::Info as u16, Vec::new()),
            Self::Read(bytes) => {
                let length = bytes as u32;
                let header = ReadHeader { chunk: CHUNK, offset: 0, length, ..Default::default() };
                (Kind::Request, Method::Read as u16, header.emit().to_vec())
            }
        };
        let mut bytes = message(kind, request, showing.show(kind, method, body));
        if self == Self::Malformed {
            bytes.push(0);
        }
        bytes
    }
}

fn message(kind: Kind, request: u64, (method, body): (u16, Vec<u8>)) -> Vec<u8> {
    let header = Header {
        kind,
        method,
        status: Status::OK,
        inline: false,
        request,
        body_len: body.len() as u32,
        data_len: 0,
        timeout_us: 0,
    };
    [&header.emit()[..], &body].concat()
}

/// What a hog shows with its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shows {
    /// No capability.
    Nothing,
    /// One whose tag is wrong.
    Forged,
    /// A right one, of its own tenant.
    Valid,
    /// The same, each request under another source, as far ahead of time as the server takes it.
    Sources,
}

/// What one hog shows, with a capability that nobody else has.
pub(crate) struct Showing {
    shows: Shows,
    grant: Grant,
    prover: Prover,
    prng: Prng,
}

impl Showing {
    pub(crate) fn new(shows: Shows) -> Self {
        // Each has a number of its own, in whatever order they begin.
        static SERIAL: AtomicU64 = AtomicU64::new(1_000);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let (rights, scope) = (Rights::READ, Scope::chunk(CHUNK.0));
        let capability = Capability { rights, scope, serial, ..of_tenant(HOGS) };
        let (grant, mut prng) = (grant(capability), Prng::new(serial));
        let prover = Prover::new(grant, prng.next_u64());
        Self { shows, grant, prover, prng }
    }

    fn show(&mut self, kind: Kind, method: u16, body: Vec<u8>) -> (u16, Vec<u8>) {
        if kind != Kind::Request || self.shows == Shows::Nothing {
            return (method, body);
        }
        let mut now_ms = system_ms();
        if self.shows == Shows::Sources {
            self.prover = Prover::new(self.grant, self.prng.next_u64());
            now_ms += AHEAD_MS;
        }
        let mut proof = self.prover.prove(now_ms, method, 0, &[&body]);
        if self.shows == Shows::Forged {
            let at = 80 + self.prng.below(40) as usize;
            proof[at] ^= 1 << self.prng.below(8);
        }
        (method | PROVED, [&proof[..], &body].concat())
    }

    /// The first request of a link: it says whose it is.
    pub(crate) fn join(&mut self) -> Vec<u8> {
        let body = [&[0x0a, HOGS.len() as u8], HOGS.as_bytes()].concat();
        message(Kind::Request, u64::MAX, self.show(Kind::Request, Method::Join as u16, body))
    }
}

pub(crate) fn of_tenant(name: &str) -> Capability {
    Capability { tenant: tenant_number(name), ..Capability::everything() }
}

pub(crate) fn grant(capability: Capability) -> Grant {
    let ring = KeyRing::parse(&KeyRing::line(1, &[1; 32])).expect("a key");
    ring.mint(capability).expect("a grant")
}
