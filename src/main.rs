//! The command line's entry, nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    podherd::cli::main()
}
