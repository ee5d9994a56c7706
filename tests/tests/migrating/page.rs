//! The page itself. Its code is compiled and run with the doctests of the examples.

const PAGE: &str = include_str!("../../../docs/migrating.md");

#[test]
fn every_pair_of_the_page_names_its_test_and_stored_state_is_said_to_stay_behind() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let sections: Vec<_> = PAGE
        .split("\n## ")
        .skip(1)
        .filter(|section| section.contains("```"))
        .collect();
    assert_eq!(sections.len(), 9, "pairs of the page");
    for section in sections {
        let title = section.lines().next().unwrap_or_default();
        let (_, tested) = section
            .split_once("Tested in `")
            .unwrap_or_else(|| panic!("{title}: no test"));
        let (file, _) = tested.split_once('`').expect("the end of the name");
        assert!(
            std::path::Path::new(root).join(file).is_file(),
            "{title}: {file}"
        );
    }
    assert!(PAGE.contains("Stored state is not carried over"));
}
