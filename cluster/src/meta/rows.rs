//! What an engine stores: rows of bytes in one order, by kind.

use std::collections::BTreeMap;

use super::{Change, Entry, LeaseId, MetaError, Revision};

/// What stores rows. All changes between two transactions of an engine last together, or none does.
pub(super) trait Rows {
    /// The row of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError>;

    /// A row is this from now on.
    fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), MetaError>;

    /// There is no such row from now on.
    fn delete(&mut self, key: &[u8]) -> Result<(), MetaError>;

    /// Rows from a key on and before another, in order, until `each` says that it is enough.
    fn scan(&self, from: &[u8], before: &[u8], each: &mut Each<'_>) -> Result<(), MetaError>;
}

/// What a scan shows each row's key, and the row.
pub(super) type Each<'e> = dyn FnMut(&[u8], &[u8]) -> Result<Go, MetaError> + 'e;

/// Whether a scan goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Go {
    On,
    Enough,
}

/// Rows in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryRows(BTreeMap<Vec<u8>, Vec<u8>>);

#[cfg(test)]
impl MemoryRows {
    /// The keys of all rows.
    pub(super) fn keys(&self) -> Vec<Vec<u8>> {
        self.0.keys().cloned().collect()
    }
}

impl Rows for MemoryRows {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        Ok(self.0.get(key).cloned())
    }

    fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), MetaError> {
        self.0.insert(key.to_vec(), row.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), MetaError> {
        self.0.remove(key);
        Ok(())
    }

    fn scan(&self, from: &[u8], before: &[u8], each: &mut Each<'_>) -> Result<(), MetaError> {
        if from >= before {
            return Ok(());
        }
        for (key, row) in self
            .0
            .range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Excluded(before)))
        {
            if each(key, row)? == Go::Enough {
                break;
            }
        }
        Ok(())
    }
}

/// Kinds of rows: the first byte of their keys.
const STATE: u8 = b's';
const ENTRY: u8 = b'e';
const HISTORY: u8 = b'h';
const LEASE: u8 = b'l';
const LEASED: u8 = b'm';

/// The row with what an engine counts.
pub(super) fn state_key() -> Vec<u8> {
    vec![STATE]
}

/// The row of an entry; of an empty key that before all of them.
pub(super) fn entry_key(key: &str) -> Vec<u8> {
    [&[ENTRY], key.as_bytes()].concat()
}

/// The row before which all entries lie whose keys begin with a prefix.
///
/// No text has a byte above 0xf4.
pub(super) fn after_prefix(prefix: &str) -> Vec<u8> {
    [&[ENTRY], prefix.as_bytes(), &[0xff]].concat()
}

/// The row just behind that of an entry.
pub(super) fn behind(key: &str) -> Vec<u8> {
    [&[ENTRY], key.as_bytes(), &[0]].concat()
}

/// The row with what one revision changed.
pub(super) fn history_key(revision: Revision) -> Vec<u8> {
    [&[HISTORY][..], &revision.0.to_be_bytes()].concat()
}

/// The row of a lease.
pub(super) fn lease_key(lease: LeaseId) -> Vec<u8> {
    [&[LEASE][..], &lease.0.to_be_bytes()].concat()
}

/// The rows of all leases lie from the first on and before the second.
pub(super) fn leases() -> (Vec<u8>, Vec<u8>) {
    (vec![LEASE], vec![LEASE + 1])
}

/// The row that says that an entry ends with a lease.
pub(super) fn leased_key(lease: LeaseId, key: &str) -> Vec<u8> {
    [&[LEASED][..], &lease.0.to_be_bytes(), key.as_bytes()].concat()
}

/// The rows of all entries that end with a lease lie from the first on and before the second.
pub(super) fn leased(lease: LeaseId) -> (Vec<u8>, Vec<u8>) {
    (leased_key(lease, ""), [&leased_key(lease, "")[..], &[0xff]].concat())
}

/// The key of an entry of which a row says that it ends with a lease.
pub(super) fn leased_of(row: &[u8]) -> Result<String, MetaError> {
    text(row.get(9..).unwrap_or_default())
}

/// The lease of a row.
pub(super) fn lease_of(row: &[u8]) -> Result<LeaseId, MetaError> {
    let id = row.get(1..).and_then(|id| id.try_into().ok());
    id.map(|id| LeaseId(u64::from_be_bytes(id))).ok_or_else(short)
}

/// An entry as a row; its key is the row's.
pub(super) fn entry_row(entry: &Entry) -> Vec<u8> {
    let lease = entry.lease.map_or(0, |lease| lease.0);
    let head = [entry.created.0, entry.changed.0, lease].map(u64::to_le_bytes);
    [head.as_flattened(), &entry.value].concat()
}

/// The entry of a row.
pub(super) fn entry_of(key: &[u8], mut row: &[u8]) -> Result<Entry, MetaError> {
    let key = text(key.get(1..).unwrap_or_default())?;
    let created = Revision(number(&mut row)?);
    let changed = Revision(number(&mut row)?);
    let lease = Some(number(&mut row)?).filter(|id| *id != 0).map(LeaseId);
    Ok(Entry { key, value: row.to_vec(), created, changed, lease })
}

/// Numbers as a row.
pub(super) fn numbers_row(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The numbers of a row.
pub(super) fn numbers_of<const N: usize>(mut row: &[u8]) -> Result<[u64; N], MetaError> {
    let mut numbers = [0; N];
    for each in &mut numbers {
        *each = number(&mut row)?;
    }
    nothing_left(row).map(|()| numbers)
}

/// The changes of a revision as a row.
pub(super) fn history_row(changes: &[Change]) -> Vec<u8> {
    let mut row = Vec::new();
    let mut bytes = |bytes: &[u8]| {
        row.extend((bytes.len() as u64).to_le_bytes());
        row.extend(bytes);
    };
    for change in changes {
        bytes(change.key().as_bytes());
        match change {
            Change::Put { value, lease, .. } => {
                bytes(&lease.map_or(0, |lease| lease.0).to_le_bytes());
                bytes(value);
            }
            Change::Delete { .. } => bytes(&[]),
        }
    }
    row
}

/// The changes of a row.
pub(super) fn history_of(mut row: &[u8]) -> Result<Vec<Change>, MetaError> {
    let mut changes = Vec::new();
    while !row.is_empty() {
        let key = text(bytes(&mut row)?)?;
        let lease = bytes(&mut row)?;
        if lease.is_empty() {
            changes.push(Change::Delete { key });
            continue;
        }
        let [lease] = numbers_of(lease)?;
        let lease = Some(lease).filter(|id| *id != 0).map(LeaseId);
        changes.push(Change::Put { key, value: bytes(&mut row)?.to_vec(), lease });
    }
    Ok(changes)
}

fn number(row: &mut &[u8]) -> Result<u64, MetaError> {
    let Some((number, left)) = row.split_first_chunk() else { return Err(short()) };
    *row = left;
    Ok(u64::from_le_bytes(*number))
}

fn bytes<'a>(row: &mut &'a [u8]) -> Result<&'a [u8], MetaError> {
    let long = number(row)?;
    let found = usize::try_from(long).ok().and_then(|long| row.split_at_checked(long));
    let Some((bytes, left)) = found else { return Err(short()) };
    *row = left;
    Ok(bytes)
}

fn text(bytes: &[u8]) -> Result<String, MetaError> {
    let text = String::from_utf8(bytes.to_vec());
    text.map_err(|_| MetaError::Damaged("a key is no text".into()))
}

fn nothing_left(row: &[u8]) -> Result<(), MetaError> {
    match row.is_empty() {
        true => Ok(()),
        false => Err(MetaError::Damaged("a row is too long".into())),
    }
}

fn short() -> MetaError {
    MetaError::Damaged("a row is too short".into())
}
