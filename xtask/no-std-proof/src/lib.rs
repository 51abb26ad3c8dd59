//! Proves that the sans-IO crates do not use std: this crate links them and defines a panic
//! handler. It fails to build if any dependency uses std, because std defines a panic handler too.

#![no_std]
#![deny(unsafe_code)]

extern crate towpath_base as _;
extern crate towpath_cc as _;
extern crate towpath_ec as _;
extern crate towpath_proto as _;
extern crate towpath_qos as _;
extern crate towpath_verbs as _;

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;

/// `alloc` wants an allocator at the final link; nothing here is ever run.
struct NoMemory;

// SAFETY: a null pointer is the documented answer of an allocator that has no memory, and what
// was never handed out is never given back.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for NoMemory {
    // SAFETY: nothing is asked of the caller.
    unsafe fn alloc(&self, _layout: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    // SAFETY: never called, as above.
    unsafe fn dealloc(&self, _pointer: *mut u8, _layout: Layout) {}
}

#[global_allocator]
static NO_MEMORY: NoMemory = NoMemory;

#[panic_handler]
fn panic(_info: &PanicInfo<'_>) -> ! {
    loop {}
}
