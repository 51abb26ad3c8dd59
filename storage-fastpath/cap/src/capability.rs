//! What may be done, and its layout.

use bytemuck::{Pod, Zeroable};
use core::fmt;
use core::mem::size_of;
use core::ops::BitOr;

/// Bytes of a capability as it is sent.
pub(crate) const CAPABILITY_BYTES: usize = 80;

const VERSION: u8 = 1;

/// What may be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Read bytes, and ask for the state of a chunk.
    pub const READ: Self = Self(1);
    /// Write, trim, zero, truncate, and say that a chunk is whole.
    pub const WRITE: Self = Self(2);
    /// Make a chunk.
    pub const CREATE: Self = Self(4);
    /// Take a chunk away.
    pub const DELETE: Self = Self(8);
    /// Read the server's memory by READs. That memory holds all resident chunks.
    pub const ONE_SIDED: Self = Self(16);
    /// Revoke capabilities.
    pub const ADMIN: Self = Self(32);
    /// Everything with chunks, but not one-sided: that is with all of them.
    pub const CHUNKS: Self = Self(15);
    /// Everything.
    pub const ALL: Self = Self(63);

    const NAMED: [(&'static str, Self); 6] = [
        ("read", Self::READ),
        ("write", Self::WRITE),
        ("create", Self::CREATE),
        ("delete", Self::DELETE),
        ("one-sided", Self::ONE_SIDED),
        ("admin", Self::ADMIN),
    ];

    /// Whether all of `wanted` are among these.
    #[must_use]
    pub fn contain(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Whether any of `wanted` is among these.
    #[must_use]
    pub fn touch(self, wanted: Self) -> bool {
        self.0 & wanted.0 != 0
    }

    /// Those that `text` names, with commas between them: `read,write`; `all` is
    /// [`CHUNKS`](Self::CHUNKS).
    ///
    /// # Errors
    /// The word that names none.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::CHUNKS);
        }
        text.split(',').try_fold(Self::NONE, |rights, word| {
            let named = Self::NAMED.iter().find(|(name, _)| *name == word.trim());
            named.map(|(_, right)| rights | *right).ok_or_else(|| word.trim().to_owned())
        })
    }
}

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMED.iter().filter(|(_, right)| self.contain(*right));
        let names: Vec<&str> = names.map(|(name, _)| *name).collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(","))
    }
}

/// Which chunks: those whose names begin with certain bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    name: u128,
    bits: u8,
}

impl Scope {
    /// All chunks.
    pub const ALL: Self = Self { name: 0, bits: 0 };

    /// One chunk.
    #[must_use]
    pub fn chunk(name: u128) -> Self {
        Self { name, bits: 128 }
    }

    /// The chunks whose names have the same `bits` highest bits as `name`; of more than 128 bits
    /// all are compared.
    #[must_use]
    pub fn prefix(name: u128, bits: u8) -> Self {
        let bits = bits.min(128);
        Self { name: name & Self::mask(bits), bits }
    }

    /// The bits that are compared.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// The name whose first bits are compared; the others are zero.
    #[must_use]
    pub fn name(self) -> u128 {
        self.name
    }

    /// Whether the chunk is one of them.
    #[must_use]
    pub fn contains(self, chunk: u128) -> bool {
        chunk & Self::mask(self.bits) == self.name
    }

    fn mask(bits: u8) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits {
            0 => f.write_str("all chunks"),
            128 => write!(f, "chunk {:032x}", self.name),
            bits => write!(f, "chunks whose first {bits} bits are those of {:032x}", self.name),
        }
    }
}

/// What its holder may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The number of the key that it is made with; [`KeyRing::mint`](crate::KeyRing::mint) sets it.
    pub key: u32,
    /// What may be done.
    pub rights: Rights,
    /// With which chunks.
    pub scope: Scope,
    /// The first byte of a chunk that it is for.
    pub offset: u64,
    /// How many bytes from there on; [`u64::MAX`] for all that follow. It may reach past the end of
    /// a chunk, which may then be made longer.
    pub byte_len: u64,
    /// When it expires, in milliseconds since the Unix epoch.
    pub expires_ms: u64,
    /// What it is revoked by, and known by in logs.
    pub serial: u64,
    /// The number of the tenant that may use it; 0: any.
    pub tenant: u32,
    /// The digest of the layout that changes must have; 0: any.
    pub layout: u128,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Raw {
    version: u8,
    rights: u8,
    scope_bits: u8,
    reserved: u8,
    key: u32,
    scope_name: [u8; 16],
    offset: u64,
    byte_len: u64,
    expires_ms: u64,
    serial: u64,
    layout: [u8; 16],
    tenant: u32,
    reserved_1: u32,
}

const _: () = assert!(size_of::<Raw>() == CAPABILITY_BYTES);

/// Which part of a capability is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    /// Another version of the layout.
    #[error("version {0} of capabilities, and this side speaks {VERSION}: update the older side")]
    Version(u8),
    /// Bits or bytes that must be zero, or a scope that cannot be.
    #[error("{0} is not zero, and has no meaning in this version")]
    Reserved(&'static str),
}

impl Capability {
    /// Everything with all chunks, for ever: what one writes `..` of.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            key: 0,
            rights: Rights::ALL,
            scope: Scope::ALL,
            offset: 0,
            byte_len: u64::MAX,
            expires_ms: u64::MAX,
            serial: 0,
            tenant: 0,
            layout: 0,
        }
    }

    /// Whether bytes from `start` on, up to `end` or to the end of the chunk where that is none,
    /// are among those that it is for.
    #[must_use]
    pub fn covers(&self, start: u64, end: Option<u64>) -> bool {
        let last = match self.byte_len {
            u64::MAX => None,
            byte_len => Some(self.offset.saturating_add(byte_len)),
        };
        let ends = match (end, last) {
            (_, None) => true,
            (Some(end), Some(last)) => end <= last,
            (None, Some(_)) => false,
        };
        start >= self.offset && ends
    }

    /// As it is sent.
    #[must_use]
    pub fn emit(&self) -> [u8; CAPABILITY_BYTES] {
        let raw = Raw {
            version: VERSION,
            rights: self.rights.0,
            scope_bits: self.scope.bits,
            reserved: 0,
            key: self.key.to_le(),
            scope_name: self.scope.name.to_le_bytes(),
            offset: self.offset.to_le(),
            byte_len: self.byte_len.to_le(),
            expires_ms: self.expires_ms.to_le(),
            serial: self.serial.to_le(),
            layout: self.layout.to_le_bytes(),
            tenant: self.tenant.to_le(),
            reserved_1: 0,
        };
        let mut bytes = [0; CAPABILITY_BYTES];
        bytes.copy_from_slice(bytemuck::bytes_of(&raw));
        bytes
    }

    /// From bytes that came.
    ///
    /// # Errors
    /// [`CapabilityError`].
    pub fn parse(bytes: &[u8; CAPABILITY_BYTES]) -> Result<Self, CapabilityError> {
        let raw: Raw = bytemuck::pod_read_unaligned(bytes);
        if raw.version != VERSION {
            return Err(CapabilityError::Version(raw.version));
        }
        let name = u128::from_le_bytes(raw.scope_name);
        let scope = Scope::prefix(name, raw.scope_bits);
        for (is_zero, what) in [
            (raw.reserved == 0 && raw.reserved_1 == 0, "a reserved byte"),
            (raw.rights & !Rights::ALL.0 == 0, "a right"),
            (scope.bits == raw.scope_bits && scope.name == name, "a bit beyond those of the scope"),
        ] {
            if !is_zero {
                return Err(CapabilityError::Reserved(what));
            }
        }
        Ok(Self {
            key: u32::from_le(raw.key),
            rights: Rights(raw.rights),
            scope,
            offset: u64::from_le(raw.offset),
            byte_len: u64::from_le(raw.byte_len),
            expires_ms: u64::from_le(raw.expires_ms),
            serial: u64::from_le(raw.serial),
            tenant: u32::from_le(raw.tenant),
            layout: u128::from_le_bytes(raw.layout),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_comes_back_from_its_bytes_and_others_are_refused() {
        let capability = Capability {
            key: 3,
            rights: Rights::READ | Rights::DELETE,
            scope: Scope::prefix(u128::MAX, 13),
            offset: 4_096,
            byte_len: 8_192,
            expires_ms: 77,
            serial: 9,
            tenant: 5,
            layout: 1 << 100,
        };
        let bytes = capability.emit();
        assert_eq!(Capability::parse(&bytes), Ok(capability));
        for (at, is_wrong) in [(0, true), (1, true), (2, true), (3, true), (4, false), (76, true)] {
            let mut wrong = bytes;
            wrong[at] ^= 0x80;
            assert_eq!(Capability::parse(&wrong).is_err(), is_wrong, "byte {at}");
        }
    }

    #[test]
    fn scopes_compare_the_bits_that_they_have() {
        assert!(Scope::ALL.contains(0) && Scope::ALL.contains(u128::MAX));
        assert!(Scope::chunk(7).contains(7) && !Scope::chunk(7).contains(6));
        let half = Scope::prefix(u128::MAX, 1);
        assert!(half.contains(1 << 127) && !half.contains(u128::MAX >> 1));
        assert_eq!(half.to_string(), format!("chunks whose first 1 bits are those of 8{:031x}", 0));
    }

    #[test]
    fn ranges_end_where_the_capability_ends() {
        let some = Capability { offset: 10, byte_len: 10, ..Capability::everything() };
        assert!(some.covers(10, Some(20)) && some.covers(20, Some(20)));
        for (start, end) in [(9, Some(12)), (10, Some(21)), (10, None), (u64::MAX, Some(u64::MAX))]
        {
            assert!(!some.covers(start, end), "{start} {end:?}");
        }
        assert!(Capability::everything().covers(u64::MAX, None));
        let past = Capability { offset: 10, byte_len: u64::MAX - 1, ..Capability::everything() };
        assert!(past.covers(10, Some(u64::MAX)) && !past.covers(10, None));
    }

    #[test]
    fn rights_have_names() {
        let some = Rights::READ | Rights::ONE_SIDED;
        assert_eq!(some.to_string(), "read,one-sided");
        assert_eq!(Rights::parse("one-sided, read"), Ok(some));
        assert_eq!(Rights::parse("all"), Ok(Rights::CHUNKS));
        assert_eq!(Rights::parse("read,fly"), Err("fly".into()));
        assert_eq!(Rights::NONE.to_string(), "none");
    }
}
