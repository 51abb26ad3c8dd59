//! What lies where in the server's memory.
//!
//! A page of words that all clients share, then an area for each client, which it alone writes:
//! a word, and a block of many packets whose words each say what they are of.

use std::ops::Range;
use towpath_memory::MemoryError;
use towpath_transport::SharedMemory;

/// Bytes of a word.
pub(super) const WORD_BYTES: usize = 8;

/// The counter that all clients add one to.
pub(super) const COUNTER: usize = 0;

/// The word that all clients swap.
pub(super) const SWAPPED: usize = 64;

/// Words in which each client has a field of its own, and adds one to it.
const FIELDS: usize = 128;

/// Bits of a field.
pub(super) const FIELD_BITS: u32 = 16;

/// Fields of a word.
pub(super) const FIELDS_PER_WORD: usize = (u64::BITS / FIELD_BITS) as usize;

/// Words with fields.
pub(super) const FIELD_WORDS: usize = super::CLIENTS_MAX / FIELDS_PER_WORD;

/// Additions that a field has room for.
pub(super) const FIELD_MAX: u64 = (1 << FIELD_BITS) - 1;

/// What all clients reach with all rights.
pub(super) const SHARED_BYTES: usize = 1024;

/// What one client writes: several packets, and not as long as anything else that is granted.
pub(super) const AREA_BYTES: usize = 4096;

/// Where in an area its block begins; its word is at the beginning.
pub(super) const BLOCK: usize = 64;

/// Bytes of a block.
pub(super) const BLOCK_BYTES: usize = AREA_BYTES - BLOCK;

/// What lies where nobody writes.
const UNTOUCHED: u8 = 0xa5;

/// Bits of a word of a block that say where in the block it is.
const PLACE_BITS: u32 = 16;

/// The field of a client: its word, and how far it is shifted.
pub(super) fn field(client: usize) -> (usize, u32) {
    let (word, nth) = (client / FIELDS_PER_WORD, client % FIELDS_PER_WORD);
    (FIELDS + word * 64, nth as u32 * FIELD_BITS)
}

/// What a word holds in the field at `shift`.
pub(super) fn in_field(word: u64, shift: u32) -> u64 {
    word >> shift & FIELD_MAX
}

/// The area of a client.
pub(super) fn area(client: usize) -> Range<usize> {
    let start = SHARED_BYTES + client * AREA_BYTES;
    start..start + AREA_BYTES
}

/// The block that a client writes the `number`th time.
pub(super) fn block(number: u64) -> Vec<u8> {
    let word = |place: usize| number << PLACE_BITS | place as u64;
    (0..BLOCK_BYTES / WORD_BYTES).flat_map(|place| word(place).to_ne_bytes()).collect()
}

/// The writes that the words of a block are of, or a word that is of no write at its place.
pub(super) fn numbers(block: &[u8]) -> impl Iterator<Item = Result<u64, (usize, u64)>> {
    words(block).enumerate().map(|(place, word)| {
        let is_whole = word & ((1 << PLACE_BITS) - 1) == place as u64;
        if is_whole { Ok(word >> PLACE_BITS) } else { Err((place, word)) }
    })
}

/// The words of some bytes.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (words, _) = bytes.as_chunks::<WORD_BYTES>();
    words.iter().map(|word| u64::from_ne_bytes(*word))
}

/// The memory for so many clients, as it is before anybody has written.
pub(super) fn fresh(clients: usize) -> Result<SharedMemory, MemoryError> {
    let memory = SharedMemory::new(SHARED_BYTES + clients * AREA_BYTES)?;
    memory.write(0, &vec![UNTOUCHED; memory.byte_len()])?;
    let words = (0..FIELD_WORDS).map(|word| field(word * FIELDS_PER_WORD).0);
    let words = words.chain([COUNTER, SWAPPED]).chain((0..clients).map(|of| area(of).start));
    words.into_iter().try_for_each(|at| memory.write(at, &[0; WORD_BYTES]))?;
    (0..clients).try_for_each(|of| memory.write(area(of).start + BLOCK, &block(0)))?;
    Ok(memory)
}

/// The first byte that nobody may write and that is not as it was.
pub(super) fn first_touched(memory: &SharedMemory, clients: usize) -> Option<usize> {
    let mut bytes = vec![0; memory.byte_len()];
    memory.read(0, &mut bytes).ok()?;
    let is_word = |at: usize| at % 64 < WORD_BYTES && at < FIELDS + FIELD_WORDS * 64;
    let is_written = |at: usize| match at.checked_sub(SHARED_BYTES) {
        None => is_word(at),
        Some(at) if at / AREA_BYTES < clients => !(WORD_BYTES..BLOCK).contains(&(at % AREA_BYTES)),
        Some(_) => false,
    };
    (0..bytes.len()).find(|&at| !is_written(at) && bytes[at] != UNTOUCHED)
}
