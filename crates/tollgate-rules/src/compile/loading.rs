//! The entries of loading: from texts, files or directories to a set of rules.
//! Their options are in `builder.rs`. Files are read in `load.rs`, and their trees are checked in
//! `files.rs` and beside it.

use std::path::{Path, PathBuf};

use super::{
    builder::RuleSetBuilder,
    files::{SourceText, compile},
};
use crate::{Format, RuleError, RuleErrors, RuleSet, load};

impl RuleSet {
    /// Parses one text with the default options.
    ///
    /// # Errors
    ///
    /// Fails with every mistake that was found.
    pub fn parse(text: &str, format: Format) -> Result<Self, RuleErrors> {
        Self::builder().parse(text, format)
    }

    /// Loads a file, or all files of a directory, with the default options: see
    /// [`RuleSetBuilder::load`].
    ///
    /// # Errors
    ///
    /// Fails with every mistake that was found.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, RuleErrors> {
        Self::builder().load(path)
    }

    /// Returns a builder, to set options.
    #[must_use]
    pub fn builder() -> RuleSetBuilder {
        RuleSetBuilder::default()
    }
}

impl RuleSetBuilder {
    /// Parses one text.
    ///
    /// # Errors
    ///
    /// Fails with every mistake that was found.
    pub fn parse(&self, text: &str, format: Format) -> Result<RuleSet, RuleErrors> {
        let text = Ok((text.into(), format));
        compile(self, [SourceText { file: None, text }], &mut Vec::new())
    }

    /// Parses several texts as one set. A mistake is reported with the name of its text.
    ///
    /// Use it for rules that do not come from files, but for example from a database or a control
    /// plane.
    ///
    /// ```
    /// use tollgate_rules::{Format, RuleSet};
    ///
    /// let rules = RuleSet::builder().parse_all([("a", "domain: shop", Format::Yaml), ("b", "domain: bank", Format::Yaml)])?;
    /// assert_eq!(rules.domains().len(), 2);
    ///
    /// let errors = RuleSet::builder().parse_all([("a", "domain: ''", Format::Yaml)]).unwrap_err();
    /// assert_eq!(errors.to_string(), "a:1:9: domain: must not be empty");
    /// # Ok::<(), tollgate_rules::RuleErrors>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with every mistake that was found in any of the texts.
    pub fn parse_all<'t>(
        &self,
        texts: impl IntoIterator<Item = (impl AsRef<Path>, &'t str, Format)>,
    ) -> Result<RuleSet, RuleErrors> {
        let sources = texts.into_iter().map(|(name, text, format)| {
            let file = Some(name.as_ref().into());
            let text = Ok((text.into(), format));
            SourceText { file, text }
        });
        compile(self, sources, &mut Vec::new())
    }

    /// Loads a file, or all files of a directory.
    ///
    /// The extension of a file decides its format: `.yaml`, `.yml`, `.json`, and with the feature
    /// `toml` also `.toml`. In a directory, all files with these extensions are read, in the order
    /// of their names. Subdirectories are skipped, and so are names that start with a dot, such as
    /// the internal entries of a Kubernetes config map.
    ///
    /// A file that changes while it is read is read again, up to three times in all.
    ///
    /// # Errors
    ///
    /// Fails with every mistake that was found in any of the files.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<RuleSet, RuleErrors> {
        self.load_noting(path.as_ref(), &mut Vec::new())
    }

    /// Loads as [`load`](Self::load) does, and notes the files of networks that the rules name,
    /// also when the load fails.
    pub(crate) fn load_noting(
        &self,
        path: &Path,
        lists: &mut Vec<PathBuf>,
    ) -> Result<RuleSet, RuleErrors> {
        let files = self
            .files(path)
            .map_err(|error| error.in_file(Some(&path.into())))?;
        compile(self, self.sources(files), lists)
    }

    /// Returns the files that [`load`](Self::load) reads.
    pub(crate) fn files(&self, path: &Path) -> Result<Vec<PathBuf>, RuleError> {
        match path.is_dir() {
            true => load::directory(path, &self.limits),
            false => Ok(vec![path.to_owned()]),
        }
    }

    /// Returns a digest of what [`load`](Self::load) reads, with the files of networks in `lists`.
    /// It differs when a file changes, comes or goes.
    #[cfg(feature = "watch")]
    pub(crate) fn digest(&self, path: &Path, lists: &[PathBuf]) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};

        let mut hasher = DefaultHasher::new();
        // A file that cannot be read differs from one that can.
        match self.files(path) {
            Ok(files) => {
                for file in files.iter().chain(lists) {
                    let text = load::text(file, &self.limits).map_err(|error| error.to_string());
                    (file, text).hash(&mut hasher);
                }
            }
            Err(error) => error.to_string().hash(&mut hasher),
        }
        hasher.finish()
    }

    /// Loads several files as one set.
    ///
    /// # Errors
    ///
    /// Fails with every mistake that was found in any of the files.
    pub fn load_files(
        &self,
        paths: impl IntoIterator<Item = impl AsRef<Path>>,
    ) -> Result<RuleSet, RuleErrors> {
        compile(self, self.sources(paths), &mut Vec::new())
    }

    fn sources(
        &self,
        paths: impl IntoIterator<Item = impl AsRef<Path>>,
    ) -> impl Iterator<Item = SourceText<'static>> {
        paths.into_iter().map(|path| {
            let path = path.as_ref();
            let text = load::rules(path, &self.limits);
            SourceText {
                file: Some(path.into()),
                text: text.map(|(text, format)| (text.into(), format)),
            }
        })
    }
}
