//! What DUMP lists, as bytes: how much there is, then some entries.
//!
//! ```text
//! 0 keys (u64)  8 bytes in use (u64)  16 entries: key length (u16), value length (u32), both
//! ```

use super::{WireError, bytes_at};

/// Bytes in front of the entries.
const HEADER_BYTES: usize = 16;
/// Bytes in front of an entry's key.
const ENTRY_BYTES: usize = 6;

/// A listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing<'a> {
    /// Keys in the store.
    pub keys: u64,
    /// Bytes in use.
    pub bytes: u64,
    /// Entries, as many as there was room for.
    pub entries: &'a [u8],
}

/// The entries of a listing, one by one.
#[derive(Clone, Copy, Debug)]
pub struct ListingEntries<'a>(&'a [u8]);

impl<'a> Listing<'a> {
    /// Reads a listing.
    ///
    /// # Errors
    /// [`WireError::Short`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let keys = u64::from_le_bytes(bytes_at(bytes, 0)?);
        let used = u64::from_le_bytes(bytes_at(bytes, 8)?);
        Ok(Self { keys, bytes: used, entries: &bytes[HEADER_BYTES..] })
    }

    /// Its entries.
    #[must_use]
    pub fn entries(&self) -> ListingEntries<'a> {
        ListingEntries(self.entries)
    }

    /// Appends the head of a listing.
    pub(crate) fn begin(keys: u64, bytes: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&keys.to_le_bytes());
        out.extend_from_slice(&bytes.to_le_bytes());
    }

    /// Appends an entry to a listing, unless that would be longer than `len_max`.
    pub(crate) fn push(key: &[u8], value: &[u8], len_max: usize, out: &mut Vec<u8>) -> bool {
        let fits = out.len() + ENTRY_BYTES + key.len() + value.len() <= len_max;
        let lens = (u16::try_from(key.len()), u32::try_from(value.len()));
        let (true, (Ok(key_len), Ok(value_len))) = (fits, lens) else { return false };
        out.extend_from_slice(&key_len.to_le_bytes());
        out.extend_from_slice(&value_len.to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value);
        true
    }
}

impl<'a> Iterator for ListingEntries<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = std::mem::take(&mut self.0);
        let parsed = |bytes: &'a [u8]| {
            let key_len = usize::from(u16::from_le_bytes(bytes_at(bytes, 0)?));
            let value_len = usize::try_from(u32::from_le_bytes(bytes_at(bytes, 2)?));
            let at = ENTRY_BYTES + key_len;
            let end = value_len.ok().and_then(|len| at.checked_add(len)).unwrap_or(usize::MAX);
            let value = bytes.get(at..end).ok_or(WireError::Short(end))?;
            Ok(((&bytes[ENTRY_BYTES..at], value), &bytes[end..]))
        };
        if bytes.is_empty() {
            return None;
        }
        Some(parsed(bytes).map(|(entry, rest)| {
            self.0 = rest;
            entry
        }))
    }
}
