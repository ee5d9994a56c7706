use super::*;
use std::fs;

/// Writes a crate of these files and returns its graph.
fn graph(files: &[(&str, &str)]) -> Graph {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the directory is ours");
        fs::write(path, text).expect("the directory is ours");
    }
    read(&directory.path().join("lib.rs"), directory.path()).expect("the sources parse")
}

fn circles(files: &[(&str, &str)]) -> Vec<String> {
    graph(files).circles(room)
}

#[test]
fn two_files_that_import_from_each_other_are_a_circle() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B;\npub struct A(B);"),
        ("b.rs", "\nuse super::a::{A, other};\npub struct B(Box<A>);"),
    ]);
    assert_eq!(found, ["a circle of 2 rooms, a, b:\n  a.rs:1 takes B from b.rs\n  b.rs:2 takes A, other from a.rs"]);
}

#[test]
fn three_files_are_a_circle_also_through_paths_in_code_and_in_macros() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "pub fn a() { crate::b::b() }"),
        ("b.rs", "pub fn b() { assert!(super::c::c() > 1); }"),
        ("c.rs", "use crate::a;\n\npub fn c() -> u8 { a::a(); 0 }"),
    ]);
    let [circle] = &found[..] else { panic!("one circle: {found:?}") };
    assert_eq!(
        circle,
        "a circle of 3 rooms, a, b, c:\n  a.rs:1 takes b from b.rs\n  b.rs:1 takes c from c.rs\n  c.rs:3 takes a from a.rs"
    );
}

#[test]
fn a_re_export_leads_to_the_file_that_defines_the_name() {
    let files = [
        ("lib.rs", "mod room; mod user; pub use room::Inner;"),
        ("room/mod.rs", "mod inner; mod other;\npub use inner::Inner;\npub(crate) use other::Other;"),
        ("room/inner.rs", "use crate::user::User;\npub struct Inner(User);"),
        ("room/other.rs", "use super::Inner;\npub struct Other(Inner);"),
        ("user.rs", "use crate::Inner;\npub struct User(Box<Inner>);"),
    ];
    assert_eq!(
        circles(&files),
        [
            "a circle of 2 rooms, room, user:\n  room/inner.rs:1 takes User from user.rs\n  user.rs:1 takes Inner from room/inner.rs"
        ],
    );
    // Without the import from `inner`, `mod.rs` and `lib.rs` are in no circle although all names pass through them.
    let mut files = files;
    files[2].1 = "pub struct Inner;";
    assert_eq!(circles(&files), [""; 0]);
}

#[test]
fn a_re_export_that_the_file_uses_itself_is_an_import() {
    let found = circles(&[
        ("lib.rs", "mod room; mod other;"),
        ("room/mod.rs", "pub(crate) use crate::other::Other;\npub fn make() -> Other { todo!() }"),
        ("other.rs", "pub struct Other;\nfn again() { crate::room::make(); }"),
    ]);
    assert_eq!(
        found,
        [
            "a circle of 2 rooms, other, room:\n  room/mod.rs:2 takes Other from other.rs\n  other.rs:2 takes make from room/mod.rs"
        ],
    );
}

#[test]
fn files_of_one_room_may_import_from_each_other() {
    let files = [
        ("lib.rs", "mod room;"),
        ("room/mod.rs", "mod inner; mod other;\npub(crate) use inner::Inner;\npub fn make() -> Inner { todo!() }"),
        ("room/inner.rs", "use super::other::Other;\npub struct Inner(Other);\nfn again() { super::make(); }"),
        ("room/other.rs", "use super::Inner;\npub struct Other(Box<Inner>);"),
    ];
    assert_eq!(circles(&files), [""; 0]);
}

#[test]
fn a_name_that_comes_through_a_glob_is_followed() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::*;\npub struct A(B);"),
        ("b.rs", "pub struct B(Option<crate::a::A>);"),
    ]);
    assert_eq!(found, ["a circle of 2 rooms, a, b:\n  a.rs:2 takes B from b.rs\n  b.rs:1 takes A from a.rs"]);
}

#[test]
fn a_name_that_a_macro_defines_belongs_to_the_file_of_the_macro() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pin_project! { pub struct A { inner: crate::b::B } }"),
        ("b.rs", "use crate::a::A;\npub struct B(Box<A>);"),
    ]);
    assert_eq!(found, ["a circle of 2 rooms, a, b:\n  a.rs:1 takes B from b.rs\n  b.rs:1 takes A from a.rs"]);
}

#[test]
fn modules_within_one_file_and_test_code_make_no_circle() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b; mod c { pub struct C(super::D); } pub struct D(c::C);"),
        (
            "a.rs",
            "pub struct A;\n#[cfg(test)] mod tests { use crate::b::B; }\n#[cfg(all(test, unix))] use crate::b::B;",
        ),
        ("b.rs", "use crate::a::A;\npub struct B(A);\nimpl B {\n  #[cfg(test)] fn c() { crate::c::C; }\n}"),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn other_crates_and_variables_are_no_imports() {
    let graph = graph(&[
        ("lib.rs", "mod redis; mod wait; pub use wait::wait;"),
        ("redis.rs", "use std::fmt; use redis::Value; fn f(wait: u8) -> ::redis::Value { wait; fmt::Error; todo!() }"),
        ("wait.rs", "pub fn wait() { redis::Client::open(); }"),
    ]);
    assert_eq!(graph.circles(room), [""; 0]);
}

#[test]
fn a_room_is_a_folder_or_a_file_beside_the_root_of_a_crate() {
    for (file, name) in [
        ("crates/tollgate/src/limiter/wait/queue.rs", "crates/tollgate/src/limiter"),
        ("crates/tollgate/src/limiter.rs", "crates/tollgate/src/limiter"),
        ("crates/tollgate/src/redis/server/health.rs", "crates/tollgate/src/redis/server"),
        ("crates/tollgate/src/redis/store.rs", "crates/tollgate/src/redis/store"),
        ("xtask/src/circles/mod.rs", "xtask/src/circles"),
        ("crates/tollgate/src/lib.rs", "crates/tollgate/src/lib"),
    ] {
        assert_eq!(room(file), name);
    }
}

#[test]
fn a_crate_without_a_library_is_read_from_its_main_file() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let sources = directory.path();
    assert_eq!(root(sources), None);
    fs::write(sources.join("main.rs"), "fn main() {}").expect("the directory is ours");
    assert_eq!(root(sources), Some(sources.join("main.rs")));
    fs::write(sources.join("lib.rs"), "").expect("the directory is ours");
    assert_eq!(root(sources), Some(sources.join("lib.rs")));
}
