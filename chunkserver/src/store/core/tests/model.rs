//! The model that tests compare the store with, and the changes that they make up.

use std::collections::BTreeMap;

use super::*;

/// What the store should hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) chunks: BTreeMap<ChunkId, Vec<u8>>,
    /// Of the chunks whose last change is known.
    pub(super) versions: BTreeMap<ChunkId, u64>,
    /// The chain version of each chunk.
    pub(super) chains: BTreeMap<ChunkId, u32>,
}

impl PartialEq for Model {
    fn eq(&self, other: &Self) -> bool {
        self.chunks == other.chunks && self.chains == other.chains
    }
}

/// One change, as tests make them up.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Create(ChunkId),
    Write(ChunkId, u64, Vec<u8>),
    Clear(ChunkId, Clear),
    Delete(ChunkId),
    /// Gives a chunk a higher chain version.
    Raise(ChunkId, u32),
    /// A change that names this chain version, and a create that gives it; others name 0.
    OnChain(u32, Box<Self>),
    /// A change that is made where the chunk has this version.
    OnlyIf(u64, Box<Self>),
}

impl Change {
    /// A change of one of four chunks, which may or may not make sense just now.
    pub(super) fn random(prng: &mut Prng) -> Self {
        let chunk = ChunkId(u128::from(prng.below(4)) << 64 | 7);
        let (offset, len) = (prng.below(40 << 10), 1 + prng.below(20 << 10) as usize);
        let (offset, len) = match prng.chance(0.6) {
            true => (offset & !4095, len.next_multiple_of(SLICE_BYTES)),
            false => (offset, len),
        };
        let byte_len = len as u64;
        match prng.below(16) {
            0 | 1 => Self::Create(chunk),
            2 => Self::Delete(chunk),
            3 => Self::Clear(chunk, Clear::Trim { offset, byte_len }),
            4 => Self::Clear(chunk, Clear::Zero { offset, byte_len }),
            5 | 6 => Self::Clear(chunk, Clear::Truncate { byte_len: offset + prng.below(2) }),
            _ => {
                let mut bytes = vec![0; len];
                prng.fill(&mut bytes);
                Self::Write(chunk, offset, bytes)
            }
        }
    }

    pub(super) fn chunk(&self) -> ChunkId {
        match self {
            Self::Create(chunk)
            | Self::Write(chunk, ..)
            | Self::Clear(chunk, _)
            | Self::Raise(chunk, _)
            | Self::Delete(chunk) => *chunk,
            Self::OnChain(_, change) | Self::OnlyIf(_, change) => change.chunk(),
        }
    }

    pub(super) fn request(&self) -> Request<Vec<u8>, Buf> {
        let none = Terms::default();
        match self {
            Self::Create(chunk) => create_request(*chunk),
            Self::Write(chunk, offset, bytes) => write_request(*chunk, *offset, bytes),
            &Self::Clear(chunk, clear) => Request::Clear { chunk, clear, terms: none },
            &Self::Delete(chunk) => Request::Delete { chunk, version: None },
            &Self::Raise(chunk, chain) => Request::Chain { chunk, chain, version: None, stamp: 0 },
            Self::OnChain(chain, change) => on_chain(*chain, change.request()),
            Self::OnlyIf(version, change) => only_if(*version, change.request()),
        }
    }

    /// What it makes of a chunk's content, where that has the version that it is meant for.
    pub(super) fn apply(&self, content: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let content = match self {
            Self::Create(_) => return Some(Vec::new()),
            Self::Delete(_) => return None,
            Self::OnChain(_, change) | Self::OnlyIf(_, change) => return change.apply(content),
            Self::Write(..) | Self::Clear(..) | Self::Raise(..) => content?,
        };
        let longer = |end: u64| {
            let mut content = content.clone();
            content.resize(content.len().max(end as usize), 0);
            content
        };
        Some(match self {
            Self::Write(_, offset, bytes) => {
                let end = *offset + bytes.len() as u64;
                let mut content = longer(end);
                content[*offset as usize..end as usize].copy_from_slice(bytes);
                content
            }
            &Self::Clear(_, Clear::Zero { offset, byte_len }) => {
                let mut content = longer(offset + byte_len);
                content[offset as usize..(offset + byte_len) as usize].fill(0);
                content
            }
            &Self::Clear(_, Clear::Trim { offset, byte_len }) => {
                let (mut content, end) = (longer(0), (offset + byte_len) as usize);
                for (slice, bytes) in content.chunks_mut(SLICE_BYTES).enumerate() {
                    let from = slice * SLICE_BYTES;
                    if from >= offset as usize && from + bytes.len() <= end {
                        bytes.fill(0);
                    }
                }
                content
            }
            &Self::Clear(_, Clear::Truncate { byte_len }) => {
                let mut content = longer(0);
                content.resize(byte_len as usize, 0);
                content
            }
            _ => content,
        })
    }

    /// The chain version that it leaves the chunk with.
    pub(super) fn chain_after(&self, chain: Option<u32>) -> Option<u32> {
        match self {
            Self::Create(_) => Some(0),
            Self::Delete(_) => None,
            Self::Raise(_, higher) => Some(*higher),
            Self::OnChain(given, change) if matches!(**change, Self::Create(_)) => Some(*given),
            Self::OnChain(_, change) | Self::OnlyIf(_, change) => change.chain_after(chain),
            Self::Write(..) | Self::Clear(..) => chain,
        }
    }

    /// Whether it may be made where the chunk has that chain version.
    pub(super) fn suits(&self, chain: Option<u32>) -> bool {
        match self {
            Self::Create(_) | Self::Delete(_) => true,
            Self::Raise(_, higher) => chain.is_some_and(|chain| *higher >= chain),
            Self::OnChain(named, change) => match **change {
                Self::Write(..) | Self::Clear(..) => chain == Some(*named),
                _ => change.suits(chain),
            },
            Self::OnlyIf(_, change) => change.suits(chain),
            Self::Write(..) | Self::Clear(..) => chain == Some(0),
        }
    }

    /// Whether it is a raise to the chain version that there is, which changes nothing.
    fn is_raised(&self, chain: Option<u32>) -> bool {
        match self {
            Self::Raise(_, wanted) => chain == Some(*wanted),
            Self::OnlyIf(_, change) => change.is_raised(chain),
            _ => false,
        }
    }

    /// The version that it is meant for.
    pub(super) fn wants(&self) -> Option<u64> {
        match self {
            Self::OnlyIf(version, _) => Some(*version),
            _ => None,
        }
    }
}

/// A request that is done only where the chunk has a version.
pub(super) fn only_if(expected: u64, mut request: Request<Vec<u8>, Buf>) -> Request<Vec<u8>, Buf> {
    match &mut request {
        Request::Write { terms, .. }
        | Request::Clear { terms, .. }
        | Request::Finish { terms, .. } => terms.version = Some(expected),
        Request::Delete { version, .. } | Request::Chain { version, .. } => {
            *version = Some(expected);
        }
        _ => {}
    }
    request
}

/// A request that names a chain version, or gives it to a new chunk.
pub(super) fn on_chain(named: u32, mut request: Request<Vec<u8>, Buf>) -> Request<Vec<u8>, Buf> {
    match &mut request {
        Request::Write { terms, .. }
        | Request::Clear { terms, .. }
        | Request::Finish { terms, .. } => terms.chain = named,
        Request::Create { kind, .. } => kind.chain = named,
        _ => {}
    }
    request
}

impl Model {
    /// A change that somebody makes up who knows the versions, and is sometimes wrong.
    pub(super) fn random(&self, prng: &mut Prng) -> Change {
        let change = Change::random(prng);
        let chunk = change.chunk();
        let is_right = prng.chance(0.8);
        let chain = self.chains.get(&chunk).copied();
        let change = match (change, chain) {
            (create @ Change::Create(_), _) => {
                Change::OnChain(prng.below(4) as u32, Box::new(create))
            }
            // To the one that there is, to higher ones, and in vain to a lower one.
            (_, Some(chain)) if prng.chance(0.1) => {
                Change::Raise(chunk, (chain + prng.below(4) as u32).saturating_sub(1))
            }
            (change @ (Change::Write(..) | Change::Clear(..)), Some(chain)) => {
                let off = if prng.chance(0.9) { 0 } else { 1 + prng.below(2) as u32 };
                Change::OnChain(chain + off, Box::new(change))
            }
            (change, _) => change,
        };
        let is_create =
            matches!(&change, Change::OnChain(_, of) if matches!(**of, Change::Create(_)));
        match self.versions.get(&chunk) {
            Some(version) if !is_create && prng.chance(0.3) => {
                Change::OnlyIf(if is_right { *version } else { version - 1 }, Box::new(change))
            }
            _ => change,
        }
    }

    /// Takes in that a change was made, which gave the chunk that version.
    pub(super) fn apply(&mut self, change: &Change, version: u64) {
        let chunk = change.chunk();
        let content = change.apply(self.chunks.remove(&chunk));
        self.versions.remove(&chunk);
        let chain = change.chain_after(self.chains.remove(&chunk));
        if let Some((content, chain)) = content.zip(chain) {
            self.chunks.insert(chunk, content);
            self.versions.insert(chunk, version);
            self.chains.insert(chunk, chain);
        }
    }

    /// Takes in the answer to a change, if that is one which may come.
    pub(super) fn take(
        &mut self,
        change: &Change,
        reply: &Reply<Vec<u8>, Buf>,
    ) -> Result<Fate, String> {
        let version = self.versions.get(&change.chunk()).copied();
        let chain = self.chains.get(&change.chunk()).copied();
        let fate = fate(reply);
        if change.is_raised(chain) && made(reply).is_some() {
            let is_same = made(reply) == version;
            return if is_same { Ok(fate) } else { Err(format!("raised for nothing: {reply:?}")) };
        }
        match refused(reply) {
            _ if made(reply).is_some() && !change.suits(chain) => {
                return Err(format!("made on chain version {chain:?}: {change:?}"));
            }
            Some(Refused::OtherChain { chain: found }) if chain != Some(found) => {
                return Err(format!("refused for chain version {found}, and there is {chain:?}"));
            }
            Some(Refused::OtherChain { .. }) if change.suits(chain) => {
                return Err(format!("refused for the chain version that was named: {change:?}"));
            }
            _ => {}
        }
        match (change.wants(), made(reply), refused(reply)) {
            (Some(wanted), Some(_), _) if version != Some(wanted) => {
                return Err(format!("made for {wanted}, and there was {version:?}"));
            }
            (_, _, Some(Refused::OtherVersion { version: found })) if version != Some(found) => {
                return Err(format!("refused for {found}, and there is {version:?}"));
            }
            (wanted, _, Some(Refused::OtherVersion { version: found }))
                if wanted == Some(found) =>
            {
                return Err(format!("refused for {found}, which is the one that was wanted"));
            }
            (_, Some(made), _) if version.is_some_and(|before| before >= made) => {
                return Err(format!("version {made} after {version:?}"));
            }
            (_, Some(made), _) => self.apply(change, made),
            _ => {}
        }
        Ok(fate)
    }

    /// Everything in the store.
    pub(super) fn of(core: &mut Core) -> Result<Self, ReadError> {
        let mut model = Self::default();
        for stat in stats_of(core) {
            let content = match stat.byte_len {
                0 => Vec::new(),
                len => read(core, stat.chunk, 0, len as usize)?,
            };
            model.chunks.insert(stat.chunk, content);
            model.versions.insert(stat.chunk, stat.version);
            model.chains.insert(stat.chunk, stat.chain);
        }
        Ok(model)
    }
}

/// How a change ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    NotDone,
    Unknown,
}

/// The version that a change has made.
pub(super) fn made(reply: &Reply<Vec<u8>, Buf>) -> Option<u64> {
    match reply {
        Reply::Change(Ok(ticket)) | Reply::Write { result: Ok(ticket), .. } => Some(ticket.0),
        _ => None,
    }
}

/// Why a change was refused that any change may be refused for.
pub(super) fn refused(reply: &Reply<Vec<u8>, Buf>) -> Option<Refused> {
    use crate::store::error::ChangeError;
    match reply {
        Reply::Change(Err(ChangeError::Refused(refused)))
        | Reply::Write { result: Err(ChangeError::Refused(refused)), .. } => Some(*refused),
        _ => None,
    }
}

pub(super) fn fate(reply: &Reply<Vec<u8>, Buf>) -> Fate {
    match (made(reply), refused(reply)) {
        (Some(_), _) => Fate::Done,
        (None, Some(Refused::Undecided(_))) => Fate::Unknown,
        _ => Fate::NotDone,
    }
}
