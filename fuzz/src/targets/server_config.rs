//! The config file of the chunk server.

use crate::class;
use towpath_chunkserver::daemon::{ConfigFault, DaemonConfig, KEYS};

/// What reads must print as a file that reads alike; what does not must name a place in the text.
pub(crate) fn run(input: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(input);
    let mut config = DaemonConfig::default();
    match config.read_text(&text) {
        Ok(()) => {
            let mut again = DaemonConfig::default();
            let read = again.read_text(&config.to_file_text());
            assert_eq!(read, Ok(()), "it reads what it prints");
            assert_eq!(again, config, "and reads it alike");
            let keys = KEYS.iter().filter(|key| text.contains(key.name)).count();
            class(&[1, keys as u64])
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
