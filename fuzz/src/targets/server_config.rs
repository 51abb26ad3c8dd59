//! The config file of the chunk server.

use crate::class;
use towpath_chunkserver::daemon::{ConfigFault, DaemonConfig};

/// What reads must print as a file that reads alike; what does not must name a place in the text.
pub(crate) fn run(input: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(input);
    match DaemonConfig::from_file_text(&text) {
        Ok(config) => {
            let printed = config.to_file_text().expect("its paths came from a text");
            assert_eq!(DaemonConfig::from_file_text(&printed), Ok(config), "and reads it alike");
            let keys = printed.lines().filter_map(|line| line.split_once(" = "));
            class(&[1, keys.filter(|(key, _)| text.contains(key)).count() as u64])
        }
        Err(error) => {
            let lines = text.split('\n').count();
            assert!(error.line >= 1 && error.line <= lines, "line {} of {lines}", error.line);
            assert!(error.column >= 1);
            let said = error.to_string();
            assert!(said.len() < 4096 + text.len(), "an error is no flood");
            match error.fault {
                ConfigFault::Syntax { message } => class(&[2, crate::fnv1a(message.bytes())]),
                ConfigFault::UnknownKey { nearest, .. } => {
                    class(&[3, crate::fnv1a(nearest.unwrap_or_default().bytes())])
                }
                ConfigFault::Value { name, .. } => class(&[4, crate::fnv1a(name.bytes())]),
                _ => 5,
            }
        }
    }
}
