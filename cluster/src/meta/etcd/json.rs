//! The bodies of etcd's HTTP gateway: JSON of its protobuf messages.
//!
//! Numbers of 64 bits are strings, bytes are base64, and what is zero or empty is left out.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(pub u64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| serde::de::Error::custom("a number is none"))
    }
}

/// Bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// A key with its value.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyValue {
    pub key: Bytes,
    pub value: Bytes,
    pub create_revision: Number,
    pub mod_revision: Number,
    pub lease: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Header {
    pub revision: Number,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct RangeRequest {
    pub key: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range_end: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Number>,
    pub keys_only: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RangeResponse {
    pub header: Header,
    pub kvs: Vec<KeyValue>,
    pub more: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Compare {
    pub key: Bytes,
    pub target: &'static str,
    pub result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_revision: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mod_revision: Option<Number>,
}

#[derive(Debug, Serialize)]
pub(super) enum RequestOp {
    #[serde(rename = "request_range")]
    Range(RangeRequest),
    #[serde(rename = "request_put")]
    Put { key: Bytes, value: Bytes, lease: Number },
    #[serde(rename = "request_delete_range")]
    Delete { key: Bytes },
}

#[derive(Debug, Serialize)]
pub(super) struct TxnRequest {
    pub compare: Vec<Compare>,
    pub success: Vec<RequestOp>,
    pub failure: Vec<RequestOp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResponseOp {
    pub response_range: RangeResponse,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TxnResponse {
    pub header: Header,
    pub succeeded: bool,
    pub responses: Vec<ResponseOp>,
}

#[derive(Debug, Serialize)]
pub(super) struct LeaseRequest {
    #[serde(rename = "ID")]
    pub id: Number,
    #[serde(rename = "TTL", skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Number>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LeaseResponse {
    #[serde(rename = "ID")]
    pub id: Number,
    #[serde(rename = "TTL")]
    pub ttl: Number,
}

/// A part of a stream.
#[derive(Debug, Deserialize)]
pub(super) struct Streamed<T> {
    pub result: Option<T>,
    pub error: Option<serde_json::Value>,
}

#[derive(Debug, Serialize)]
pub(super) struct WatchRequest {
    pub create_request: WatchCreate,
}

#[derive(Debug, Serialize)]
pub(super) struct WatchCreate {
    pub key: Bytes,
    pub range_end: Bytes,
    pub start_revision: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchResponse {
    pub canceled: bool,
    pub compact_revision: Number,
    pub events: Vec<Event>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    #[serde(rename = "type")]
    pub kind: String,
    pub kv: KeyValue,
}

/// What an error has, by gRPC's numbers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ErrorBody {
    pub message: String,
    pub code: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Version {
    pub etcdserver: String,
}
