//! The targets, one file per parser or structure.

mod base_bitmap;
mod base_serial;
mod capability;
mod kv_hello;
mod kv_published;
mod kv_resp;
mod kv_wire;
mod proto_host;
mod proto_lane_pair;
mod proto_link;
mod proto_link_pair;
mod proto_wire;
mod qos_message;
mod resident_slot;
mod roce_engine;
mod roce_packet;
mod roce_rc;
mod roce_wire;
mod secure;
mod server_config;
mod storage_wire;
mod store_record;

use crate::Target;

/// Every target there is.
#[must_use]
pub fn targets() -> &'static [Target] {
    &[
        Target { name: "base_bitmap", run: base_bitmap::run },
        Target { name: "base_serial", run: base_serial::run },
        Target { name: "capability", run: capability::run },
        Target { name: "ack_frame", run: proto_wire::ack_frame },
        Target { name: "chunk_header", run: proto_wire::chunk_header },
        Target { name: "frame_table", run: proto_wire::frame_table },
        Target { name: "hello", run: proto_wire::hello },
        Target { name: "kv_hello", run: kv_hello::run },
        Target { name: "kv_published", run: kv_published::run },
        Target { name: "kv_reply", run: kv_wire::reply },
        Target { name: "kv_requests", run: kv_wire::requests },
        Target { name: "kv_resp", run: kv_resp::run },
        Target { name: "lane_message", run: proto_wire::lane_message },
        Target { name: "lane_pair", run: proto_lane_pair::run },
        Target { name: "link", run: proto_link::run },
        Target { name: "link_pair", run: proto_link_pair::run },
        Target { name: "qos_message", run: qos_message::run },
        Target { name: "resident_slot", run: resident_slot::run },
        Target { name: "roce_engine", run: roce_engine::run },
        Target { name: "roce_packet", run: roce_packet::run },
        Target { name: "roce_rc", run: roce_rc::run },
        Target { name: "secure", run: secure::run },
        Target { name: "server_config", run: server_config::run },
        Target { name: "storage_wire", run: storage_wire::run },
        Target { name: "store_record", run: store_record::run },
    ]
}
