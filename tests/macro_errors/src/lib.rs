//! The messages of the compiler about a wrong attribute `tollgate::limited`. The attribute on functions of
//! all shapes is tested in `tests/macros`.
//!
//! A crate of its own: trybuild compiles once more what this crate depends on.

#[test]
fn a_wrong_attribute_is_reported_where_it_is_wrong_with_what_would_be_right() {
    trybuild::TestCases::new().compile_fail("compile_fail/*.rs");
}
