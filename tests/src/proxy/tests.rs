use super::*;
use crate::wait;
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::Instant,
};

const LIMIT: Duration = Duration::from_secs(60);

/// A server that echoes every byte and counts them.
struct Echo {
    addr: SocketAddr,
    heard: Arc<AtomicUsize>,
}

impl Echo {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("some port is free");
        let addr = listener.local_addr().expect("it is bound");
        let heard = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&heard);
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let counter = Arc::clone(&counter);
                thread::spawn(move || {
                    let mut buffer = [0; 1024];
                    while let Ok(length @ 1..) = stream.read(&mut buffer) {
                        counter.fetch_add(length, Ordering::SeqCst);
                        if stream.write_all(&buffer[..length]).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Self { addr, heard }
    }
}

fn pair() -> (Echo, Proxy) {
    let echo = Echo::start();
    let proxy = Proxy::start(echo.addr);
    (echo, proxy)
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.addr()).expect("the proxy listens");
    stream
        .set_read_timeout(Some(LIMIT))
        .expect("it is not zero");
    stream.set_nodelay(true).expect("it is a socket");
    stream
}

fn say(stream: &mut TcpStream, words: &str) {
    stream
        .write_all(words.as_bytes())
        .expect("the proxy takes bytes");
}

fn hear(stream: &mut TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).expect("the reply comes");
    String::from_utf8(bytes).expect("it is text")
}

/// Says something, and hears it again.
fn echoes(stream: &mut TcpStream, words: &str) {
    say(stream, words);
    assert_eq!(hear(stream, words.len()), words);
}

/// Reads until the connection ends. Returns the text and the error.
fn hear_out(stream: &mut TcpStream) -> (String, Option<ErrorKind>) {
    let mut bytes = Vec::new();
    let end = stream
        .read_to_end(&mut bytes)
        .err()
        .map(|error| error.kind());
    (String::from_utf8(bytes).expect("it is text"), end)
}

/// Checks that no byte comes for a while. Meaningful only together with a byte that comes later.
fn silence(stream: &mut TcpStream) {
    stream
        .set_read_timeout(Some(Duration::from_millis(30)))
        .expect("it is not zero");
    let error = stream.read(&mut [0]).expect_err("nothing is said");
    assert!(
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        "{error}"
    );
    stream
        .set_read_timeout(Some(LIMIT))
        .expect("it is not zero");
}

#[test]
fn a_stall_takes_bytes_and_forwards_nothing_until_it_ends() {
    let (echo, proxy) = pair();
    proxy.set(Mode::Stall);
    let mut stream = connect(&proxy);
    say(&mut stream, "hello");
    silence(&mut stream);
    assert_eq!(echo.heard.load(Ordering::SeqCst), 0);
    proxy.set(Mode::Pass);
    assert_eq!(hear(&mut stream, 5), "hello");
}

#[test]
fn a_muted_server_hears_and_its_reply_waits() {
    let (echo, proxy) = pair();
    proxy.set(Mode::Mute);
    let mut stream = connect(&proxy);
    say(&mut stream, "hello");
    wait::until("the server to hear", LIMIT, || {
        echo.heard.load(Ordering::SeqCst) == 5
    });
    silence(&mut stream);
    proxy.set(Mode::Pass);
    assert_eq!(hear(&mut stream, 5), "hello");
}

#[test]
fn a_cut_ends_the_connection_in_the_middle_of_a_reply() {
    let (_echo, proxy) = pair();
    let mut stream = connect(&proxy);
    echoes(&mut stream, "one");
    proxy.set(Mode::CutAfter(7));
    echoes(&mut stream, "four");
    say(&mut stream, "fifteen");
    assert_eq!(hear_out(&mut stream), ("fif".into(), None));
}

#[test]
fn a_reset_is_seen_as_one() {
    let (_echo, proxy) = pair();
    proxy.set(Mode::ResetAfter(2));
    let mut stream = connect(&proxy);
    say(&mut stream, "hello");
    assert_eq!(hear_out(&mut stream).1, Some(ErrorKind::ConnectionReset));
}

#[test]
fn delayed_replies_overlap() {
    crate::machine::undisturbed(Duration::from_millis(100), || {
        let (_echo, proxy) = pair();
        let delay = Duration::from_millis(100);
        proxy.set(Mode::Delay(delay));
        let mut stream = connect(&proxy);
        let started = Instant::now();
        for _ in 0..20 {
            say(&mut stream, "x");
            thread::sleep(Duration::from_millis(2)); // so that they are pieces of their own
        }
        assert_eq!(hear(&mut stream, 20).len(), 20);
        let took = started.elapsed();
        assert!(took >= delay, "{took:?}");
        assert!(
            took < delay * 10,
            "one after the other they would take 20 delays: {took:?}"
        );
    });
}

#[test]
fn new_connections_go_where_the_target_has_moved() {
    let (first, proxy) = pair();
    let second = Echo::start();
    let mut old = connect(&proxy);
    echoes(&mut old, "one");
    proxy.set_target(second.addr);
    let mut new = connect(&proxy);
    echoes(&mut new, "three");
    echoes(&mut old, "two");
    let heard = [&first, &second].map(|echo| echo.heard.load(Ordering::SeqCst));
    assert_eq!(heard, [6, 5]);
}

#[test]
fn drop_closes_everything() {
    let (_echo, proxy) = pair();
    let mut stream = connect(&proxy);
    echoes(&mut stream, "hello");
    let addr = proxy.addr();
    drop(proxy);
    assert_eq!(hear_out(&mut stream).0, "");
    assert!(TcpStream::connect(addr).is_err());
}

#[test]
fn lost_calls_never_arrive_and_lost_answers_are_errors() {
    let (echo, proxy) = pair();
    let mut stream = connect(&proxy);
    let (call, answer, error) = (
        "*2\r\n$7\r\nEVALSHA\r\n$1\r\n1\r\n",
        "$5\r\nhello\r\n",
        "-ERR lost on the way\r\n",
    );
    proxy.set(Mode::Lose(Duration::ZERO, 0));
    echoes(&mut stream, call);
    echoes(&mut stream, answer);
    let heard = echo.heard.load(Ordering::SeqCst);
    proxy.set(Mode::Lose(Duration::ZERO, 100));
    say(&mut stream, call);
    assert_eq!(hear(&mut stream, error.len()), error);
    assert_eq!(echo.heard.load(Ordering::SeqCst), heard);
    say(&mut stream, answer);
    assert_eq!(hear(&mut stream, error.len()), error);
    assert_eq!(echo.heard.load(Ordering::SeqCst), heard + answer.len());
    echoes(&mut stream, "+OK\r\n");
}
