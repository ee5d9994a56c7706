//! Code that is generated from `.proto` files. It is committed, so that a build needs only cargo.

use std::{env, fs, path::Path};

use prost::Message;

const FILES: [&str; 3] = [
    "envoy/service/ratelimit/v3/rls.proto",
    "envoy/service/discovery/v3/ads.proto",
    "ratelimit/config/ratelimit/v3/rls_conf.proto",
];

#[test]
fn the_generated_code_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let committed = root.join("src/proto/generated");
    let set = protox::compile(FILES, [root.join("proto")]).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path();
    // A client is made of any channel. `connect` would need that of tonic, which the library alone
    // does without.
    let configuration = tonic_prost_build::configure()
        .out_dir(out)
        .include_file("mod.rs")
        .build_transport(false);
    configuration.compile_fds(set.clone()).unwrap();
    fs::write(out.join("descriptors.bin"), set.encode_to_vec()).unwrap();

    let names = |directory: &Path| {
        let mut names: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    if env::var_os("UPDATE_GENERATED").is_some() {
        for name in names(out) {
            fs::copy(out.join(&name), committed.join(&name)).unwrap();
        }
    }
    assert_eq!(names(out), names(&committed));
    for name in names(out) {
        let is_same =
            fs::read(out.join(&name)).unwrap() == fs::read(committed.join(&name)).unwrap();
        assert!(
            is_same,
            "{name:?} differs from the code generated from the .proto files: run this test with UPDATE_GENERATED=1 and \
             commit the result"
        );
    }
}
