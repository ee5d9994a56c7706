//! A project made of the template `templates/service`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tempfile::TempDir;

pub(super) const NAME: &str = "limited-shop";

/// A directory with the files of the template.
///
/// Placeholders and conditions are replaced by [`expand`], in the way of `cargo generate`. Files
/// that the template excludes are copied as they are.
pub(super) struct Project(TempDir);

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace is above")
}

/// Returns the placeholders of the template and their defaults.
pub(super) fn placeholders() -> BTreeMap<String, String> {
    let settings = settings();
    let placeholders = settings["placeholders"].as_table().expect("a table");
    let default = |(name, of): (&String, &toml::Value)| {
        (
            name.clone(),
            of["default"].as_str().unwrap_or_default().to_owned(),
        )
    };
    placeholders.iter().map(default).collect()
}

fn settings() -> toml::Table {
    let text = fs::read_to_string(root().join("templates/service/cargo-generate.toml"))
        .expect("the settings");
    text.parse().expect("valid TOML")
}

impl Project {
    /// Expands the template with the defaults, and this path of Tollgate.
    pub(super) fn generate(tollgate_path: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut values = placeholders();
        values.insert("project-name".to_owned(), NAME.to_owned());
        values.insert("tollgate_path".to_owned(), tollgate_path.to_owned());
        let settings = settings();
        let excluded: Vec<_> = settings["template"]["exclude"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(toml::Value::as_str)
            .collect();
        let template = root().join("templates/service");
        for file in files(&template) {
            let name = file
                .strip_prefix(&template)
                .expect("it lies below")
                .to_str()
                .expect("a name");
            if name == "cargo-generate.toml" {
                continue;
            }
            let mut text = fs::read_to_string(&file).expect("a text");
            if !excluded.contains(&name) {
                text = expand(&text, &values).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            let target = directory.path().join(name);
            fs::create_dir_all(target.parent().expect("a directory")).expect("a directory");
            fs::write(target, text).expect("a file");
        }
        Self(directory)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Returns the documents of a file in YAML.
    pub(super) fn documents(&self, name: &str) -> Vec<Value> {
        documents(name, &self.read(name))
    }
}

/// Returns the documents of a text in YAML.
pub(super) fn documents(name: &str, text: &str) -> Vec<Value> {
    let parse =
        |text| serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    text.split("\n---\n").map(parse).collect()
}

/// Returns the texts of a list.
pub(super) fn texts(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| item.as_str().expect("a text"))
        .collect()
}

/// Returns the directory of the machine that is mounted at a path, for a service of a compose file.
pub(super) fn mounted(service: &Value, at: &str) -> String {
    let mounts = texts(&service["volumes"]);
    let found = mounts
        .iter()
        .find_map(|mount| mount.strip_suffix(":ro")?.strip_suffix(&format!(":{at}")));
    found
        .unwrap_or_else(|| panic!("nothing is mounted at {at}: {mounts:?}"))
        .to_owned()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Replaces `{{name}}`, and `{% if name == "" %}` with `!=`, `else` and `endif`. A `-` removes the
/// space beside a tag.
///
/// This is the part of Liquid that the template uses. Everything else is an error.
fn expand(text: &str, values: &BTreeMap<String, String>) -> Result<String, String> {
    let mut output = String::new();
    // Whether each condition around the place is met.
    let mut conditions: Vec<bool> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        let (before, tag) = rest.split_at(at);
        let end = if tag.starts_with("{{") { "}}" } else { "%}" };
        let (inside, after) = tag[2..].split_once(end).ok_or("a tag has no end")?;
        let is_taken = |conditions: &[bool]| conditions.iter().all(|is_met| *is_met);
        if is_taken(&conditions) {
            output.push_str(if inside.starts_with('-') {
                before.trim_end()
            } else {
                before
            });
        }
        let value = |name: &str| {
            values
                .get(name)
                .ok_or_else(|| format!("{name} is no placeholder"))
        };
        let words: Vec<_> = inside.trim_matches('-').split_whitespace().collect();
        match words[..] {
            [name] if end == "}}" => {
                let value = value(name)?;
                if is_taken(&conditions) {
                    output.push_str(value);
                }
            }
            ["if", name, "==", "\"\""] => conditions.push(value(name)?.is_empty()),
            ["if", name, "!=", "\"\""] => conditions.push(!value(name)?.is_empty()),
            ["else"] => {
                let last = conditions.last_mut().ok_or("else without if")?;
                *last = !*last;
            }
            ["endif"] => drop(conditions.pop().ok_or("endif without if")?),
            _ => return Err(format!("{inside:?} is no tag of this template")),
        }
        rest = if inside.ends_with('-') {
            after.trim_start()
        } else {
            after
        };
    }
    if !conditions.is_empty() {
        return Err("an if has no end".to_owned());
    }
    output.push_str(rest);
    Ok(output)
}

#[test]
fn conditions_and_names_are_expanded_and_mistakes_are_told() {
    let values = [("a", ""), ("b", "x-y")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let of = |text: &str| expand(text, &values);
    assert_eq!(
        of("{k: {{b}}} {% if a == \"\" %}1{% else %}{{b}}{% endif %}!").as_deref(),
        Ok("{k: x-y} 1!")
    );
    assert_eq!(
        of("1\n{% if a != \"\" -%}\n2\n{% endif -%}\n3").as_deref(),
        Ok("1\n3")
    );
    assert_eq!(
        of("1\n{%- if b != \"\" %}\n2\n{%- endif %}\n3").as_deref(),
        Ok("1\n2\n3")
    );
    for mistake in [
        "{{c}}",
        "{{",
        "{% if a %}{% endif %}",
        "{% if a == \"\" %}",
        "{% else %}",
        "{% endif %}",
    ] {
        assert!(of(mistake).is_err(), "{mistake}");
    }
}
