//! Code that is generated from `.proto` files. It is committed, so that a build needs only cargo.

use std::{env, fs, path::Path};

use prost::Message;

#[allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all, reason = "generated")]
#[rustfmt::skip]
pub(crate) mod echo;

/// Compares the generated code with the committed code, or replaces it when `UPDATE_GENERATED` is set.
fn check(directory: &Path, name: &str, descriptors: bool) {
    let set = protox::compile([format!("{name}.proto")], [directory]).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .out_dir(scratch.path())
        .compile_fds(set.clone())
        .unwrap();

    let mut made = vec![(
        format!("{name}.rs"),
        fs::read(scratch.path().join(format!("{name}.rs"))).unwrap(),
    )];
    if descriptors {
        made.push((format!("{name}.bin"), set.encode_to_vec()));
    }
    for (file, content) in made {
        let committed = directory.join(&file);
        if env::var_os("UPDATE_GENERATED").is_some() {
            fs::write(&committed, &content).unwrap();
        }
        let is_same = fs::read(&committed).is_ok_and(|committed| committed == content);
        assert!(
            is_same,
            "{file} differs from the code generated from its .proto: run this test with UPDATE_GENERATED=1 and commit the result"
        );
    }
}

#[test]
fn the_generated_code_of_the_examples_is_up_to_date() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/grpc");
    check(&examples, "helloworld", true);
}

#[test]
fn the_generated_code_of_the_tests_is_up_to_date() {
    check(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/generated"),
        "echo",
        false,
    );
}
