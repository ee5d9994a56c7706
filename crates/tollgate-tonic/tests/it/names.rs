//! The names of services and methods.

use std::panic::{AssertUnwindSafe, catch_unwind};

use http::{Request, request::Parts};
use tollgate_tonic::{MethodLimiters, health_and_reflection, metric_labels, services};

use crate::support::*;

fn parts(path: &str) -> Parts {
    Request::post(path).body(()).unwrap().into_parts().0
}

#[test]
fn only_calls_of_the_named_services_are_selected() {
    assert!(services(["a.B"])(&parts("/a.B/C")));
    assert!(!services(["a.B"])(&parts("/a.Bc/D")));
    assert!(!services(["a.B"])(&parts("/a.B")));
    for (path, is_selected) in [
        ("/grpc.health.v1.Health/Check", true),
        (
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            true,
        ),
        (
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            true,
        ),
        ("/grpc.health.v1.Healthy/Check", false),
    ] {
        assert_eq!(health_and_reflection()(&parts(path)), is_selected, "{path}");
    }
}

#[test]
fn a_name_in_another_form_panics_with_the_form_and_the_name() {
    let limiters = || MethodLimiters::new(limiter(TWO));
    let method = |name: &str| drop(limiters().method(name, limiter(TWO)));
    let service = |name: &str| drop(limiters().service(name, limiter(TWO)));
    let exempt = |name: &str| drop(limiters().exempt(name));
    let labels = |name: &str| drop(metric_labels([name]));
    let selected = |name: &str| drop(services([name]));
    let cases: [(&dyn Fn(&str), &str, &str); 7] = [
        (
            &method,
            "SayHello",
            "a method must be like /package.Service/Method",
        ),
        (&service, "", "a service must be like package.Service"),
        (&service, "/a.B/C", "a service must be like package.Service"),
        (&exempt, "/a.B", "a service must be like package.Service"),
        (&labels, "", "a service must be like package.Service"),
        (&labels, "//Unary", "a service must be like package.Service"),
        (&selected, "/a.B", "a service must be like package.Service"),
    ];
    for (call, name, expected) in cases {
        let panic = catch_unwind(AssertUnwindSafe(|| call(name))).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert_eq!(*message, format!("{expected}, got {name:?}"));
    }
}
