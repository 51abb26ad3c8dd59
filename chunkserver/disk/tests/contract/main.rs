//! What all disks promise, tested on each of them.

#![forbid(unsafe_code)]

mod cases;
mod model;
mod rigs;

/// The cases, each for one kind of disk.
macro_rules! contract {
    ($kind:ident, $rig:expr) => {
        mod $kind {
            use crate::rigs::*;
            use crate::{cases, model};
            contract!(cases in $rig;
                cases::memory_comes_back_once_with_its_tag,
                cases::a_full_queue_gives_the_operation_back,
                cases::what_cannot_be_done_is_refused_with_its_memory,
                cases::one_buffer_more_than_a_system_call_takes_at_ease_is_refused,
                cases::the_longest_operation_is_carried_out,
                cases::a_frozen_buffer_is_written_to_many_places_at_once,
                cases::a_part_of_a_buffer_is_read_into_and_the_rest_stays,
                cases::a_wait_ends_without_anything_under_way_and_with_something_done,
                cases::a_descriptor_tells_of_all_that_is_done_after_it_was_armed,
                cases::dropping_a_disk_carries_out_what_is_under_way,
                cases::a_second_opening_is_refused_until_the_first_is_gone,
                cases::discarded_pages_are_zeros_and_others_are_not,
                cases::what_was_never_written_is_zeros,
                model::random_operations_give_what_a_plain_array_gives,
            );
        }
    };
    (cases in $rig:expr; $($file:ident :: $case:ident,)*) => {
        $(
            #[test]
            fn $case() {
                $file::$case(&$rig);
            }
        )*
    };
}

contract!(sim, SimRig::new(0x5eed));
contract!(threads, FileRig::on_disk(false, true));
contract!(threads_through_the_cache, FileRig::on_disk(false, false));
contract!(threads_in_memory, FileRig::in_memory(false));
contract!(uring, FileRig::on_disk(true, true));
contract!(at_once_in_memory, FileRig::in_memory(true));
