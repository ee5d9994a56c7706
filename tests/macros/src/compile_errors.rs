//! Compares what the compiler says about a wrong attribute.

#[test]
fn a_wrong_attribute_is_reported_where_it_is_wrong_with_what_would_be_right() {
    trybuild::TestCases::new().compile_fail("compile_fail/*.rs");
}
