//! The macro that implements `Debug` by some fields. A type that shows all of its fields derives it.

/// Implements `Debug` for a type by some of its fields.
///
/// A field that is not listed is not shown: a key, a secret, a closure. `..` at the end stands in the
/// output, too. What follows `name =` is a path from `self`.
///
/// The crates around Tollgate use it, and so may a store of your own.
///
/// ```
/// struct Account {
///     name: String,
///     password: String,
///     visits: Vec<u64>,
/// }
///
/// tollgate_model::debug_fields! { Account: name, visits = .visits.len(), .. }
///
/// let (name, password) = ("ann".to_owned(), "secret".to_owned());
/// let account = Account { name, password, visits: vec![3, 5] };
/// assert_eq!(format!("{account:?}"), r#"Account { name: "ann", visits: 2, .. }"#);
/// assert_eq!(account.password, "secret");
/// ```
#[macro_export]
macro_rules! debug_fields {
    (@value $self:ident $field:ident) => {
        $self.$field
    };
    (@value $self:ident $field:ident $($path:tt)+) => {
        $self $($path)+
    };
    (@impl $finish:ident $type:ident [$($generics:tt)*] $([$field:ident $($path:tt)*])*) => {
        impl $($generics)* ::core::fmt::Debug for $type $($generics)* {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_struct(::core::stringify!($type))
                    $(.field(
                        ::core::stringify!($field),
                        &$crate::debug_fields!(@value self $field $($path)*),
                    ))*
                    .$finish()
            }
        }
    };
    (
        $type:ident $(<$($generic:tt),+>)?:
        $($field:ident $(= $(.$step:tt $(($($argument:tt)*))?)+)?,)* ..
    ) => {
        $crate::debug_fields! {
            @impl finish_non_exhaustive $type [$(<$($generic),+>)?]
            $([$field $($(.$step $(($($argument)*))?)+)?])*
        }
    };
    (
        $type:ident $(<$($generic:tt),+>)?:
        $($field:ident $(= $(.$step:tt $(($($argument:tt)*))?)+)?),+
    ) => {
        $crate::debug_fields! {
            @impl finish $type [$(<$($generic),+>)?]
            $([$field $($(.$step $(($($argument)*))?)+)?])+
        }
    };
}
