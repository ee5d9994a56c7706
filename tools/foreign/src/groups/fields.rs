//! Every header format from every stack of layers.

use serde_json::json;

use crate::{
    case::Line,
    clients::Clients,
    servers::{Hosted, answers, formats},
};

pub(crate) fn run(clients: &Clients, _is_quick: bool) -> Vec<Line> {
    let server = Hosted::start(answers::router());
    let formats: Vec<_> = formats().iter().map(|(name, _)| *name).collect();
    clients.run(
        "fields.py",
        &json!({"server": server.address().to_string(), "formats": formats, "stacks": answers::stack_names()}),
    )
}
