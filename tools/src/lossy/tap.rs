//! TAP devices: an interface of the kernel whose frames a file carries, one per read or write.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open};
use rustix::ioctl::{Opcode, Setter, ioctl};

use super::error::LossyError;

/// Where the kernel gives out TUN and TAP devices.
pub(super) const DEVICE: &str = "/dev/net/tun";

/// `_IOW('T', 202, int)`, of linux/if_tun.h; what it takes is an `ifreq` all the same.
const TUNSETIFF: Opcode = 0x4004_54ca;
/// Ethernet frames, not IP packets.
const IFF_TAP: u16 = 0x0002;
/// Frames only, without four bytes before each.
const IFF_NO_PI: u16 = 0x1000;

/// The longest name of an interface, with the zero behind it.
const NAME_BYTES: usize = 16;

/// `struct ifreq` of linux/if.h, as TUNSETIFF reads it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_BYTES],
    flags: u16,
    rest: [u8; 22],
}

const _: () = assert!(size_of::<InterfaceRequest>() == 40, "as in C on 64-bit Linux");

/// Attaches to the TAP interface `name` of this thread's network namespace, and makes it where
/// there is none: such a one goes when the file is closed. Reads and writes do not block.
///
/// Nothing is offloaded to the file, so the kernel cuts segments and computes checksums before a
/// frame comes out of it.
///
/// # Errors
/// There is no such device, it may not be opened, or the interface is in use or no TAP.
pub(super) fn attach(name: &str) -> Result<OwnedFd, LossyError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file =
        open(DEVICE, flags, Mode::empty()).map_err(|error| LossyError::TunDevice(error.into()))?;
    let failed = |error: io::Error| LossyError::Tap { name: name.to_owned(), source: error };
    if name.is_empty() || name.len() >= NAME_BYTES || name.contains('\0') {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    }
    let mut request =
        InterfaceRequest { name: [0; NAME_BYTES], flags: IFF_TAP | IFF_NO_PI, rest: [0; 22] };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF reads one `ifreq`, and `InterfaceRequest` has its layout and all its 40
    // bytes; the kernel writes the name back, for which `Setter` holds the request by value.
    unsafe { ioctl(&file, Setter::<TUNSETIFF, _>::new(request)) }
        .map_err(|error| failed(error.into()))?;
    Ok(file)
}
