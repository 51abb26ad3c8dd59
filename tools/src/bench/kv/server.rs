//! The process of the server: `towpath-kv` itself, which ends with its parent.

use clap::Args as ClapArgs;
use towpath_kv::daemon::{self, DaemonError};

use crate::child::end_with_parent;

/// Flags of the server's process: those of `towpath-kv`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    args: daemon::Args,
}

/// Serves until stdin closes or SIGTERM comes.
pub(crate) fn serve(args: &ServerArgs) -> Result<(), DaemonError> {
    end_with_parent();
    daemon::serve(&args.args)
}
