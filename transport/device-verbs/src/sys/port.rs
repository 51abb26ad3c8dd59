//! The source port of a queue pair that runs: libibverbs has no call for it, one driver has.

use super::{Context, Qp, refusal};
use rdma_sys::{ibv_device, ibv_qp};
use std::ffi::{CStr, c_int, c_void};
use towpath_verbs::{Verb, VerbError};

/// The library of NVIDIA's driver for ConnectX-4 and later, as libibverbs loads it.
const LIBRARY: &CStr = c"libmlx5.so.1";

/// `mlx5dv_is_supported`: whether a device is driven by this library.
// SAFETY: to be called with a device that is open.
type IsSupported = unsafe extern "C" fn(*mut ibv_device) -> bool;

/// `mlx5dv_modify_qp_udp_sport`: 0, or an error number; `EOPNOTSUPP` where the device's firmware
/// cannot do it.
// SAFETY: to be called with a live queue pair of a device of this driver.
type ModifyUdpSport = unsafe extern "C" fn(*mut ibv_qp, u16) -> c_int;

/// What the driver's library offers.
#[derive(Clone, Copy)]
struct Library {
    is_supported: IsSupported,
    modify_udp_sport: ModifyUdpSport,
}

impl Library {
    /// Looks into the library of that name, if this process has loaded it. It is not loaded here:
    /// libibverbs loads the libraries of the devices that there are, and a second copy of one would
    /// know nothing of them.
    fn find(name: &CStr) -> Option<Self> {
        // SAFETY: a C string, and flags. Without loading anything no code of a library runs.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        // It is never closed: libibverbs keeps drivers for the life of the process.
        let symbol = |name: &CStr| -> Option<*mut c_void> {
            // SAFETY: an open library, and a C string.
            let at = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!library.is_null() && !at.is_null()).then_some(at)
        };
        let is_supported = symbol(c"mlx5dv_is_supported")?;
        let modify_udp_sport = symbol(c"mlx5dv_modify_qp_udp_sport")?;
        // SAFETY: rdma-core declares them so in infiniband/mlx5dv.h, and keeps what it has once
        // given out under these names.
        unsafe {
            Some(Self {
                is_supported: std::mem::transmute::<*mut c_void, IsSupported>(is_supported),
                modify_udp_sport: std::mem::transmute::<*mut c_void, ModifyUdpSport>(
                    modify_udp_sport,
                ),
            })
        }
    }
}

/// The driver's call that changes the source port of a queue pair that runs.
#[derive(Clone, Copy)]
pub(crate) struct PortChange(ModifyUdpSport);

impl PortChange {
    /// That of the driver of this device, if it has one. Whether the device can do it shows when it
    /// is tried.
    pub(crate) fn find(context: &Context) -> Option<Self> {
        let library = Library::find(LIBRARY)?;
        // SAFETY: an open context, whose device is valid for its life.
        let is_its_own = unsafe { (library.is_supported)((*context.raw()).device) };
        is_its_own.then_some(Self(library.modify_udp_sport))
    }

    /// Has packets of a queue pair in RTS leave from UDP port `udp_port` from now on.
    pub(crate) fn set(self, qp: &Qp, udp_port: u16) -> Result<(), VerbError> {
        // SAFETY: a live queue pair of a device whose driver this call belongs to.
        match unsafe { (self.0)(qp.raw(), udp_port) } {
            0 => Ok(()),
            status => Err(refusal(Verb::ModifyQp, status.abs())),
        }
    }
}

/// The same call of drivers that are made up.
#[cfg(test)]
pub(crate) mod made_up {
    use super::{PortChange, c_int, ibv_qp};
    use std::sync::Mutex;

    /// The queue pairs that were asked to change, and the port of each.
    static CHANGES: Mutex<Vec<(u32, u16)>> = Mutex::new(Vec::new());

    extern "C" fn change(qp: *mut ibv_qp, udp_port: u16) -> c_int {
        // SAFETY: `PortChange::set` hands out live queue pairs only.
        let num = unsafe { (*qp).qp_num };
        CHANGES.lock().expect("nobody panics").push((num, udp_port));
        0
    }

    extern "C" fn refuse(_: *mut ibv_qp, _: u16) -> c_int {
        libc::EOPNOTSUPP
    }

    /// One whose device can do it, as far as it says.
    pub(crate) fn changing() -> PortChange {
        PortChange(change)
    }

    /// One whose device cannot.
    pub(crate) fn refusing() -> PortChange {
        PortChange(refuse)
    }

    /// What was changed since the last look.
    pub(crate) fn take_changes() -> Vec<(u32, u16)> {
        std::mem::take(&mut CHANGES.lock().expect("nobody panics"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_looked_into_only_where_it_is_loaded() {
        assert!(Library::find(c"libtowpath-no-such-driver.so.1").is_none());
        assert!(Library::find(c"libc.so.6").is_none(), "it has no such calls");
        // SAFETY: a C string, and flags; the library's own constructors may run anywhere.
        let loaded = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
        // Where the driver is installed its calls are there under these names.
        assert_eq!(Library::find(LIBRARY).is_some(), !loaded.is_null());
        println!("the driver of mlx5 is {}", if loaded.is_null() { "absent" } else { "there" });
    }
}
