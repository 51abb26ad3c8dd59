//! What is asked of the buffers of a call.

/// The buffers of a call do not fit. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BufferError {
    /// There are more or fewer than shards that were to be read.
    #[error("{given} buffers to read, where {expected} are wanted")]
    Sources {
        /// How many the call wants.
        expected: usize,
        /// How many there are.
        given: usize,
    },
    /// There are more or fewer than shards that were to be written.
    #[error("{given} buffers to write, where {expected} are wanted")]
    Outputs {
        /// How many the call wants.
        expected: usize,
        /// How many there are.
        given: usize,
    },
    /// They do not have one length.
    #[error("a buffer of {given} bytes beside one of {expected}")]
    Length {
        /// The length of the first one.
        expected: usize,
        /// That of the other one.
        given: usize,
    },
    /// There is no such source.
    #[error("source {source_at}, of {sources}")]
    Source {
        /// Which one was named.
        source_at: usize,
        /// How many there are.
        sources: usize,
    },
}

/// So many sources and outputs, all of one length, which is returned.
pub(crate) fn check(
    (sources, outputs): (usize, usize),
    read: &[&[u8]],
    written: &[&mut [u8]],
) -> Result<usize, BufferError> {
    if read.len() != sources {
        return Err(BufferError::Sources { expected: sources, given: read.len() });
    }
    if written.len() != outputs {
        return Err(BufferError::Outputs { expected: outputs, given: written.len() });
    }
    let mut lengths = read.iter().map(|one| one.len()).chain(written.iter().map(|one| one.len()));
    let expected = lengths.next().unwrap_or(0);
    match lengths.find(|&given| given != expected) {
        Some(given) => Err(BufferError::Length { expected, given }),
        None => Ok(expected),
    }
}

/// Two buffers of one length.
pub(crate) fn check_pair(one: &[u8], other: &[u8]) -> Result<(), BufferError> {
    if one.len() == other.len() {
        return Ok(());
    }
    Err(BufferError::Length { expected: one.len(), given: other.len() })
}
