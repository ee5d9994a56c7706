//! Writes the code of a limited function: the check, and behind it the body as it was.
//! The options are read in `options.rs`. Whatever can be a function of the core is one, and is only
//! called here.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Expr, ExprLit, Ident, ItemFn, Lit, ReturnType, TraitItemFn, Type, spanned::Spanned};

use crate::options::{Options, Wait};

const NOT_A_FUNCTION: &str = "`limited` applies to an async function or method";
const NO_BODY: &str =
    "`limited` applies to a function with a body: place it on the method in the `impl` block";
const NOT_ASYNC: &str =
    "a limited function must be `async`: in other functions, call `Limiter::block_on`";
const NO_RESULT: &str = "a limited function must return a `Result`, because a call may be denied: \
                         its error type must implement `From<tollgate::Denied>` and `From<tollgate::Error>`";

/// Puts the check before the body of the function, and leaves all else as it is.
///
/// The alternative was a closure, `limiter.run(key, wait, async || …)`. It reads worse: `?` and
/// `return` in it end the closure, its borrows end with the call, and it has two layers of results.
/// It gains nothing over the line itself.
pub(crate) fn expand(options: &Options, function: TokenStream) -> syn::Result<TokenStream> {
    let Ok(ItemFn {
        attrs,
        vis,
        sig,
        block,
    }) = syn::parse2::<ItemFn>(function.clone())
    else {
        let is_declaration = syn::parse2::<TraitItemFn>(function.clone()).is_ok();
        let message = if is_declaration {
            NO_BODY
        } else {
            NOT_A_FUNCTION
        };
        return Err(syn::Error::new_spanned(function, message));
    };
    if sig.asyncness.is_none() {
        return Err(syn::Error::new(sig.fn_token.span, NOT_ASYNC));
    }
    let output = match &sig.output {
        ReturnType::Type(_, output) if !is_unit(output) => output,
        ReturnType::Type(_, output) => return Err(syn::Error::new(output.span(), NO_RESULT)),
        ReturnType::Default => return Err(syn::Error::new(sig.ident.span(), NO_RESULT)),
    };
    let check = check(options, output);
    let statements = &block.stmts;
    Ok(quote! {
        #(#attrs)*
        #vis #sig {
            #check
            #(#statements)*
        }
    })
}

/// Writes the check. Its own variables are invisible to the expressions of the user.
fn check(options: &Options, output: &Type) -> TokenStream {
    let Options {
        limiter: limiter_expr,
        key: key_expr,
        ..
    } = options;
    let tollgate = match &options.tollgate {
        Some(path) => quote!(#path),
        None => quote!(::tollgate),
    };
    let variable = |name| Ident::new(name, Span::mixed_site());
    let (limiter, key, cost, decision) = (
        variable("limiter"),
        variable("key"),
        variable("cost"),
        variable("decision"),
    );
    // The borrow is where the expression is, so that a wrong type is reported there.
    let borrow = quote_spanned!(limiter_expr.span()=> &);
    let into = quote_spanned!(key_expr.span()=> ::core::convert::Into::into);
    let cost_value = match &options.cost {
        // Two numbers convert into a cost, so the compiler would take a number without a type for
        // an `i32`.
        Some(Expr::Lit(ExprLit {
            lit: Lit::Int(units),
            ..
        })) if units.suffix().is_empty() => {
            quote!(#tollgate::Cost::new(#units))
        }
        Some(expr) => {
            let into = quote_spanned!(expr.span()=> ::core::convert::Into::into);
            quote!(#into(#expr))
        }
        None => quote!(#tollgate::Cost::ONE),
    };
    let answer = match &options.wait {
        None => {
            quote!(let #decision = #tollgate::Limiter::check(#limiter, #key).cost(#cost).await;)
        }
        Some(longest) => {
            let (wait, longest) = (variable("wait"), longest.tokens());
            quote! {
                let #wait: ::core::time::Duration = #longest;
                let #decision = #tollgate::Limiter::check(#limiter, #key).cost(#cost).wait(#wait).await;
            }
        }
    };
    // An error that cannot be converted is reported at the type that the function returns.
    let success = |name| {
        let result = Ident::new(name, Span::mixed_site().located_at(output.span()));
        quote_spanned!(output.span()=> #result?)
    };
    let (passed, decided, admitted) = (variable("passed"), success("decision"), success("passed"));
    quote! {
        {
            let #limiter: &#tollgate::Limiter = #borrow #limiter_expr;
            let #key: #tollgate::Key = #into(#key_expr);
            let #cost: #tollgate::Cost = #cost_value;
            #answer
            let #decision = #decided;
            let #passed = #tollgate::Decision::into_result(#decision);
            #admitted;
        }
    }
}

impl Wait {
    fn tokens(&self) -> TokenStream {
        match self {
            Self::Text(wait) => {
                let us = wait.as_micros() as u64;
                quote!(::core::time::Duration::from_micros(#us))
            }
            Self::Expr(wait) => quote!(#wait),
        }
    }
}

fn is_unit(output: &Type) -> bool {
    matches!(output, Type::Tuple(tuple) if tuple.elems.is_empty())
}
