//! A walk over data that lies in several pieces.

/// Walks over the bytes of `segments` from the first to the last.
pub(crate) struct Gather<'a, S> {
    segments: &'a [S],
    offset: usize,
}

impl<'a, S: AsRef<[u8]>> Gather<'a, S> {
    pub(crate) fn new(segments: &'a [S]) -> Self {
        Self { segments, offset: 0 }
    }

    /// The next bytes that lie together, at most `len_max` of them; empty only at the end.
    pub(crate) fn piece(&mut self, len_max: usize) -> &'a [u8] {
        while let Some((first, rest)) = self.segments.split_first() {
            let left = &first.as_ref()[self.offset..];
            if left.is_empty() {
                self.segments = rest;
                self.offset = 0;
                continue;
            }
            let piece = &left[..left.len().min(len_max)];
            self.offset += piece.len();
            return piece;
        }
        &[]
    }

    /// The next `out.len()` bytes, copied.
    pub(crate) fn copy(&mut self, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let piece = self.piece(out.len() - done);
            debug_assert!(!piece.is_empty(), "the length was counted before");
            out[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        }
    }

    /// The next `len` bytes: in place where they lie together, else copied to `scratch`.
    pub(crate) fn together<'s>(&mut self, len: usize, scratch: &'s mut [u8]) -> &'s [u8]
    where
        'a: 's,
    {
        let piece = self.piece(len);
        if piece.len() == len {
            return piece;
        }
        scratch[..piece.len()].copy_from_slice(piece);
        self.copy(&mut scratch[piece.len()..len]);
        &scratch[..len]
    }

    /// Passes over `len` bytes.
    pub(crate) fn skip(&mut self, mut len: usize) {
        while len > 0 {
            match self.piece(len).len() {
                0 => return,
                passed => len -= passed,
            }
        }
    }
}
