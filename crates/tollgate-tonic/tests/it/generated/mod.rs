//! Code that is generated from `.proto` files and committed, so that nothing but cargo is needed to build it.

use std::{env, fs, path::Path};

use prost::Message;

#[allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all, reason = "generated")]
#[rustfmt::skip]
pub(crate) mod echo;

/// Compares what is generated with what is committed, or replaces it where `UPDATE_GENERATED` is set.
fn check(directory: &Path, name: &str, descriptors: bool) {
    let set = protox::compile([format!("{name}.proto")], [directory]).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    tonic_prost_build::configure().out_dir(scratch.path()).compile_fds(set.clone()).unwrap();

    let mut made = vec![(format!("{name}.rs"), fs::read(scratch.path().join(format!("{name}.rs"))).unwrap())];
    if descriptors {
        made.push((format!("{name}.bin"), set.encode_to_vec()));
    }
    for (file, content) in made {
        let committed = directory.join(&file);
        if env::var_os("UPDATE_GENERATED").is_some() {
            fs::write(&committed, &content).unwrap();
        }
        let is_same = fs::read(&committed).is_ok_and(|committed| committed == content);
        assert!(is_same, "{file} is not what its .proto makes: run this test with UPDATE_GENERATED=1, and commit");
    }
}

#[test]
fn the_code_of_the_examples_is_what_its_proto_makes() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/grpc");
    check(&examples, "helloworld", true);
}

#[test]
fn the_code_of_these_tests_is_what_its_proto_makes() {
    check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/generated"), "echo", false);
}
