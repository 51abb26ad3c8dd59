//! What a capability allows, for people and as JSON.

use std::fmt;

use serde::Serialize;
use towpath_fastpath::cap::Capability;

/// What is shown of a capability. Its secret is not.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CapabilityReport {
    serial: u64,
    key: u32,
    rights: String,
    chunks: String,
    scope_name: String,
    scope_bits: u8,
    offset: u64,
    /// None: all that follow.
    bytes: Option<u64>,
    expires_ms: u64,
    /// None: it has expired.
    seconds_left: Option<u64>,
    tenant_number: u32,
    layout: String,
}

impl CapabilityReport {
    pub(super) fn of(capability: &Capability, now_ms: u64) -> Self {
        let &Capability { key, rights, scope, offset, byte_len, expires_ms, .. } = capability;
        Self {
            serial: capability.serial,
            key,
            rights: rights.to_string(),
            chunks: scope.to_string(),
            scope_name: format!("{:032x}", scope.name()),
            scope_bits: scope.bits(),
            offset,
            bytes: Some(byte_len).filter(|byte_len| *byte_len != u64::MAX),
            expires_ms,
            seconds_left: expires_ms.checked_sub(now_ms).map(|left| left / 1_000),
            tenant_number: capability.tenant,
            layout: format!("{:032x}", capability.layout),
        }
    }
}

impl fmt::Display for CapabilityReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "serial    {}, made with key {}", self.serial, self.key)?;
        writeln!(f, "rights    {}", self.rights)?;
        writeln!(f, "chunks    {}", self.chunks)?;
        match self.bytes {
            None if self.offset == 0 => writeln!(f, "bytes     all")?,
            None => writeln!(f, "bytes     from {} on", self.offset)?,
            Some(bytes) => writeln!(f, "bytes     {bytes} from {} on", self.offset)?,
        }
        match self.seconds_left {
            Some(left) => writeln!(f, "expires   in {left} s")?,
            None => writeln!(f, "expires   it has expired")?,
        }
        match self.tenant_number {
            0 => writeln!(f, "tenant    any")?,
            number => writeln!(f, "tenant    the one of number {number}")?,
        }
        match self.layout.trim_start_matches('0') {
            "" => writeln!(f, "layout    any"),
            _ => writeln!(f, "layout    {}", self.layout),
        }
    }
}
