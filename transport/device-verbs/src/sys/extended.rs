//! The operations that came after the first version of libibverbs' interface.
//!
//! C finds their table in front of the context, by code that headers inline. The version of it in
//! rdma-sys 0.3.0 compares the mark of such a context with 32 bits of ones where C writes all of
//! a pointer's, finds no table on a 64-bit machine, and so reports every extended operation as
//! missing; this is our own.

use super::{Context, zeroed};
use rdma_sys::{
    ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_device_attr_ex, ibv_values_ex,
    ibv_values_mask, verbs_context,
};
use std::mem::offset_of;
use std::ptr::NonNull;

/// The mark of a context with a table in front (`__VERBS_ABI_IS_EXTENDED`): a pointer of ones.
const EXTENDED: usize = usize::MAX;

/// A device's own clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawClock {
    /// The bits of a timestamp that count.
    pub(crate) mask: u64,
    pub(crate) khz: u64,
}

/// The table of `context`, when it has the operation at `offset`: a table grows at its front, and
/// says how long it is.
fn table(context: *mut ibv_context, offset: usize) -> Option<NonNull<verbs_context>> {
    // SAFETY: an open context.
    if unsafe { (*context).abi_compat } as usize != EXTENDED {
        return None;
    }
    // SAFETY: the mark says that the context is the last member of a table.
    let table = unsafe {
        context.cast::<u8>().sub(offset_of!(verbs_context, context)).cast::<verbs_context>()
    };
    // SAFETY: `sz` lies behind all operations, so every table has it.
    let long_enough = unsafe { (*table).sz } >= size_of::<verbs_context>() - offset;
    NonNull::new(table).filter(|_| long_enough)
}

/// `ibv_create_cq_ex`; none where the driver does not have it, or refuses.
pub(super) fn create_cq(
    context: &Context,
    mut init: ibv_cq_init_attr_ex,
) -> Option<NonNull<ibv_cq_ex>> {
    let table = table(context.raw(), offset_of!(verbs_context, create_cq_ex))?;
    // SAFETY: the table has this operation.
    let create = unsafe { (*table.as_ptr()).create_cq_ex }?;
    // SAFETY: an open context, and attributes that are read now.
    NonNull::new(unsafe { create(context.raw(), &raw mut init) })
}

/// What the driver says of the device's clock; none where completions carry no time of it.
pub(crate) fn clock(context: &Context) -> Option<RawClock> {
    let table = table(context.raw(), offset_of!(verbs_context, query_device_ex))?;
    // SAFETY: the table has this operation.
    let query = unsafe { (*table.as_ptr()).query_device_ex }?;
    // SAFETY: numbers and characters.
    let mut attr: ibv_device_attr_ex = unsafe { zeroed() };
    let bytes = size_of::<ibv_device_attr_ex>();
    // SAFETY: an open context, no input, and room of the size that is told.
    let status = unsafe { query(context.raw(), std::ptr::null(), &raw mut attr, bytes) };
    let clock = RawClock { mask: attr.completion_timestamp_mask, khz: attr.hca_core_clock };
    (status == 0 && clock.mask != 0 && clock.khz != 0).then_some(clock)
}

/// What the device's clock shows now.
pub(crate) fn ticks(context: &Context) -> Option<u64> {
    let table = table(context.raw(), offset_of!(verbs_context, query_rt_values))?;
    // SAFETY: the table has this operation.
    let query = unsafe { (*table.as_ptr()).query_rt_values }?;
    // SAFETY: numbers.
    let mut values: ibv_values_ex = unsafe { zeroed() };
    values.comp_mask = ibv_values_mask::IBV_VALUES_MASK_RAW_CLOCK.0;
    // SAFETY: an open context, and room for the values.
    let status = unsafe { query(context.raw(), &raw mut values) };
    // The raw count stands in the nanoseconds, whatever its unit (`ibv_query_rt_values_ex`).
    (status == 0).then_some(values.raw_clock.tv_nsec as u64)
}
