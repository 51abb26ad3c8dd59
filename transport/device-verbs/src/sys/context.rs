//! Devices: the list of them, and one that is open.

use super::{errno, zeroed};
use crate::error::OpenError;
use crate::survey::Limits;
use rdma_sys::{
    ___ibv_query_port, ibv_ack_async_event, ibv_async_event, ibv_atomic_cap, ibv_close_device,
    ibv_context, ibv_device, ibv_device_attr, ibv_free_device_list, ibv_get_async_event,
    ibv_get_device_list, ibv_get_device_name, ibv_gid, ibv_open_device, ibv_port_attr,
    ibv_port_state, ibv_query_device, ibv_query_gid,
};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::ptr::NonNull;

/// `IBV_LINK_LAYER_ETHERNET`, a macro in C.
const LINK_LAYER_ETHERNET: u8 = 2;

/// The list of devices, freed at its end. A device that was opened outlives it.
struct List {
    devices: *mut *mut ibv_device,
    count: usize,
}

impl List {
    fn new() -> Result<Self, OpenError> {
        let mut count = 0;
        // SAFETY: the number is written to a local.
        let devices = unsafe { ibv_get_device_list(&raw mut count) };
        if devices.is_null() {
            return match errno() {
                // No kernel support: no devices.
                libc::ENOSYS => Ok(Self { devices, count: 0 }),
                errno => Err(OpenError::List { errno }),
            };
        }
        Ok(Self { devices, count: usize::try_from(count).unwrap_or(0) })
    }

    fn iter(&self) -> impl Iterator<Item = (*mut ibv_device, String)> {
        (0..self.count).map(|index| {
            // SAFETY: the list has `count` entries, and lives as long as `self`.
            let device = unsafe { *self.devices.add(index) };
            // SAFETY: the name is a C string within the device.
            let name = unsafe { CStr::from_ptr(ibv_get_device_name(device)) };
            (device, name.to_string_lossy().into_owned())
        })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if !self.devices.is_null() {
            // SAFETY: it was given to us by ibv_get_device_list, and is freed once.
            unsafe { ibv_free_device_list(self.devices) };
        }
    }
}

/// See [`crate::device_names`].
pub(crate) fn device_names() -> Result<Vec<String>, OpenError> {
    Ok(List::new()?.iter().map(|(_, name)| name).collect())
}

/// What the driver says of a device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceInfo {
    pub(crate) firmware: String,
    pub(crate) node_guid: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) limits: Limits,
    pub(crate) atomics: bool,
    pub(crate) ports: u8,
}

/// What the driver says of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortInfo {
    pub(crate) active: bool,
    pub(crate) ethernet: bool,
    /// As `ibv_mtu` counts: 1 is 256 bytes, 5 is 4,096.
    pub(crate) active_mtu: u32,
    pub(crate) max_mtu: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) gid_entries: u32,
}

/// What packets an entry of the table of GIDs stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GidType {
    RoceV2,
    Other,
}

/// Something that happened, in the driver's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RawEvent {
    /// The completion queue whose context is this.
    CqError(usize),
    QpFatal(u32),
    PortDown(u8),
    DeviceFatal,
    Other,
}

/// An open device.
pub(crate) struct Context {
    raw: NonNull<ibv_context>,
    name: String,
}

// SAFETY: libibverbs locks what it shares; "the libibverbs API is thread safe" (its README), and
// nothing of a context is bound to a thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened by us, closed once, and nothing made from it is left: those hold an Arc.
        unsafe { ibv_close_device(self.raw.as_ptr()) };
    }
}

impl Context {
    /// Opens the device of that name, or the first.
    pub(crate) fn open(name: Option<&str>) -> Result<Self, OpenError> {
        let list = List::new()?;
        let found = list.iter().find(|(_, each)| name.is_none_or(|name| name == each));
        let Some((device, name)) = found else {
            let known = list.iter().map(|(_, name)| name).collect();
            return Err(OpenError::NoSuchDevice { name: name.unwrap_or("").to_owned(), known });
        };
        // SAFETY: the device is of the list, which is alive.
        let raw = NonNull::new(unsafe { ibv_open_device(device) });
        let Some(raw) = raw else { return Err(OpenError::Refused { name, errno: errno() }) };
        let context = Self { raw, name };
        // SAFETY: an open context; its async_fd is valid for its life.
        let is_blocking_off = unsafe {
            let fd = (*raw.as_ptr()).async_fd;
            libc::fcntl(fd, libc::F_SETFL, libc::fcntl(fd, libc::F_GETFL) | libc::O_NONBLOCK)
        };
        if is_blocking_off < 0 {
            return Err(OpenError::Refused { name: context.name.clone(), errno: errno() });
        }
        Ok(context)
    }

    pub(crate) fn raw(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Asks the device about itself; the error is the system's.
    pub(crate) fn device_info(&self) -> Result<DeviceInfo, i32> {
        // SAFETY: numbers and characters.
        let mut attr: ibv_device_attr = unsafe { zeroed() };
        // SAFETY: an open context, and a struct of the size that the header gives.
        let status = unsafe { ibv_query_device(self.raw(), &raw mut attr) };
        if status != 0 {
            return Err(status);
        }
        let count = |value: i32| u32::try_from(value).unwrap_or(0);
        let limits = Limits {
            max_qp: count(attr.max_qp),
            max_qp_wr: count(attr.max_qp_wr),
            max_sge: count(attr.max_sge),
            max_cq: count(attr.max_cq),
            max_cqe: count(attr.max_cqe),
            max_mr: count(attr.max_mr),
            max_mr_size: attr.max_mr_size,
            max_pd: count(attr.max_pd),
            max_ah: count(attr.max_ah),
            max_srq: count(attr.max_srq),
            max_srq_wr: count(attr.max_srq_wr),
            max_qp_rd_atom: count(attr.max_qp_rd_atom.min(attr.max_qp_init_rd_atom)),
        };
        // Up to the first zero, or all of it.
        let firmware = attr.fw_ver.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0);
        Ok(DeviceInfo {
            firmware: String::from_utf8_lossy(&firmware.collect::<Vec<_>>()).into_owned(),
            node_guid: u64::from_be(attr.node_guid),
            vendor_id: attr.vendor_id,
            vendor_part_id: attr.vendor_part_id,
            hw_ver: attr.hw_ver,
            limits,
            atomics: attr.atomic_cap != ibv_atomic_cap::IBV_ATOMIC_NONE,
            ports: attr.phys_port_cnt,
        })
    }

    /// Asks about a port; the error is the system's.
    pub(crate) fn port_info(&self, port: u8) -> Result<PortInfo, i32> {
        // SAFETY: numbers.
        let mut attr: ibv_port_attr = unsafe { zeroed() };
        // SAFETY: an open context, and a struct of the size that the header gives. (It falls back
        // to the older query, which writes a prefix of the struct.)
        let status = unsafe { ___ibv_query_port(self.raw(), port, &raw mut attr) };
        if status != 0 {
            return Err(status);
        }
        Ok(PortInfo {
            active: attr.state == ibv_port_state::IBV_PORT_ACTIVE,
            ethernet: attr.link_layer == LINK_LAYER_ETHERNET,
            active_mtu: attr.active_mtu,
            max_mtu: attr.max_mtu,
            max_msg_sz: attr.max_msg_sz,
            gid_entries: u32::try_from(attr.gid_tbl_len).unwrap_or(0),
        })
    }

    /// An entry of the table of GIDs; none where there is none.
    pub(crate) fn gid(&self, port: u8, index: u32) -> Option<[u8; 16]> {
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: an open context, and room for one GID.
        let status = unsafe { ibv_query_gid(self.raw(), port, index as i32, &raw mut gid) };
        // SAFETY: sixteen bytes in either reading of the union.
        (status == 0).then_some(unsafe { gid.raw })
    }

    /// What an entry of the table stands for. The library's own query for it is not in rdma-sys;
    /// the kernel tells the same in a file.
    pub(crate) fn gid_type(&self, port: u8, index: u32) -> GidType {
        let port = port.to_string();
        let mut path = PathBuf::from("/sys/class/infiniband");
        path.extend([self.name.as_str(), "ports", &port, "gid_attrs", "types"]);
        path.push(index.to_string());
        match std::fs::read_to_string(path) {
            Ok(text) if text.trim() == "RoCE v2" => GidType::RoceV2,
            _ => GidType::Other,
        }
    }

    /// The file that becomes readable with an event of the device.
    pub(crate) fn event_fd(&self) -> i32 {
        // SAFETY: an open context.
        unsafe { (*self.raw()).async_fd }
    }

    /// Takes one event, if there is any.
    pub(crate) fn event(&self) -> Option<RawEvent> {
        let mut event = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: an open context, and room for an event.
        if unsafe { ibv_get_async_event(self.raw(), event.as_mut_ptr()) } != 0 {
            return None;
        }
        let at = event.as_mut_ptr();
        // SAFETY: the type is read as a number, since newer kernels may tell of types that the
        // Rust enumeration does not have. Each element is read by the type that it belongs to, and
        // the objects live until their event is acknowledged: destroying waits for that.
        let told = unsafe {
            let element = &raw const (*at).element;
            match (&raw const (*at).event_type).cast::<u32>().read() {
                0 => RawEvent::CqError((*(*element).cq).cq_context as usize),
                // Fatal, request error, access error: the queue pair is in error after each.
                1..=3 => RawEvent::QpFatal((*(*element).qp).qp_num),
                8 => RawEvent::DeviceFatal,
                10 => RawEvent::PortDown((*element).port_num as u8),
                _ => RawEvent::Other,
            }
        };
        // SAFETY: an event that ibv_get_async_event filled, acknowledged once.
        unsafe { ibv_ack_async_event(at) };
        Some(told)
    }
}
