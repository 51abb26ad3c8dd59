//! Where a file is, as a type and as text.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use towpath_base::crc::crc32c;
use towpath_cap::Grant;
use towpath_fastpath::{ChunkId, SLICE_BYTES};

use crate::policy::{Policy, PolicyError};
use crate::stripes::Stripes;

/// The form of the text.
const FORM: u32 = 1;

/// Bytes of the text of a layout: 32 parts of 200 each, and the rest.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Units that a layout may have: from a slice to what one operation moves.
const UNITS: std::ops::RangeInclusive<u32> = SLICE_BYTES as u32..=16 << 20;

/// What is signed begins with it, so that a signature is good for nothing else.
const DOMAIN: &[u8; 16] = b"towpath layout 1";

/// One part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The server that has it.
    pub server: SocketAddr,
    /// The chunk that it is.
    pub chunk: ChunkId,
    /// The version of the chunk; none where the part is not whole.
    pub version: Option<u64>,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.chunk, self.server)
    }
}

/// Where a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the file.
    pub bytes: u64,
    /// How it is spread.
    pub policy: Policy,
    /// Bytes of a unit: a multiple of the slice.
    pub unit_bytes: u32,
    /// Rises with each repair.
    pub generation: u64,
    /// Its parts, as many as the policy has: the data parts first.
    pub nodes: Vec<Node>,
    /// Chunks that are no part of it any more, and that could not be deleted so far.
    pub left: Vec<Node>,
}

/// Why a text is no layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Too long.
    #[error("a layout has at most {TEXT_BYTES_MAX} bytes")]
    TooLong,
    /// Not the JSON of one.
    #[error("it is no layout: {0}")]
    Json(String),
    /// Of another version.
    #[error("a layout of form {0}, and this program knows form {FORM}: update it")]
    Form(u32),
    /// The policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Not as many parts as the policy has.
    #[error("{found} parts where the policy has {needed}")]
    Parts {
        /// Needed.
        needed: usize,
        /// There.
        found: usize,
    },
    /// Not a multiple of the slice, or too long.
    #[error("a unit of {0} bytes: it has whole slices of 4096 bytes, and 16 MiB at most")]
    Unit(u32),
    /// More bytes than parts can have.
    #[error("a file of {0} bytes is longer than its parts can be")]
    Bytes(u64),
    /// It was repaired as often as can be counted.
    #[error("its generation is the last one that there can be: store the file again")]
    Generation,
    /// It is not as it was written.
    #[error(
        "{}, and its fields have {expected}: it was changed or damaged since it was written. Use \
         a copy of it; if it was changed on purpose, write \"checksum\": \"{expected}\" into it",
        match found {
            Some(found) => format!("its checksum is {found:?}"),
            None => String::from("it has no checksum"),
        }
    )]
    Checksum {
        /// In the text, where there is one.
        found: Option<String>,
        /// Of its fields.
        expected: String,
    },
    /// A chunk's name that is none.
    #[error("{0:?} is no name of a chunk: it has 32 hexadecimal digits")]
    Chunk(String),
    /// Not signed with this capability.
    #[error("the layout is not signed with this capability, or was changed: find the right one")]
    Signature,
    /// Not signed, and there is a capability: whoever changed it may have taken the signature away.
    #[error(
        "the layout is not signed, and a capability is given: leave the capability out to use a \
         layout that was stored without one"
    )]
    Unsigned,
    /// Signed, and there is no capability to check it.
    #[error("the layout is signed: give the capability that it was made with")]
    NoCapability,
}

/// The text, with stable names.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    towpath_layout: u32,
    bytes: u64,
    policy: String,
    unit_bytes: u32,
    generation: u64,
    nodes: Vec<NodeText>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left: Vec<NodeText>,
    #[serde(default)]
    checksum: Option<String>,
    signature: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeText {
    server: SocketAddr,
    chunk: String,
    version: Option<u64>,
}

impl Layout {
    /// What [`parse`](Self::parse) reads: JSON, signed where a capability is given, so that whoever
    /// has that sees whether it was changed.
    #[must_use]
    pub fn to_text(&self, signer: Option<&Grant>) -> String {
        let texts = |nodes: &[Node]| {
            let text = |&Node { server, chunk, version }: &Node| {
                let chunk = chunk.to_string();
                NodeText { server, chunk, version }
            };
            nodes.iter().map(text).collect()
        };
        let text = Text {
            towpath_layout: FORM,
            bytes: self.bytes,
            policy: self.policy.to_string(),
            unit_bytes: self.unit_bytes,
            generation: self.generation,
            nodes: texts(&self.nodes),
            left: texts(&self.left),
            checksum: Some(self.checksum()),
            signature: signer.map(|grant| self.signature(grant)),
        };
        // Plain fields are always JSON.
        let mut json = serde_json::to_string_pretty(&text).unwrap_or_default();
        json.push('\n');
        json
    }

    /// From its text, which must be as it was written: it has a checksum. With a capability it must
    /// be signed by that one; without, not at all.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn parse(text: &str, signer: Option<&Grant>) -> Result<Self, LayoutError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(LayoutError::TooLong);
        }
        let text: Text =
            serde_json::from_str(text).map_err(|error| LayoutError::Json(error.to_string()))?;
        if text.towpath_layout != FORM {
            return Err(LayoutError::Form(text.towpath_layout));
        }
        let nodes = |texts: Vec<NodeText>| {
            let node = |NodeText { server, chunk, version }| {
                let chunk = chunk.parse().map_err(|_| LayoutError::Chunk(chunk))?;
                Ok(Node { server, chunk, version })
            };
            texts.into_iter().map(node).collect::<Result<Vec<Node>, LayoutError>>()
        };
        let layout = Self {
            bytes: text.bytes,
            policy: text.policy.parse()?,
            unit_bytes: text.unit_bytes,
            generation: text.generation,
            nodes: nodes(text.nodes)?,
            left: nodes(text.left)?,
        };
        layout.check()?;
        match (text.signature, signer) {
            (None, None) => {}
            (None, Some(_)) => return Err(LayoutError::Unsigned),
            (Some(_), None) => return Err(LayoutError::NoCapability),
            (Some(shown), Some(grant)) if shown == layout.signature(grant) => {}
            (Some(_), Some(_)) => return Err(LayoutError::Signature),
        }
        let (found, expected) = (text.checksum, layout.checksum());
        if found.as_ref() != Some(&expected) {
            return Err(LayoutError::Checksum { found, expected });
        }
        Ok(layout)
    }

    /// Whether it can be one.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn check(&self) -> Result<(), LayoutError> {
        let (needed, found) = (self.policy.parts(), self.nodes.len());
        if needed != found {
            return Err(LayoutError::Parts { needed, found });
        }
        if self.generation == u64::MAX {
            return Err(LayoutError::Generation);
        }
        let unit = self.unit_bytes;
        if !UNITS.contains(&unit) || !unit.is_multiple_of(SLICE_BYTES as u32) {
            return Err(LayoutError::Unit(unit));
        }
        if self.bytes > u64::MAX / 2 {
            return Err(LayoutError::Bytes(self.bytes));
        }
        Ok(())
    }

    pub(crate) fn stripes(&self) -> Stripes {
        Stripes::new(self.bytes, self.policy.data(), self.unit_bytes as usize)
    }

    /// Against damage and slips; whoever means to can make it anew.
    fn checksum(&self) -> String {
        format!("{:08x}", crc32c(&self.canonical()))
    }

    fn signature(&self, grant: &Grant) -> String {
        format!("{:032x}", grant.sign(DOMAIN, &self.canonical()))
    }

    /// What is signed and has the checksum: every field, in this order, little-endian, texts with
    /// their lengths.
    fn canonical(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let text = |bytes: &mut Vec<u8>, text: String| {
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text.bytes());
        };
        bytes.extend(self.bytes.to_le_bytes());
        text(&mut bytes, self.policy.to_string());
        bytes.extend(self.unit_bytes.to_le_bytes());
        bytes.extend(self.generation.to_le_bytes());
        for Node { server, chunk, version } in self.nodes.iter().chain(&self.left) {
            text(&mut bytes, server.to_string());
            bytes.extend(chunk.0.to_le_bytes());
            bytes.push(u8::from(version.is_some()));
            bytes.extend(version.unwrap_or(0).to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_cap::{Capability, KeyRing};

    fn layout() -> Layout {
        let node = |n: u8| Node {
            server: ([10, 0, 0, n], 7400).into(),
            chunk: ChunkId(n.into()),
            version: (n > 1).then_some(7),
        };
        Layout {
            bytes: 1_000_000,
            policy: "rs:2+1".parse().expect("a policy"),
            unit_bytes: 65_536,
            generation: 3,
            nodes: (1..4).map(node).collect(),
            left: Vec::new(),
        }
    }

    fn grant(key: u8) -> Grant {
        let ring = KeyRing::parse(&KeyRing::line(1, &[key; 32])).expect("a key");
        ring.mint(Capability::everything()).expect("a grant")
    }

    #[test]
    fn a_layout_comes_back_from_its_text() {
        let layout = layout();
        assert_eq!(Layout::parse(&layout.to_text(None), None), Ok(layout.clone()));
        let left = Layout { left: layout.nodes[..1].to_vec(), ..layout.clone() };
        assert_eq!(Layout::parse(&left.to_text(None), None), Ok(left));
        let signed = layout.to_text(Some(&grant(1)));
        assert_eq!(Layout::parse(&signed, Some(&grant(1))), Ok(layout));
        assert_eq!(Layout::parse(&signed, Some(&grant(2))), Err(LayoutError::Signature));
        assert_eq!(Layout::parse(&signed, None), Err(LayoutError::NoCapability));
    }

    #[test]
    fn a_layout_whose_signature_was_taken_away_is_refused_where_one_is_due() {
        let text = layout().to_text(None);
        assert!(text.contains("\"signature\": null"), "{text}");
        assert_eq!(Layout::parse(&text, Some(&grant(1))), Err(LayoutError::Unsigned));
    }

    #[test]
    fn a_signed_layout_that_was_changed_is_refused_whichever_field_it_was() {
        let text = layout().to_text(Some(&grant(1)));
        for (from, to) in [
            ("1000000", "1000001"),
            ("65536", "69632"),
            ("\"generation\": 3", "\"generation\": 4"),
            ("10.0.0.2", "10.0.0.9"),
            ("000002\"", "000005\""),
            ("\"version\": 7", "\"version\": 8"),
            ("\"version\": null", "\"version\": 7"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from} is there");
            assert_eq!(Layout::parse(&changed, Some(&grant(1))), Err(LayoutError::Signature));
        }
    }

    #[test]
    fn a_layout_that_was_changed_is_refused_though_it_is_not_signed() {
        let text = layout().to_text(None);
        // Two parts in each other's place are a layout too, of other bytes.
        let exchanged = text.replace("10.0.0.2", "x").replace("10.0.0.3", "10.0.0.2");
        let exchanged = exchanged.replace('x', "10.0.0.3");
        let one = |from: &str, to: &str| text.replacen(from, to, 1);
        for changed in [
            exchanged,
            one("1000000", "1000001"),
            one("1000000", "930000"),
            one("65536", "69632"),
            one("rs:2+1", "ring:3"),
            one("\"generation\": 3", "\"generation\": 4"),
            one("\"version\": 7", "\"version\": 8"),
        ] {
            let refused = Layout::parse(&changed, None);
            let Err(LayoutError::Checksum { found: Some(found), expected }) = refused else {
                panic!("{refused:?} of {changed}");
            };
            // On purpose it can be done, and the error says how.
            let meant = changed.replace(&found, &expected);
            assert!(Layout::parse(&meant, None).is_ok(), "{meant}");
        }
        let line = text.lines().find(|line| line.contains("checksum")).expect("it is there");
        let without = Layout::parse(&text.replace(line, ""), None);
        assert!(matches!(without, Err(LayoutError::Checksum { found: None, .. })), "{without:?}");
    }

    #[test]
    fn what_is_no_layout_is_refused_by_name() {
        let text = layout().to_text(None);
        let with = |from: &str, to: &str| Layout::parse(&text.replacen(from, to, 1), None);
        assert_eq!(with("rs:2+1", "rs:2+2"), Err(LayoutError::Parts { needed: 4, found: 3 }));
        assert_eq!(with("65536", "65537"), Err(LayoutError::Unit(65_537)));
        assert_eq!(with("65536", "0"), Err(LayoutError::Unit(0)));
        assert_eq!(with("layout\": 1", "layout\": 2"), Err(LayoutError::Form(2)));
        let longest = u64::MAX.to_string();
        assert_eq!(with("1000000", &longest), Err(LayoutError::Bytes(u64::MAX)));
        assert!(matches!(with("rs:2+1", "chain:3"), Err(LayoutError::Policy(_))));
        assert!(matches!(with("0000000002\"", "x\""), Err(LayoutError::Chunk(_))));
        assert!(matches!(with("{", "["), Err(LayoutError::Json(_))));
        assert!(matches!(with("generation", "more"), Err(LayoutError::Json(_))));
        let long = " ".repeat(TEXT_BYTES_MAX) + &text;
        assert_eq!(Layout::parse(&long, None), Err(LayoutError::TooLong));
    }
}
