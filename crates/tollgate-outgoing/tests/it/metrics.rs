//! The metrics of a layer carry its labels.

use http::StatusCode;
use tollgate::{Limiter, Policy, Quota};
use tollgate_outgoing::OutgoingLayer;
use tollgate_tower::{MetricLabels, key::Header};
use tower::{Layer, ServiceExt};

use tollgate_tests::Series;

use crate::support::{hello, request, still};

#[test]
fn a_call_without_a_key_is_counted_with_the_labels_of_the_layer() {
    let series = Series::of(async {
        let limiter = Limiter::new(still(), Policy::leaky_bucket("api", Quota::per_second(10)));
        let layer = OutgoingLayer::builder(limiter, Header::new("x-api-key"))
            .metric_labels(MetricLabels::new(["layer"], [["outgoing"]], |_| Some(0)))
            .build();
        let Ok(response) = layer.layer(hello()).oneshot(request()).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    });
    series.assert_counts("tollgate_rejections_total reason=missing_key layer=outgoing 1");
}
