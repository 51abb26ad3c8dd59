//! Copies to and from bytes that others change meanwhile, word by word.
//!
//! A plain copy that races with a write is undefined behaviour, whatever is done with the bytes.
//! Here every access is atomic and of a whole aligned word of eight bytes, so that none races, and
//! words that a peer changes by atomics are never torn. A range that begins or ends within a word
//! takes part of it; when it is written, the rest of the word keeps what it has.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// What is read and written at a time.
pub(crate) const WORD_BYTES: usize = 8;

/// The word that `at` lies in, and the place of `at` in that word.
///
/// # Safety
/// The whole word is memory that lives for `'a`, and is reached by atomics alone meanwhile.
unsafe fn word_of<'a>(at: NonNull<u8>) -> (&'a AtomicU64, usize) {
    let within = at.addr().get() % WORD_BYTES;
    // SAFETY: the word is there and aligned; the caller answers for how others reach it.
    let word = unsafe { AtomicU64::from_ptr(at.sub(within).cast().as_ptr()) };
    (word, within)
}

/// Reads `out.len()` bytes from `from` on, each word once.
///
/// # Safety
/// The words that hold the range live meanwhile and are reached by atomics alone.
pub(crate) unsafe fn load(from: NonNull<u8>, out: &mut [u8]) {
    let (mut from, mut out) = (from, out);
    while !out.is_empty() {
        // SAFETY: a part of the range.
        let (word, within) = unsafe { word_of(from) };
        let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        let len = out.len().min(WORD_BYTES - within);
        let (here, rest) = out.split_at_mut(len);
        here.copy_from_slice(&bytes[within..within + len]);
        // SAFETY: within the range, or just behind it.
        (from, out) = (unsafe { from.add(len) }, rest);
        if len == WORD_BYTES {
            // From here on whole words: a loop without the cases of the ends.
            let (words, rest) = out.as_chunks_mut::<WORD_BYTES>();
            for place in words {
                // SAFETY: aligned now, and a part of the range.
                let (word, _) = unsafe { word_of(from) };
                *place = word.load(Ordering::Relaxed).to_ne_bytes();
                // SAFETY: as above.
                from = unsafe { from.add(WORD_BYTES) };
            }
            out = rest;
        }
    }
    // What was written before the last word that is seen here is seen by whoever goes on.
    fence(Ordering::Acquire);
}

/// Writes `bytes` from `to` on, each word once.
///
/// # Safety
/// As for [`load`].
pub(crate) unsafe fn store(to: NonNull<u8>, bytes: &[u8]) {
    let (mut to, mut bytes) = (to, bytes);
    fence(Ordering::Release);
    while !bytes.is_empty() {
        // SAFETY: a part of the range.
        let (word, within) = unsafe { word_of(to) };
        let len = bytes.len().min(WORD_BYTES - within);
        let (here, rest) = bytes.split_at(len);
        let put = |was: u64| {
            let mut now = was.to_ne_bytes();
            now[within..within + len].copy_from_slice(here);
            u64::from_ne_bytes(now)
        };
        if len == WORD_BYTES {
            word.store(put(0), Ordering::Relaxed);
        } else {
            let mut was = word.load(Ordering::Relaxed);
            let order = Ordering::Relaxed;
            while let Err(now) = word.compare_exchange_weak(was, put(was), order, order) {
                was = now;
            }
        }
        // SAFETY: within the range, or just behind it.
        (to, bytes) = (unsafe { to.add(len) }, rest);
        if len == WORD_BYTES {
            let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
            for value in words {
                // SAFETY: aligned now, and a part of the range.
                let (word, _) = unsafe { word_of(to) };
                word.store(u64::from_ne_bytes(*value), Ordering::Relaxed);
                // SAFETY: as above.
                to = unsafe { to.add(WORD_BYTES) };
            }
            bytes = rest;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use towpath_base::Prng;

    /// Words, and a pointer to their bytes that may change them.
    fn words() -> (Vec<AtomicU64>, NonNull<u8>) {
        let words: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(u64::MAX)).collect();
        let start = NonNull::new(words.as_ptr().cast_mut().cast()).expect("a vector of some words");
        (words, start)
    }

    #[test]
    fn what_is_written_is_read_and_its_neighbours_keep_what_they_have() {
        let mut prng = Prng::new(1);
        let rounds = if cfg!(miri) { 50 } else { 5_000 };
        for _ in 0..rounds {
            let (words, start) = words();
            let offset = prng.below(128) as usize;
            let len = prng.below(129 - offset as u64) as usize;
            let mut bytes = vec![0; len];
            prng.fill(&mut bytes);
            // SAFETY: within the words, which nobody else has.
            let at = unsafe { start.add(offset) };
            // SAFETY: as above.
            unsafe { store(at, &bytes) };
            let mut back = vec![0; len];
            // SAFETY: as above.
            unsafe { load(at, &mut back) };
            assert_eq!(back, bytes, "{offset} {len}");
            let all: Vec<u8> =
                words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
            assert!(all[..offset].iter().chain(&all[offset + len..]).all(|&byte| byte == 0xff));
        }
    }

    #[test]
    fn parts_of_a_word_that_threads_write_at_once_do_not_undo_each_other() {
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        let word = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for half in [0, 4] {
                let word = &word;
                scope.spawn(move || {
                    let start = NonNull::from(word).cast::<u8>();
                    for round in 0..rounds {
                        // SAFETY: a half of the word, which all reach by atomics.
                        unsafe { store(start.add(half), &u32::to_ne_bytes(round)) };
                    }
                });
            }
        });
        let bytes = word.into_inner().to_ne_bytes();
        for half in bytes.as_chunks::<4>().0 {
            assert_eq!(u32::from_ne_bytes(*half), rounds - 1);
        }
    }
}
