//! The ways that a write can go, and what it goes to, as words.

#[cfg(feature = "baseline")]
use serde::{Deserialize, Serialize};

const WAYS: [&str; 4] = ["ours", "prost", "tonic", "apart"];
const STORES: [&str; 2] = ["null", "chunk"];

/// Whether a word names a way that can be asked for.
pub(super) fn is_way(word: &str) -> Result<(), &'static str> {
    let can = &WAYS[..3];
    can.contains(&word).then_some(()).ok_or("ours, prost or tonic")
}

/// Whether a word names a store.
pub(super) fn is_store(word: &str) -> Result<(), &'static str> {
    STORES.contains(&word).then_some(()).ok_or("null or chunk")
}

/// A way from a client to a store.
#[cfg(feature = "baseline")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Way {
    /// The fast path.
    Ours,
    /// Protobuf over our rpc.
    Prost,
    /// gRPC over kernel TCP.
    Tonic,
    /// The layout of the fast path, its checksums in passes of their own.
    Apart,
}

/// What takes writes.
#[cfg(feature = "baseline")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum StoreKind {
    /// One that keeps nothing.
    Null,
    /// That of the chunk server.
    Chunk,
}

#[cfg(feature = "baseline")]
impl Way {
    const ALL: [Self; 4] = [Self::Ours, Self::Prost, Self::Tonic, Self::Apart];

    /// Its word.
    pub(super) fn word(self) -> &'static str {
        WAYS[self as usize]
    }

    pub(super) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.word() == word)
    }
}

#[cfg(feature = "baseline")]
impl StoreKind {
    const ALL: [Self; 2] = [Self::Null, Self::Chunk];

    /// Its word.
    pub(super) fn word(self) -> &'static str {
        STORES[self as usize]
    }

    pub(super) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|store| store.word() == word)
    }
}
