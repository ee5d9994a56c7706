//! Error messages of the compiler. Each case is a program that must not compile.

use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Lists each statement with the texts that the compiler must print.
const CASES: &[(&str, &[&str])] = &[
    (
        r#"RateLimitLayer::new(limiter(), "x-api-key");"#,
        &[
            "`&str` does not extract the key of a request",
            "wrap a closure in `key_fn(|parts| …)`",
        ],
    ),
    (
        r#"RateLimitLayer::new(limiter(), |parts: &http::request::Parts| Key::new(parts.uri.path()));"#,
        &[
            "does not extract the key of a request",
            "wrap a closure in `key_fn(|parts| …)`",
        ],
    ),
    (
        r#"key_fn(|parts| parts.uri.path().len());"#,
        &[
            "the closure of `key_fn` must return a `Key`, not `usize`",
            "`Key::new(…)` makes a key of text",
        ],
    ),
    (
        r#"is_service(RateLimitLayer::new(limiter(), Global).layer(answers::<NoString>()));"#,
        &[
            "Problem` cannot respond with a body of type `NoString`",
            "MapResponseBodyLayer",
            "on a tonic server, use `tollgate_tonic::layer(limiter, key)`",
        ],
    ),
    (
        r#"is_service(RateLimitLayer::builder(limiter(), Global).respond_with(Empty).build().layer(answers::<NoString>()));"#,
        &["Empty` cannot respond with a body of type `NoString`"],
    ),
    (
        r#"is_service(RateLimitLayer::builder(limiter(), Global).respond_with(429).build().layer(answers::<String>()));"#,
        &[
            "cannot respond with a body of type `String`",
            "`respond_fn(|rejection| …)` makes any",
        ],
    ),
    (
        r#"Limiter::new("redis://127.0.0.1", Policy::token_bucket("all", Quota::per_second(1)));"#,
        &[
            "`&str` is not a store",
            "`tollgate::open(url)?` makes a store of a URL",
        ],
    ),
    (
        r#"Policy::token_bucket(String::from("all"), Quota::per_second(1));"#,
        &["or try_new"],
    ),
    (
        r#"Policy::calendar_window("all", 1, tollgate::CalendarUnit::Month, "Europe/Berlin".parse().unwrap());"#,
        &[
            "`Policy::calendar_window` needs the feature `calendar` of the crate tollgate",
            "could not find `CalendarUnit`",
        ],
    ),
    (
        r#"is_layer(RateLimitLayer::builder(limiter(), Global));"#,
        &["is a builder and not yet a layer: call `.build()`"],
    ),
    (
        r#"is_layer(tollgate_overload::AdaptiveLayer::builder(tollgate_overload::AdaptiveLimiter::new(tollgate_overload::Gradient::new())));"#,
        &["is a builder and not yet a layer: call `.build()`"],
    ),
    (
        r#"fn limit() -> RateLimitLayer { RateLimitLayer::new(limiter(), Global) }"#,
        &["expected `RateLimitLayer<Arc<dyn KeyExtractor>>`, found `RateLimitLayer<Global>`"],
    ),
    (
        r#"RateLimitLayer::<tollgate_tower::key::BoxedKey>::new(limiter(), Global);"#,
        &[
            "is not the extractor of a `RateLimitLayer<Arc<(dyn KeyExtractor + 'static)>>`",
            "write the type `RateLimitLayer<",
            "pass the extractor with `.boxed()` behind it",
        ],
    ),
    (
        r#"#[derive(Clone)] struct User; RateLimitLayer::new(limiter(), tollgate_tower::key::FromExtension::<User>::new());"#,
        &[
            "`User` does not become the key of a request",
            "implement `Clone` for it, and `From<User>` for `tollgate::Key`",
        ],
    ),
    (
        r#"Limiter::in_memory(Quota::per_second(1));"#,
        &[
            // The compiler writes the path, too, where another item of a crate has the name.
            "Quota` is no policy, and no set of policies",
            r#"give a quota a name and an algorithm: `Policy::token_bucket("api", quota)`"#,
        ],
    ),
    (
        r#"is_layer(tollgate_outgoing::OutgoingLayer::builder(limiter(), Global));"#,
        &["is a builder and not yet a layer: call `.build()`"],
    ),
    (
        r#"let _: tollgate_outgoing::ReqwestClient;"#,
        &[
            "`ReqwestClient` in crate `tollgate_outgoing`",
            "the item is gated behind the `reqwest` feature",
        ],
    ),
    (
        r#"fn limits(rules: tollgate_rules::RuleLimiter) { rules.for_requests("shop"); }"#,
        &["`RuleLimiter::for_requests` needs the feature `http` of the crate tollgate-rules"],
    ),
    (
        r#"async fn spend() -> Result<(), tollgate::Error> { Ok(limiter().check("acme").await?.into_result()?) }"#,
        &["the trait `From<tollgate::Denied>` is not implemented for `tollgate::Error`"],
    ),
];

const PRELUDE: &str = r#"#![allow(unused)]
use http::{Request, Response};
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota};
use tollgate_tower::{KeyExtractor, RateLimitLayer, key::Global, key_fn, rejection::Empty};
use tower_layer::Layer;
use tower_service::Service;

struct NoString;

fn limiter() -> Limiter {
    Limiter::new(MemoryStore::new(), Policy::token_bucket("all", Quota::per_second(1)))
}

struct Answers<B>(std::marker::PhantomData<fn() -> B>);

impl<B> Clone for Answers<B> {
    fn clone(&self) -> Self {
        answers()
    }
}

fn answers<B>() -> Answers<B> {
    Answers(std::marker::PhantomData)
}

impl<B> Service<Request<()>> for Answers<B> {
    type Response = Response<B>;
    type Error = std::convert::Infallible;
    type Future = std::future::Pending<Result<Response<B>, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        std::future::pending()
    }
}

fn is_layer<L: Layer<Answers<String>>>(_: L) {}

fn is_service<S: Service<Request<()>>>(_: S) {}
"#;

/// Compiles the programs in a crate of their own, which keeps its build: only the first run is
/// slow.
fn compile(programs: &[(String, String)]) -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("compile");
    let _ = fs::remove_dir_all(root.join("src"));
    fs::create_dir_all(root.join("src/bin")).unwrap();
    let dependency = |name: &str, path: &Path| {
        format!("{name} = {{ path = {path:?}, default-features = false }}\n")
    };
    let manifest = String::from(
        "[package]\nname = \"compile\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n",
    ) + "http = \"1\"\ntower-layer = \"0.3\"\ntower-service = \"0.3\"\n"
        + &dependency("tollgate", &here.join("../tollgate"))
        + &dependency("tollgate-outgoing", &here.join("../tollgate-outgoing"))
        + &dependency("tollgate-overload", &here.join("../tollgate-overload"))
        + &dependency("tollgate-rules", &here.join("../tollgate-rules"))
        + &dependency("tollgate-tower", here);
    fs::write(root.join("Cargo.toml"), manifest).unwrap();
    fs::copy(here.join("../../Cargo.lock"), root.join("Cargo.lock")).unwrap();
    for (name, text) in programs {
        fs::write(root.join("src/bin").join(name).with_extension("rs"), text).unwrap();
    }
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "check",
            "--bins",
            "--keep-going",
            "--offline",
            "--color=never",
        ])
        .env("CARGO_TARGET_DIR", root.join("target"))
        .env_remove("RUSTFLAGS")
        .current_dir(&root)
        .output()
        .unwrap();
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_compiler_names_the_mistake_and_the_remedy() {
    let program = |statement: &str| format!("{PRELUDE}\nfn main() {{\n    {statement}\n}}\n");
    let mut programs: Vec<_> = CASES
        .iter()
        .enumerate()
        .map(|(at, (statement, _))| (format!("case{at}"), program(statement)))
        .collect();
    programs.push((
        "fits".to_owned(),
        program(
            "is_service(RateLimitLayer::new(limiter(), Global).layer(answers::<String>()));
            is_layer(RateLimitLayer::builder(limiter(), Global).build());
            let _: RateLimitLayer<Global> = RateLimitLayer::new(limiter(), Global);
            let _: RateLimitLayer = RateLimitLayer::new(limiter(), KeyExtractor::boxed(Global));",
        ),
    ));
    let output = compile(&programs);
    let mut faults = String::new();
    for (at, (statement, expected)) in CASES.iter().enumerate() {
        let name = format!("case{at}.rs");
        let errors: Vec<_> = output
            .split("\n\n")
            .filter(|error| error.contains(&name))
            .collect();
        for text in expected
            .iter()
            .filter(|text| !errors.iter().any(|error| error.contains(*text)))
        {
            let _ = writeln!(faults, "{statement}\n  does not print {text:?}");
        }
    }
    assert!(
        !output.contains("fits.rs"),
        "a correct program does not compile:\n{output}"
    );
    assert!(faults.is_empty(), "{faults}\n{output}");
}
