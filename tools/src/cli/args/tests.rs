//! What the help of commands says.

use clap::CommandFactory as _;

#[test]
fn the_flags_hold_together() {
    super::Args::command().debug_assert();
}

fn help(command: &str) -> String {
    let mut args = super::Args::command();
    let command = args.find_subcommand_mut(command).expect("a command");
    command.render_long_help().to_string()
}

#[test]
fn flags_of_a_command_stand_before_those_that_most_commands_have() {
    for (command, own) in [("qos", "--watch"), ("put", "--policy"), ("get", "--hedge ")] {
        let help = help(command);
        let at = |word: &str| help.find(word).unwrap_or_else(|| panic!("{word}: {help}"));
        for common in ["--device ", "--tenant ", "--loss ", "--black-hole "] {
            assert!(at(own) < at(common), "{command}: {common} in\n{help}");
        }
        assert!(at("Network device:") < at("--device "), "{help}");
        // No heading goes on to the flags behind those that it is of.
        assert!(at("\n      --json") < at("Network device:"), "{help}");
    }
}

#[test]
fn help_names_every_form_of_a_policy_and_every_benchmark() {
    let put = help("put");
    for form in ["flat:COPIES", ",ack:A", "auto:COPIES", "rs:DATA+PARITY", ",triec"] {
        assert!(put.contains(form), "{form} in\n{put}");
    }
    let args = super::Args::command();
    let bench = args.find_subcommand("bench").expect("a command");
    let about = bench.get_about().expect("a text").to_string();
    assert!(!about.contains("links perform"), "{about}");
}
