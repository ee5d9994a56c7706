//! Parses the path of a gRPC call: `/package.Service/Method`.
//! What a method means for a limit or a label is decided by the callers.

/// Splits a path into the full name of the service and the name of the method.
///
/// Returns `None` when the path has another form.
pub(crate) fn service_and_method(path: &str) -> Option<(&str, &str)> {
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    (!service.is_empty() && !method.is_empty() && !method.contains('/'))
        .then_some((service, method))
}

/// Returns `service` when it is the full name of a service.
///
/// # Panics
///
/// Panics when the name is empty or contains a slash.
pub(crate) fn checked_service(service: String) -> String {
    let is_name = !service.is_empty() && !service.contains('/');
    assert!(
        is_name,
        "a service must be like package.Service, got {service:?}"
    );
    service
}

/// Returns `method` when it is the full path of a method.
///
/// # Panics
///
/// Panics when the path has another form than `/package.Service/Method`.
pub(crate) fn checked_method(method: String) -> String {
    assert!(
        service_and_method(&method).is_some(),
        "a method must be like /package.Service/Method, got {method:?}"
    );
    method
}

/// Returns `name` when it is the full path of a method or the full name of a service.
///
/// # Panics
///
/// Panics when it is neither.
pub(crate) fn checked_method_or_service(name: String) -> String {
    if service_and_method(&name).is_some() {
        name
    } else {
        checked_service(name)
    }
}
