//! Reads the modules of a crate and resolves paths to the files that define their names.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use syn::{Attribute, Expr, Item, ItemUse, Lit, Meta, UseTree, Visibility, punctuated::Punctuated, token::Comma};

use crate::failure::Failure;

/// Re-exports of re-exports are followed this far; a longer chain is a circle of `use` items, which rustc rejects.
const DEEPEST: usize = 32;

/// The modules of one crate, without its test code.
pub(super) struct Sources {
    pub(super) files: Vec<File>,
    pub(super) modules: Vec<Module>,
}

/// One source file.
pub(super) struct File {
    pub(super) name: String,
    pub(super) items: Vec<Item>,
    pub(super) module: usize,
}

/// A module: a file, or a block within one.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) file: usize,
    parent: Option<usize>,
    names: HashMap<String, Vec<Definition>>,
    /// Modules all of whose names are imported.
    globs: Vec<Vec<String>>,
}

/// Describes the meaning of a name in a module.
#[derive(Clone, Debug)]
enum Definition {
    /// A child module.
    Module(usize),
    /// An item of this module.
    Item,
    /// An import, or a re-export, of another path.
    Import(Vec<String>),
}

/// Describes the target of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// An item that this file defines.
    File(usize),
    /// A module of the crate.
    Module(usize),
}

impl Sources {
    /// Reads the crate whose root file is `root`; files are named relative to `base`.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or parsed, or a declared module has no file.
    pub(super) fn load(root: &Path, base: &Path) -> Result<Self, Failure> {
        let mut sources = Self { files: Vec::new(), modules: Vec::new() };
        let directory = root.parent().unwrap_or(base).to_owned();
        sources.load_file(root, base, &directory, None)?;
        Ok(sources)
    }

    /// Reads a file as a module, and the files of its children in `directory`.
    fn load_file(
        &mut self,
        path: &Path,
        base: &Path,
        directory: &Path,
        parent: Option<usize>,
    ) -> Result<usize, Failure> {
        let broken = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| broken(&error))?;
        let items = syn::parse_file(&text).map_err(|error| broken(&error))?.items;
        let name = path.strip_prefix(base).unwrap_or(path).to_string_lossy().into_owned();
        let (file, module) = (self.files.len(), self.modules.len());
        self.files.push(File { name, items: Vec::new(), module });
        self.load_module(&items, file, base, directory, parent)?;
        self.files[file].items = items;
        Ok(module)
    }

    fn load_module(
        &mut self,
        items: &[Item],
        file: usize,
        base: &Path,
        directory: &Path,
        parent: Option<usize>,
    ) -> Result<usize, Failure> {
        let module = self.modules.len();
        self.modules.push(Module { file, parent, names: HashMap::new(), globs: Vec::new() });
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            match item {
                Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let below = directory.join(&name);
                    let child = match &child.content {
                        Some((_, items)) => self.load_module(items, file, base, &below, Some(module))?,
                        None => {
                            let (path, below) = child_file(&child.attrs, directory, &name)?;
                            self.load_file(&path, base, &below, Some(module))?
                        }
                    };
                    self.define(module, name, Definition::Module(child));
                }
                Item::Use(item) => {
                    for import in imports(item) {
                        self.import(module, import);
                    }
                }
                item => {
                    if let Some(name) = name(item) {
                        self.define(module, name, Definition::Item);
                    }
                }
            }
        }
        Ok(module)
    }

    /// Makes an import known, also one that stands within a function.
    pub(super) fn import(&mut self, module: usize, import: Import) {
        if import.name == "*" {
            self.modules[module].globs.push(import.path);
        } else {
            self.define(module, import.name, Definition::Import(import.path));
        }
    }

    fn define(&mut self, module: usize, name: String, definition: Definition) {
        self.modules[module].names.entry(name).or_default().push(definition);
    }

    /// Returns the child module of this name.
    pub(super) fn child(&self, module: usize, name: &str) -> Option<usize> {
        let definitions = self.modules[module].names.get(name)?;
        definitions.iter().find_map(|definition| if let Definition::Module(at) = definition { Some(*at) } else { None })
    }

    /// Returns what a path leads to that stands in `module`; nothing where it leaves the crate.
    pub(super) fn resolve(&self, module: usize, path: &[String]) -> Vec<Target> {
        let mut targets = self.follow(module, path, 0);
        targets.sort();
        targets.dedup();
        targets
    }

    fn follow(&self, module: usize, path: &[String], depth: usize) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let start = match first.as_str() {
            "crate" => Some(0),
            "self" => Some(module),
            "super" => match self.modules[module].parent {
                Some(parent) => Some(parent),
                None => return Vec::new(),
            },
            _ => None,
        };
        match start {
            Some(start) if rest.is_empty() => vec![Target::Module(start)],
            // `super::super::name`
            Some(start) if rest[0] == "super" => self.follow(start, rest, depth),
            Some(start) => self.within(start, rest, depth, true),
            None => self.within(module, path, depth, false),
        }
    }

    /// Looks the path up among the names of `module`. Where `is_certain` says that the path leads into this module, an
    /// unknown name is one that a macro defines there.
    fn within(&self, module: usize, path: &[String], depth: usize, is_certain: bool) -> Vec<Target> {
        if depth > DEEPEST {
            return Vec::new();
        }
        let (first, rest) = (&path[0], &path[1..]);
        let mut targets = Vec::new();
        let definitions = self.modules[module].names.get(first).map(Vec::as_slice).unwrap_or_default();
        for definition in definitions {
            match definition {
                Definition::Module(child) if rest.is_empty() => targets.push(Target::Module(*child)),
                Definition::Module(child) => targets.extend(self.within(*child, rest, depth + 1, true)),
                Definition::Item => targets.push(Target::File(self.modules[module].file)),
                Definition::Import(of) => {
                    for target in self.import_target(module, of, depth) {
                        match target {
                            Target::Module(at) if !rest.is_empty() => {
                                targets.extend(self.within(at, rest, depth + 1, true));
                            }
                            target => targets.push(target),
                        }
                    }
                }
            }
        }
        if definitions.is_empty() {
            for glob in &self.modules[module].globs {
                for target in self.import_target(module, glob, depth) {
                    if let Target::Module(at) = target {
                        targets.extend(self.within(at, path, depth + 1, false));
                    }
                }
            }
            if targets.is_empty() && is_certain {
                targets.push(Target::File(self.modules[module].file));
            }
        }
        targets
    }

    fn import_target(&self, module: usize, path: &[String], depth: usize) -> Vec<Target> {
        // `use name::other` in a module that declares `name` itself is no loop, `use name;` is another crate.
        if path.len() == 1 && !["crate", "self", "super"].contains(&path[0].as_str()) {
            let is_child = self.child(module, &path[0]).map(Target::Module);
            return is_child.into_iter().collect();
        }
        self.follow(module, path, depth + 1)
    }
}

/// One name that a `use` item imports.
#[derive(Clone, Debug)]
pub(super) struct Import {
    /// The name in this module; `*` for all names of the path.
    pub(super) name: String,
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

/// Returns the names that a `use` item imports from this crate or from names in scope.
pub(super) fn imports(item: &ItemUse) -> Vec<Import> {
    let mut found = Vec::new();
    if item.leading_colon.is_none() {
        flatten(&item.tree, &mut Vec::new(), &mut found);
    }
    found
}

fn flatten(tree: &UseTree, path: &mut Vec<String>, found: &mut Vec<Import>) {
    let mut push = |ident: &proc_macro2::Ident, name: String, path: Vec<String>| {
        found.push(Import { name, path, line: ident.span().start().line });
    };
    match tree {
        UseTree::Path(tree) => {
            path.push(tree.ident.to_string());
            flatten(&tree.tree, path, found);
            path.pop();
        }
        UseTree::Name(tree) if tree.ident == "self" => {
            push(&tree.ident, path.last().cloned().unwrap_or_default(), path.clone());
        }
        UseTree::Name(tree) => {
            let name = tree.ident.to_string();
            push(&tree.ident, name.clone(), [path.as_slice(), &[name]].concat());
        }
        UseTree::Rename(tree) => {
            let own = if tree.ident == "self" { Vec::new() } else { vec![tree.ident.to_string()] };
            push(&tree.ident, tree.rename.to_string(), [path.as_slice(), &own].concat());
        }
        UseTree::Glob(tree) => {
            found.push(Import {
                name: "*".to_owned(),
                path: path.clone(),
                line: tree.star_token.spans[0].start().line,
            });
        }
        UseTree::Group(tree) => tree.items.iter().for_each(|tree| flatten(tree, path, found)),
    }
}

/// Returns whether a `use` item makes its names visible outside of its module.
pub(super) fn is_re_export(item: &ItemUse) -> bool {
    !matches!(item.vis, Visibility::Inherited)
}

/// Returns whether the attributes keep an item out of every build but that of the tests.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<Meta>().is_ok_and(|meta| needs_test(&meta))
    })
}

fn needs_test(meta: &Meta) -> bool {
    match meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => {
            let Ok(parts) = list.parse_args_with(Punctuated::<Meta, Comma>::parse_terminated) else { return false };
            list.path.is_ident("all") && parts.iter().any(needs_test)
                || list.path.is_ident("any") && parts.iter().all(needs_test)
        }
        Meta::NameValue(_) => false,
    }
}

/// Returns the file of a declared module, and the folder of its children.
fn child_file(attributes: &[Attribute], directory: &Path, name: &str) -> Result<(PathBuf, PathBuf), Failure> {
    if let Some(path) = attributes.iter().find_map(path_attribute) {
        let path = directory.join(path);
        let below = path.parent().unwrap_or(directory).to_owned();
        return Ok((path, below));
    }
    let below = directory.join(name);
    [directory.join(format!("{name}.rs")), below.join("mod.rs")]
        .into_iter()
        .find(|path| path.is_file())
        .map(|path| (path, below))
        .ok_or_else(|| Failure::new(format!("the module {name} has no file in {}", directory.display())))
}

fn path_attribute(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    let Expr::Lit(literal) = &pair.value else { return None };
    match &literal.lit {
        Lit::Str(path) if pair.path.is_ident("path") => Some(path.value()),
        _ => None,
    }
}

pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}
