//! The public interface names types of the client libraries of Redis only where a feature of its own
//! says so: their next major version would be a breaking change here.

use std::collections::BTreeSet;

use quote::ToTokens;
use syn::{
    Attribute, Fields, ImplItem, Item, ItemImpl, Path, TraitItem, Type, UseTree, Visibility,
    visit::{self, Visit},
};

use super::{files, page};

/// The libraries whose types are not to be seen.
const LIBRARIES: [&str; 2] = ["redis", "deadpool_redis"];

fn is_library(name: &str) -> bool {
    LIBRARIES.contains(&name)
}

/// The features that show them.
const FEATURES: [&str; 2] = ["pool", "sentinel-pool"];

/// What is public in these is seen by nobody, or by the feature `testing`, which promises nothing.
const INTERNAL: [&str; 2] = [
    "crates/tollgate-cli/",
    "crates/tollgate-redis/src/protocol/",
];

/// The names that a file has for types of the libraries, and the public items that mention one.
struct File {
    /// The names that the file imports from the libraries.
    names: BTreeSet<String>,
    found: Vec<String>,
}

impl File {
    fn examine(source: &str) -> Vec<String> {
        let parsed = syn::parse_file(source).expect("the sources compile");
        let mut file = Self {
            names: BTreeSet::new(),
            found: Vec::new(),
        };
        for item in &parsed.items {
            if let Item::Use(import) = item {
                file.import(&import.tree, None);
            }
        }
        file.items(&parsed.items);
        file.found
    }

    /// Notes what a tree of names imports from the libraries. `is_within` is set below one of them,
    /// and not known at the root.
    fn import(&mut self, tree: &UseTree, is_within: Option<bool>) {
        let imported = match tree {
            UseTree::Path(path) => {
                let is_library = || is_library(&path.ident.to_string());
                let is_within = is_within.unwrap_or_else(is_library);
                return self.import(&path.tree, Some(is_within));
            }
            UseTree::Group(group) => {
                let trees = group.items.iter();
                return trees.for_each(|tree| self.import(tree, is_within));
            }
            UseTree::Name(name) if name.ident != "self" => &name.ident,
            UseTree::Rename(renamed) => &renamed.rename,
            UseTree::Name(_) | UseTree::Glob(_) => return,
        };
        if is_within == Some(true) {
            self.names.insert(imported.to_string());
        }
    }

    /// Examines the items of a module that others see.
    fn items(&mut self, items: &[Item]) {
        let is_public = |visibility: &Visibility| matches!(visibility, Visibility::Public(_));
        let public: BTreeSet<String> = items
            .iter()
            .filter_map(|item| match item {
                Item::Struct(it) if is_public(&it.vis) => Some(it.ident.to_string()),
                Item::Enum(it) if is_public(&it.vis) => Some(it.ident.to_string()),
                _ => None,
            })
            .collect();
        for item in items {
            match item {
                Item::Fn(it) if is_public(&it.vis) => self.look(&it.attrs, &it.sig),
                Item::Type(it) if is_public(&it.vis) => self.look(&it.attrs, &*it.ty),
                Item::Const(it) if is_public(&it.vis) => self.look(&it.attrs, &*it.ty),
                Item::Static(it) if is_public(&it.vis) => self.look(&it.attrs, &*it.ty),
                Item::Use(it)
                    if is_public(&it.vis) && exposed(&it.attrs) && it.tree.mentions(self) =>
                {
                    self.found.push(it.tree.to_token_stream().to_string());
                }
                Item::Struct(it) if is_public(&it.vis) => self.fields(&it.attrs, &it.fields, false),
                Item::Enum(it) if is_public(&it.vis) => {
                    for variant in &it.variants {
                        self.fields(&variant.attrs, &variant.fields, true);
                    }
                }
                Item::Trait(it) if is_public(&it.vis) => {
                    for method in &it.items {
                        if let TraitItem::Fn(method) = method {
                            self.look(&method.attrs, &method.sig);
                        }
                    }
                }
                Item::Impl(it) if of_public(it, &public) => self.implementation(it),
                Item::Mod(it) if is_public(&it.vis) => {
                    self.items(it.content.as_ref().map_or(&[], |(_, items)| items));
                }
                _ => {}
            }
        }
    }

    fn fields(&mut self, attributes: &[Attribute], fields: &Fields, all: bool) {
        for field in fields {
            if all || matches!(field.vis, Visibility::Public(_)) {
                self.look(attributes, &field.ty);
            }
        }
    }

    fn implementation(&mut self, item: &ItemImpl) {
        match &item.trait_ {
            Some((_, of, _)) => self.look(&item.attrs, of),
            None => {
                for method in &item.items {
                    if let ImplItem::Fn(method) = method
                        && matches!(method.vis, Visibility::Public(_))
                    {
                        self.look(&method.attrs, &method.sig);
                    }
                }
            }
        }
    }

    /// Looks for the libraries in a part of the interface.
    fn look(&mut self, attributes: &[Attribute], part: &(impl ToTokens + Mentions)) {
        if exposed(attributes) && part.mentions(self) {
            self.found.push(part.to_token_stream().to_string());
        }
    }
}

/// Returns whether an item is part of the interface without one of the features.
fn exposed(attributes: &[Attribute]) -> bool {
    !attributes.iter().any(|attribute| {
        let text = attribute.to_token_stream().to_string();
        attribute.path().is_ident("cfg")
            && (text.contains("(test)")
                || FEATURES
                    .iter()
                    .any(|feature| text.contains(&format!("feature = \"{feature}\""))))
    })
}

fn of_public(item: &ItemImpl, public: &BTreeSet<String>) -> bool {
    let Type::Path(of) = &*item.self_ty else {
        return false;
    };
    let name = of.path.segments.last().map(|last| last.ident.to_string());
    name.is_some_and(|name| public.contains(&name))
}

/// Finds the libraries in a part of the interface.
trait Mentions {
    fn mentions(&self, file: &File) -> bool;
}

/// Walks over a signature or a type.
struct Walk<'a> {
    file: &'a File,
    is_found: bool,
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_path(&mut self, path: &'ast Path) {
        let first = path.segments.first().map(|first| first.ident.to_string());
        self.is_found |=
            first.is_some_and(|first| self.file.names.contains(&first) || is_library(&first));
        visit::visit_path(self, path);
    }
}

macro_rules! mentions {
    ($($part:ty => $visit:ident),*) => {$(
        impl Mentions for $part {
            fn mentions(&self, file: &File) -> bool {
                let mut walk = Walk { file, is_found: false };
                walk.$visit(self);
                walk.is_found
            }
        }
    )*};
}

mentions!(syn::Signature => visit_signature, Type => visit_type, Path => visit_path);

impl Mentions for UseTree {
    fn mentions(&self, file: &File) -> bool {
        match self {
            Self::Path(path) => {
                let name = path.ident.to_string();
                file.names.contains(&name) || is_library(&name)
            }
            Self::Name(name) => is_library(&name.ident.to_string()),
            Self::Rename(name) => is_library(&name.ident.to_string()),
            Self::Group(group) => group.items.iter().any(|tree| tree.mentions(file)),
            Self::Glob(_) => false,
        }
    }
}

#[test]
fn the_public_interface_names_the_client_libraries_in_a_feature_of_its_own_alone() {
    let sources: Vec<String> = files()
        .into_iter()
        .filter(|file| file.starts_with("crates/") && file.contains("/src/"))
        .filter(|file| file.ends_with(".rs") && !INTERNAL.iter().any(|it| file.starts_with(it)))
        .collect();
    assert!(
        sources
            .iter()
            .any(|file| file.ends_with("tollgate-redis/src/source.rs"))
    );
    for source in sources {
        assert_eq!(File::examine(&page(&source)), [""; 0], "{source}");
    }
}

#[test]
fn a_type_of_a_client_library_is_found_wherever_the_interface_has_one() {
    let head = "use redis::{self, Client, aio::MultiplexedConnection as Shared};\n\
        pub struct Source(Inner);\nstruct Hidden;\n";
    for (found, line) in [
        (1, "pub fn open(client: Client) {}"),
        (1, "pub fn open() -> Result<(), redis::RedisError> {}"),
        (1, "pub fn open<F>(f: F) where F: Fn(&Shared) {}"),
        (1, "impl From<Client> for Source {}"),
        (1, "impl Source { pub fn client(&self) -> &Client {} }"),
        (1, "pub struct Public { pub client: Client }"),
        (1, "pub enum Public { One(deadpool_redis::Pool) }"),
        (1, "pub trait Public { fn client(&self) -> Client; }"),
        (1, "pub use deadpool_redis;"),
        (1, "pub use redis::Value;"),
        (1, "pub mod within { pub fn open(_: redis::Client) {} }"),
        (
            0,
            "#[cfg(feature = \"pool\")] impl From<Client> for Source {}",
        ),
        (0, "#[cfg(feature = \"pool\")] pub use deadpool_redis;"),
        (0, "impl From<Client> for Hidden {}"),
        (0, "pub(crate) fn open(client: Client) {}"),
        (0, "pub struct Public { client: Client }"),
        (0, "impl Source { pub fn name(&self) -> &str {} }"),
        (0, "impl Source { fn client(&self) -> Client {} }"),
        (0, "pub fn open() { let _ = redis::cmd(\"PING\"); }"),
        (0, "use crate::redis::Kept; pub fn open() -> Kept {}"),
        (0, "pub fn open() -> crate::redis::RedisStore {}"),
    ] {
        let source = format!("{head}{line}\n");
        assert_eq!(File::examine(&source).len(), found, "{line}");
    }
}
