//! Collects the paths that a file uses: its imports, and the paths in its code.

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, ImplItem, Item, ItemMod, ItemUse, Macro, Visibility,
    visit::{self, Visit},
};

use super::source::{Import, Sources, attributes, imports, is_re_export, is_test};

/// A path in the code of a module.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) module: usize,
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

/// The paths of one file.
pub(super) struct Uses<'a> {
    sources: &'a Sources,
    module: usize,
    pub(super) found: Vec<Use>,
}

impl<'a> Uses<'a> {
    /// Collects the paths of the file with this number.
    pub(super) fn of(sources: &'a Sources, file: usize) -> Vec<Use> {
        let file = &sources.files[file];
        let mut uses = Self { sources, module: file.module, found: Vec::new() };
        file.items.iter().for_each(|item| uses.visit_item(item));
        uses.found
    }

    fn push(&mut self, path: Vec<String>, line: usize) {
        self.found.push(Use { module: self.module, path, line });
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Const(item) => &item.attrs,
            _ => return visit::visit_impl_item(self, item),
        };
        if !is_test(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    /// Code of a module in a block belongs to this file, with the names of that module.
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let Some((_, items)) = &item.content else { return };
        let Some(child) = self.sources.child(self.module, &item.ident.to_string()) else { return };
        let outer = std::mem::replace(&mut self.module, child);
        items.iter().for_each(|item| self.visit_item(item));
        self.module = outer;
    }

    /// A re-export alone is no dependency: whoever uses the name depends on the file that defines it.
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if is_re_export(item) {
            return;
        }
        for Import { name, path, line } in imports(item) {
            // The names that a glob brings are found where they are used.
            if name != "*" {
                self.push(path, line);
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            let line = path.segments.first().map_or(0, |segment| segment.ident.span().start().line);
            self.push(segments, line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        visit::visit_macro(self, item);
        self.visit_tokens(item.tokens.clone());
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

impl Uses<'_> {
    /// Finds the paths among the arguments of a macro. A single word counts where it is written as a type: any other may
    /// be a variable.
    fn visit_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut line, mut colons) = (0, 0);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end(&mut path, line);
                        line = ident.span().start().line;
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.end(&mut path, line);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.visit_tokens(group.stream());
                    }
                }
            }
        }
        self.end(&mut path, line);
    }

    fn end(&mut self, path: &mut Vec<String>, line: usize) {
        let path = std::mem::take(path);
        let is_type = path.first().is_some_and(|word| word.starts_with(char::is_uppercase));
        if path.len() > 1 || is_type {
            self.push(path, line);
        }
    }
}
