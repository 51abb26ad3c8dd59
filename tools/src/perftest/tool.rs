//! Which tool runs, and what differs between the two.

/// One of the perftest-style tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `tow_write_bw`: bandwidth.
    WriteBw,
    /// `tow_write_lat`: latency.
    WriteLat,
}

impl Tool {
    /// The name of its program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteBw => "tow_write_bw",
            Self::WriteLat => "tow_write_lat",
        }
    }

    /// Bytes of a message unless `-s` says otherwise, as in perftest.
    pub(crate) fn default_size(self) -> &'static str {
        match self {
            Self::WriteBw => "65536",
            Self::WriteLat => "2",
        }
    }

    /// Messages unless `-n` says otherwise, as in perftest.
    pub(crate) fn default_iters(self) -> &'static str {
        match self {
            Self::WriteBw => "5000",
            Self::WriteLat => "1000",
        }
    }
}
