//! The attribute [`macro@limited`]. Use it as `tollgate::limited`, which describes it, with the
//! feature `macros` of the `tollgate` crate.

// Reading is in `options.rs` and `period.rs`, writing in `expand.rs`. Documentation for users
// stands in `tollgate`.

mod expand;
mod options;
mod period;

use proc_macro::TokenStream;

#[expect(
    missing_docs,
    reason = "`tollgate` describes it, with examples, which need that crate"
)]
#[proc_macro_attribute]
pub fn limited(options: TokenStream, function: TokenStream) -> TokenStream {
    let expanded =
        syn::parse(options).and_then(|options| expand::expand(&options, function.clone().into()));
    match expanded {
        Ok(expanded) => expanded.into(),
        Err(error) => {
            // The function stays, so that its callers cause no errors of their own.
            let mut tokens = TokenStream::from(error.into_compile_error());
            tokens.extend(function);
            tokens
        }
    }
}
