//! The receive buffers of a driver: one for each chunk that came, or piece that comes in parts.

use crate::event::{BufToken, ChunkRef, PieceBuffers};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Buffers that the link holds pieces of, each with how many.
#[derive(Default)]
pub(crate) struct Bufs {
    held: BTreeMap<u32, (Vec<u8>, u16)>,
    next: u32,
    /// The most that were held at a time.
    pub(crate) most: usize,
    /// There is no buffer for pieces in parts now.
    pub(crate) is_short: bool,
}

impl Bufs {
    /// A token for what comes next.
    pub(crate) fn next(&mut self) -> BufToken {
        self.next += 1;
        BufToken(self.next)
    }

    /// So many pieces of `bytes` are held.
    pub(crate) fn keep(&mut self, buf: BufToken, bytes: Vec<u8>, pieces: u16) {
        assert!(pieces > 0 && self.held.insert(buf.0, (bytes, pieces)).is_none());
        self.most = self.most.max(self.held.len());
    }

    /// A piece comes out.
    pub(crate) fn take_out(&mut self, chunk: &ChunkRef) -> Vec<u8> {
        let (bytes, _) = self.held.get(&chunk.buf.0).expect("a piece lies in a held buffer");
        let piece = bytes[chunk.start as usize..][..chunk.length as usize].to_vec();
        self.let_go(chunk.buf);
        piece
    }

    /// A piece is not held any more.
    pub(crate) fn let_go(&mut self, buf: BufToken) {
        let (_, pieces) = self.held.get_mut(&buf.0).expect("each piece comes out once");
        *pieces -= 1;
        if *pieces == 0 {
            self.held.remove(&buf.0);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

impl PieceBuffers for Bufs {
    fn take(&mut self, length: u32) -> Option<BufToken> {
        if self.is_short {
            return None;
        }
        let buf = self.next();
        self.keep(buf, vec![0xa5; length as usize], 1);
        Some(buf)
    }

    fn write(&mut self, buf: BufToken, at: u32, bytes: &[u8]) {
        let (held, pieces) = self.held.get_mut(&buf.0).expect("it was taken");
        assert_eq!(*pieces, 1);
        held[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn give_back(&mut self, buf: BufToken) {
        self.let_go(buf);
    }
}
