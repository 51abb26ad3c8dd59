//! The program for tokio that the documentation shows does what it says.

#[path = "../examples/ask_tokio.rs"]
#[allow(dead_code, reason = "a program, of which the test calls the beginning")]
mod program;

#[test]
fn the_program_for_tokio_has_an_answer_to_each_request_of_many_tasks() {
    program::main().expect("each request has its answer");
}
