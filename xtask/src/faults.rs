//! `cargo xtask faults`: raises the faults that a limiter has to survive, and measures what they
//! cost.

use crate::{
    failure::{self, Failure},
    need, servers,
    workspace::Workspace,
};

/// Builds `tools/faults` in the profile of the tests and runs it. `--server NAME` chooses the
/// server; the program receives the other arguments.
///
/// # Errors
///
/// When there is no server, when the program does not compile, or when a row breaks. A time or a size
/// that misses its target is reported and is no failure.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    let (server, arguments) = chosen(arguments)?;
    failure::run(&mut workspace.cargo_build(&["--bin", "tollgate-faults"]))?;
    let mut command = workspace.tool(&workspace.target().join("debug/tollgate-faults"));
    command.args(arguments);
    command.envs(need::provide(need::TESTS, workspace.target())?);
    if need::is_root() {
        command.envs(need::provide(need::FAULTS, workspace.target())?);
    }
    if let Some(server) = server {
        command.env("REDIS_SERVER", server.provide(workspace.target())?);
    }
    failure::run(&mut command)
}

/// Returns the named server, and the other arguments.
fn chosen(
    arguments: &[String],
) -> Result<(Option<&'static servers::Server>, Vec<&String>), Failure> {
    let (mut server, mut others) = (None, Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--server" {
            let name = words
                .next()
                .ok_or_else(|| Failure::new("--server takes the name of a server"))?;
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
    fn the_server_is_removed_from_the_arguments() {
        let words: Vec<String> = ["--quick", "--server", "redis8", "N3"]
            .map(str::to_owned)
            .into();
        let (server, others) = chosen(&words).expect("it is known");
        assert_eq!(server.map(|server| server.name), Some("redis8"));
        assert_eq!(others, [&words[0], &words[3]]);
        assert!(chosen(&words[1..2]).is_err());
    }
}
