//! What is written alike for each layer of this crate: how it stands before a service, and the error
//! of the compiler for its builder in the place of a layer.
//! Layers and builders themselves stand beside their gates.

/// Marks a builder that is a layer already. Nothing implements it: its error says that `build` is
/// missing.
///
/// A builder of a layer has an implementation of [`Layer`](tower_layer::Layer) under the condition
/// `Unbuilt: IsLayer<Self>`, which never holds. So the compiler reports this instead of the missing
/// `Layer`:
///
/// ```compile_fail
/// use std::marker::PhantomData;
/// use tollgate_tower::gate::{IsLayer, Unbuilt};
/// use tower::{Layer, ServiceBuilder};
///
/// struct GuardBuilder<R>(PhantomData<R>);
///
/// impl<S, R> Layer<S> for GuardBuilder<R>
/// where
///     Unbuilt: IsLayer<Self>,
/// {
///     type Service = S;
///
///     fn layer(&self, inner: S) -> S {
///         inner
///     }
/// }
///
/// // `GuardBuilder<()>` is a builder and not yet a layer: call `.build()`
/// ServiceBuilder::new().layer(GuardBuilder(PhantomData::<()>)).service("inner");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{B}` is a builder and not yet a layer: call `.build()`",
    label = "`.build()` is missing"
)]
pub trait IsLayer<B> {}

/// Stands for a builder in the condition of [`IsLayer`]: about the builder itself, the compiler would
/// report the missing `Layer`.
#[derive(Debug)]
pub struct Unbuilt;

/// Lets the compiler say what is missing where a builder stands in the place of a layer.
macro_rules! is_no_layer {
    ($Builder:ident<$($Of:ident),+>) => {
        /// Is no layer before `build`: this lets the compiler say so.
        impl<S, $($Of),+> tower_layer::Layer<S> for $Builder<$($Of),+>
        where
            crate::gate::Unbuilt: crate::gate::IsLayer<Self>,
        {
            type Service = S;

            fn layer(&self, inner: S) -> S {
                inner
            }
        }
    };
}
pub(crate) use is_no_layer;

/// Lets a gate be a layer: a handle whose clones share what is in its one field.
macro_rules! is_layer {
    ($Layer:ident<$($Of:ident),+>, $shared:ident) => {
        impl<S, $($Of),+> tower_layer::Layer<S> for $Layer<$($Of),+> {
            type Service = crate::gate::Gated<S, Self>;

            fn layer(&self, inner: S) -> Self::Service {
                crate::gate::Gated::new(inner, self.clone())
            }
        }

        impl<$($Of),+> Clone for $Layer<$($Of),+> {
            fn clone(&self) -> Self {
                Self {
                    $shared: self.$shared.clone(),
                }
            }
        }
    };
}
pub(crate) use is_layer;
