//! No manifest accepts a version of a dependency that is known to be unsafe.
//!
//! `cargo xtask lint` asks the database of advisories, where cargo-deny and the database can be had.
//! This test asks nobody: it has the advisories that once were reason to raise a bound.

use super::{files, page};

/// A dependency, the lowest version that may be accepted, and the advisories about those before.
const LOWEST: [(&str, [u64; 3], &str); 6] = [
    ("bytes", [1, 11, 1], "RUSTSEC-2026-0007"),
    ("h2", [0, 4, 16], "RUSTSEC-2026-0258"),
    // Those before take a crate that nobody maintains.
    ("rustls-native-certs", [0, 8, 2], "RUSTSEC-2025-0134"),
    ("time", [0, 3, 47], "RUSTSEC-2026-0009"),
    // With it comes postgres-protocol 0.6.12: RUSTSEC-2026-0179 and RUSTSEC-2026-0180.
    ("tokio-postgres", [0, 7, 18], "RUSTSEC-2026-0178"),
    ("tracing-subscriber", [0, 3, 20], "RUSTSEC-2025-0055"),
];

/// Returns the dependencies of a manifest that are too low, with their advisories. A dependency
/// stands on one line.
fn too_low(manifest: &str) -> Vec<String> {
    let lines = manifest.lines().filter_map(|line| {
        let (name, rest) = line.split_once('=')?;
        let (_, lowest, advisory) = LOWEST.iter().find(|known| known.0 == name.trim())?;
        let quoted = match rest.split_once("version =") {
            Some((_, version)) => version,
            None if rest.trim_start().starts_with('"') => rest,
            None => return None,
        };
        let version = quoted.split('"').nth(1)?;
        (bound(version) < *lowest).then(|| format!("{} {version}: {advisory}", name.trim()))
    });
    lines.collect()
}

/// Returns the lowest version of a requirement. Parts that it leaves out are zero.
fn bound(requirement: &str) -> [u64; 3] {
    let mut bound = [0; 3];
    let numbers = requirement.trim_start_matches(['^', '=', '>', '~', ' ']);
    for (place, number) in bound.iter_mut().zip(numbers.split(['.', ','])) {
        *place = number.trim().parse().unwrap_or(0);
    }
    bound
}

#[test]
fn no_manifest_accepts_a_version_with_an_advisory() {
    let manifests: Vec<String> = files()
        .into_iter()
        .filter(|file| file.ends_with("Cargo.toml"))
        .collect();
    assert!(manifests.iter().any(|file| file.starts_with("templates/")));
    for manifest in manifests {
        assert_eq!(too_low(&page(&manifest)), [""; 0], "{manifest}");
    }
}

#[test]
fn each_form_of_a_requirement_is_read() {
    let manifest = |requirement: &str| {
        too_low(&format!(
            "bytes = {{ features = [\"std\"], version = \"{requirement}\" }}\ntime = \"{requirement}\"\n"
        ))
        .len()
    };
    for (requirement, found) in [
        ("1.10", 1),
        ("1", 1),
        ("=1.11.0", 1),
        (">=0.3, <2", 2),
        ("0.3.46", 2),
        ("0.3.47", 1),
        ("1.11.1", 0),
        ("1.12", 0),
        ("2", 0),
    ] {
        assert_eq!(manifest(requirement), found, "{requirement}");
    }
    assert_eq!(
        too_low("bytes.workspace = true\ntime = { workspace = true }"),
        [""; 0]
    );
}
