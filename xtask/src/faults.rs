//! `cargo xtask faults`: the faults a limiter has to survive, raised and measured.

use crate::{
    failure::{self, Failure},
    need, servers,
    workspace::Workspace,
};

/// Builds the program with the tests' package, as the tests are built, and runs it; `--server NAME` chooses the server, the
/// other arguments are the program's own.
///
/// # Errors
///
/// When there is no server, anything does not compile, or a row could not be carried out. A figure that misses its
/// target is no failure: it says so.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    let (server, arguments) = chosen(arguments)?;
    let mut command = workspace.cargo("run");
    command.args(["--quiet", "--package", "tollgate-tests", "--all-features", "--example", "faults", "--"]);
    command.args(arguments);
    for (variable, binary) in need::provide_for_faults()? {
        command.env(variable, binary);
    }
    if let Some(server) = server {
        command.args(["--server", server.name]);
        command.env("REDIS_SERVER", server.provide(&workspace)?);
    }
    failure::run(&mut command)
}

/// The server that is named, and the arguments without it.
fn chosen(arguments: &[String]) -> Result<(Option<&'static servers::Server>, Vec<&String>), Failure> {
    let (mut server, mut others) = (None, Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--server" {
            let name = words.next().ok_or_else(|| Failure::new("--server takes the name of a server"))?;
            server = Some(servers::named(name)?);
        } else {
            others.push(word);
        }
    }
    Ok((server, others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_taken_out_of_the_arguments() {
        let words: Vec<String> = ["--quick", "--server", "redis8", "N3"].map(str::to_owned).into();
        let (server, others) = chosen(&words).expect("it is known");
        assert_eq!(server.map(|server| server.name), Some("redis8"));
        assert_eq!(others, [&words[0], &words[3]]);
        assert!(chosen(&words[1..2]).is_err());
    }
}
