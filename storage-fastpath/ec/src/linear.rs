//! A matrix over GF(2^8) times shards: the one thing that codes, decoders and sketches do.

use crate::buffers::{self, BufferError};
use alloc::vec::Vec;
use rusty_erasure::kernel::Kernels;
use towpath_base::passes::{Pass, note};

/// Bytes of a source that are added to all outputs before the next ones: source and outputs of a
/// block stay in the first-level cache, so that memory is read once whatever the number of outputs.
const BLOCK_BYTES: usize = 4096;

/// A matrix of coefficients, prepared for the instructions that this processor has.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    kernels: Kernels,
    rows: usize,
    columns: usize,
    /// Row by row.
    coefficients: Vec<u8>,
    /// A table for each coefficient, row by row.
    by_row: Vec<u8>,
    /// The same column by column: what one source gives to all outputs is one piece.
    by_column: Vec<u8>,
}

impl Linear {
    /// `coefficients` are `rows` times `columns`, row by row.
    pub(crate) fn new(
        kernels: Kernels,
        (rows, columns): (usize, usize),
        coefficients: Vec<u8>,
    ) -> Self {
        debug_assert_eq!(coefficients.len(), rows * columns);
        let column = |column| coefficients.iter().copied().skip(column).step_by(columns);
        let transposed: Vec<u8> = (0..columns).flat_map(column).collect();
        let (by_row, by_column) = ((kernels.init)(&coefficients), (kernels.init)(&transposed));
        Self { kernels, rows, columns, coefficients, by_row, by_column }
    }

    pub(crate) fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// The coefficients of a row; none of one that there is not.
    pub(crate) fn row(&self, row: usize) -> &[u8] {
        self.coefficients.chunks_exact(self.columns).nth(row).unwrap_or_default()
    }

    pub(crate) fn coefficients(&self) -> &[u8] {
        &self.coefficients
    }

    /// Each output becomes the sum of the sources, each times the coefficient of its column.
    pub(crate) fn apply(
        &self,
        sources: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), BufferError> {
        let bytes = buffers::check((self.columns, self.rows), sources, outputs)?;
        // Without outputs the kernels would miss a length.
        if !outputs.is_empty() {
            note(Pass::Code, sources.len() * bytes);
            (self.kernels.encode)(&self.by_row, sources, outputs);
        }
        Ok(())
    }

    /// Each output becomes one source times its coefficient.
    pub(crate) fn apply_part(
        &self,
        source_at: usize,
        source: &[u8],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), BufferError> {
        let tables = self.part(source_at, source, outputs)?;
        if !outputs.is_empty() {
            note(Pass::Code, source.len());
            (self.kernels.encode)(tables, &[source], outputs);
        }
        Ok(())
    }

    /// One source times its coefficient is added to each output.
    pub(crate) fn add_part(
        &self,
        source_at: usize,
        source: &[u8],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), BufferError> {
        let tables = self.part(source_at, source, outputs)?;
        note(Pass::Code, source.len());
        // Not the kernel for all rows at once, which allocates on processors without GFNI.
        for (block, from) in source.chunks(BLOCK_BYTES).zip((0..).step_by(BLOCK_BYTES)) {
            let tables = tables.chunks_exact(self.kernels.table_bytes);
            for (output, table) in outputs.iter_mut().zip(tables) {
                (self.kernels.mad)(table, block, &mut output[from..from + block.len()]);
            }
        }
        Ok(())
    }

    /// The tables of a column, for buffers that fit.
    fn part(
        &self,
        source_at: usize,
        source: &[u8],
        outputs: &[&mut [u8]],
    ) -> Result<&[u8], BufferError> {
        if source_at >= self.columns {
            return Err(BufferError::Source { source_at, sources: self.columns });
        }
        buffers::check((1, self.rows), &[source], outputs)?;
        let column_bytes = self.rows * self.kernels.table_bytes;
        Ok(&self.by_column[source_at * column_bytes..][..column_bytes])
    }
}
