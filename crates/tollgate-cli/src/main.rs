//! The program `tollgate`. All it does is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate_cli::main()
}
