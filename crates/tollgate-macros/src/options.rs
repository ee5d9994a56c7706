//! Reads what stands between the parentheses of the attribute, and reports what is wrong there.
//! What the options mean for the function is in `expand.rs`, texts of periods in `period.rs`.

use std::time::Duration;

use proc_macro2::Span;
use syn::{
    Expr, ExprLit, Ident, Lit, Path, Token,
    ext::IdentExt,
    parse::{Parse, ParseStream},
};

use crate::period;

/// The options of the attribute.
pub(crate) struct Options {
    pub(crate) limiter: Expr,
    pub(crate) key: Expr,
    pub(crate) wait: Option<Wait>,
    pub(crate) cost: Option<Expr>,
    pub(crate) tollgate: Option<Path>,
}

/// The longest wait.
pub(crate) enum Wait {
    Text(Duration),
    Expr(Box<Expr>),
}

const NAMES: &str = "`limiter`, `key`, `wait`, `cost` or `crate`";

const LIMITER_IS_MISSING: &str =
    "`limiter` is missing: add `limiter = …`, an expression of type `tollgate::Limiter`";
const KEY_IS_MISSING: &str = "`key` is missing: add `key = …`, the text or number whose quota is spent, \
                              or one text if all calls share a quota";

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let (mut limiter, mut key, mut wait, mut cost, mut tollgate) =
            (None, None, None, None, None);
        while !input.is_empty() {
            let name = input.call(Ident::parse_any)?;
            if !input.peek(Token![=]) {
                return Err(syn::Error::new(
                    name.span(),
                    format!("expected `{name} = …`"),
                ));
            }
            input.parse::<Token![=]>()?;
            match name.to_string().as_str() {
                "limiter" => set(&mut limiter, &name, input.parse()?)?,
                "key" => set(&mut key, &name, input.parse()?)?,
                "wait" => set(&mut wait, &name, input.parse()?)?,
                "cost" => set(&mut cost, &name, input.parse()?)?,
                "crate" => set(&mut tollgate, &name, input.call(Path::parse_mod_style)?)?,
                _ => {
                    return Err(syn::Error::new(
                        name.span(),
                        format!("unknown option `{name}`, expected {NAMES}"),
                    ));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let missing = |message| syn::Error::new(Span::call_site(), message);
        Ok(Self {
            limiter: limiter.ok_or_else(|| missing(LIMITER_IS_MISSING))?,
            key: key.ok_or_else(|| missing(KEY_IS_MISSING))?,
            wait,
            cost,
            tollgate,
        })
    }
}

fn set<T>(option: &mut Option<T>, name: &Ident, value: T) -> syn::Result<()> {
    match option.replace(value) {
        Some(_) => Err(syn::Error::new(
            name.span(),
            format!("`{name}` is given twice"),
        )),
        None => Ok(()),
    }
}

impl Parse for Wait {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        match input.parse()? {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text),
                ..
            }) => period::parse(&text.value())
                .map(Self::Text)
                .map_err(|message| syn::Error::new(text.span(), format!("`wait`: {message}"))),
            Expr::Lit(ExprLit {
                lit: lit @ (Lit::Int(_) | Lit::Float(_)),
                ..
            }) => Err(syn::Error::new(
                lit.span(),
                "`wait` has no unit: write a text such as \"2s\", or a `Duration`",
            )),
            expr => Ok(Self::Expr(Box::new(expr))),
        }
    }
}
