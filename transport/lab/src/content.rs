//! The bytes of messages, and fingerprints of what arrived.
//!
//! Bytes are a keyed counter: any piece of a message is known from its key and offset, and no two
//! messages, nor two places of one, are alike. So bytes of another message, life or place show.

/// Odd, with well-mixed bits (2^64 divided by the golden ratio).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Which message of a run it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageKey {
    /// Of the run.
    pub seed: u64,
    /// Of the link: each life of a link counts one up.
    pub life: u32,
    /// The host that sends it.
    pub from: u8,
    /// Its channel.
    pub channel: u32,
    /// Its number within life, host and channel.
    pub number: u64,
}

/// The bytes of one message.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    key: u64,
}

impl Content {
    /// Those of the message `key`.
    #[must_use]
    pub fn new(key: MessageKey) -> Self {
        let place = u64::from(key.life) << 40 | u64::from(key.from) << 32 | u64::from(key.channel);
        let mixed = [key.seed, place, key.number].into_iter().fold(GOLDEN, |sum, word| {
            let sum = (sum.rotate_left(29) ^ word).wrapping_mul(GOLDEN);
            sum ^ (sum >> 31)
        });
        Self { key: mixed }
    }

    fn word(self, index: u64) -> [u8; 8] {
        let x = self.key.wrapping_add(index.wrapping_mul(GOLDEN));
        let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (x ^ (x >> 29)).to_le_bytes()
    }

    /// Writes the bytes from `offset` on to `out`.
    pub fn fill(self, offset: u64, out: &mut [u8]) {
        let (mut index, skip) = (offset / 8, (offset % 8) as usize);
        let head = if skip == 0 { 0 } else { (8 - skip).min(out.len()) };
        let (first, rest) = out.split_at_mut(head);
        if head > 0 {
            first.copy_from_slice(&self.word(index)[skip..skip + head]);
            index += 1;
        }
        let (words, tail) = rest.as_chunks_mut::<8>();
        for (word, index) in words.iter_mut().zip(index..) {
            *word = self.word(index);
        }
        tail.copy_from_slice(&self.word(index + words.len() as u64)[..tail.len()]);
    }
}

/// At how many places two pieces of memory of one length differ; every byte that only one has
/// counts too.
#[must_use]
pub fn differing(a: &[u8], b: &[u8]) -> u64 {
    if a == b {
        return 0;
    }
    let places = a.iter().zip(b).filter(|(a, b)| a != b).count();
    (places + a.len().abs_diff(b.len())) as u64
}

/// A hash over bytes that come in pieces; how they are cut does not matter. It has nothing in
/// common with the CRCs of the protocol.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprint {
    hash: u64,
    /// Bytes that do not make a word yet.
    rest: [u8; 8],
    len: u64,
}

impl Default for Fingerprint {
    fn default() -> Self {
        Self::new()
    }
}

impl Fingerprint {
    /// Of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { hash: GOLDEN, rest: [0; 8], len: 0 }
    }

    /// Of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> u64 {
        let mut whole = Self::new();
        whole.update(bytes);
        whole.value()
    }

    fn word(&mut self, word: u64) {
        let mixed = (self.hash.rotate_left(23) ^ word).wrapping_mul(GOLDEN);
        self.hash = mixed ^ (mixed >> 32);
    }

    /// Takes the next bytes in.
    pub fn update(&mut self, mut bytes: &[u8]) {
        let held = (self.len % 8) as usize;
        self.len += bytes.len() as u64;
        if held > 0 {
            let taken = (8 - held).min(bytes.len());
            self.rest[held..held + taken].copy_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if held + taken < 8 {
                return;
            }
            self.word(u64::from_le_bytes(self.rest));
        }
        let (words, tail) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        self.rest[..tail.len()].copy_from_slice(tail);
    }

    /// Of everything so far.
    #[must_use]
    pub fn value(mut self) -> u64 {
        let held = (self.len % 8) as usize;
        self.rest[held..].fill(0);
        self.word(u64::from_le_bytes(self.rest));
        self.word(self.len);
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(number: u64) -> Content {
        Content::new(MessageKey { seed: 1, life: 0, from: 0, channel: 0, number })
    }

    #[test]
    fn any_piece_of_a_message_is_the_same_bytes_as_in_the_whole() {
        let mut whole = [0; 100];
        content(3).fill(0, &mut whole);
        for from in 0..40 {
            for to in from..100 {
                let mut piece = vec![0; to - from];
                content(3).fill(from as u64, &mut piece);
                assert_eq!(piece, whole[from..to], "{from}..{to}");
            }
        }
    }

    #[test]
    fn a_fingerprint_sees_every_byte_and_length_and_no_cuts() {
        let mut bytes = [0; 67];
        content(4).fill(0, &mut bytes);
        let whole = Fingerprint::of(&bytes);
        for cut in 0..bytes.len() {
            let mut cut_up = Fingerprint::new();
            cut_up.update(&bytes[..cut]);
            cut_up.update(&bytes[cut..]);
            assert_eq!(cut_up.value(), whole);
            let mut other = bytes;
            other[cut] ^= 1;
            assert_ne!(Fingerprint::of(&other), whole);
            assert_ne!(Fingerprint::of(&bytes[..cut]), whole);
        }
    }
}
