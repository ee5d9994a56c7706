//! Code that is generated from `.proto` files, of the service for Envoy, of the examples and of tests.
//! It is committed, so that a build needs only cargo.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use prost::Message;

/// Returns a folder of the workspace.
fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// Compares the committed files with those just made, or replaces them when `UPDATE_GENERATED` is set.
fn compare(made: &Path, committed: &Path, files: &[String]) {
    for file in files {
        let (made, committed) = (made.join(file), committed.join(file));
        if env::var_os("UPDATE_GENERATED").is_some() {
            fs::copy(&made, &committed).unwrap();
        }
        let is_same = fs::read(&committed)
            .is_ok_and(|committed| fs::read(&made).is_ok_and(|made| committed == made));
        assert!(
            is_same,
            "{file} differs from the code generated from the .proto files: run this test with UPDATE_GENERATED=1 and \
             commit the result"
        );
    }
}

/// Returns the names of the files of a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_generated_code_of_the_service_for_envoy_is_up_to_date() {
    let crate_of_envoy = folder("crates/tollgate-envoy");
    let files = [
        "envoy/service/ratelimit/v3/rls.proto",
        "envoy/service/discovery/v3/ads.proto",
        "ratelimit/config/ratelimit/v3/rls_conf.proto",
        "kuadrantrls.proto",
    ];
    let set = protox::compile(files, [crate_of_envoy.join("proto")]).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let made = scratch.path();
    // A client is made of any channel. `connect` would need that of tonic, which the library alone
    // does without.
    let configuration = tonic_prost_build::configure()
        .out_dir(made)
        .include_file("mod.rs")
        .build_transport(false);
    configuration.compile_fds(set.clone()).unwrap();
    fs::write(made.join("descriptors.bin"), set.encode_to_vec()).unwrap();

    let committed = crate_of_envoy.join("src/proto/generated");
    let files = names(made);
    compare(made, &committed, &files);
    assert_eq!(files, names(&committed));
}

/// Compares the code of one file, and its descriptors where they are committed too.
fn compare_one(committed: &Path, name: &str, with_descriptors: bool) {
    let set = protox::compile([format!("{name}.proto")], [committed]).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let made = scratch.path();
    tonic_prost_build::configure()
        .out_dir(made)
        .compile_fds(set.clone())
        .unwrap();
    let mut files = vec![format!("{name}.rs")];
    if with_descriptors {
        files.push(format!("{name}.bin"));
        fs::write(made.join(&files[1]), set.encode_to_vec()).unwrap();
    }
    compare(made, committed, &files);
}

#[test]
fn the_generated_code_of_the_examples_is_up_to_date() {
    compare_one(&folder("examples/grpc"), "helloworld", true);
}

#[test]
fn the_generated_code_of_the_tests_is_up_to_date() {
    compare_one(
        &folder("crates/tollgate-tonic/tests/it/generated"),
        "echo",
        false,
    );
}
