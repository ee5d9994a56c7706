//! A server that speaks PostgreSQL's protocol and answers as a test wants: what a real server never
//! sends. It keeps no states, so every key is fresh.

use std::{
    collections::HashMap,
    fmt,
    io::{self, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    thread,
};

/// The most bytes of an answer without an end. A client that took so many has no bound.
const MOST: u64 = 1 << 30;

/// What a client asks for.
#[derive(Debug)]
#[non_exhaustive]
pub enum Asked<'a> {
    /// Whether the server uses TLS.
    Tls,
    /// To sign in.
    Session,
    /// The answer to a text.
    Query(&'a str),
    /// The types of a prepared statement.
    Description(&'a str),
    /// The rows of a prepared statement with these parameters.
    Rows(&'a str, &'a [Vec<u8>]),
}

/// What the server sends in place of the truth.
#[derive(Debug)]
#[non_exhaustive]
pub enum Lie {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The first bytes, and then the others again and again, up to a gigabyte.
    Forever(Vec<u8>, Vec<u8>),
    /// Nothing: it closes the connection.
    End,
}

type Answer = dyn Fn(&Asked<'_>) -> Option<Lie> + Send + Sync;

/// A server on a free port of 127.0.0.1. It answers truly what is no lie. Its threads end with the
/// process.
#[derive(Clone)]
pub struct LyingPostgres(Arc<Inner>);

struct Inner {
    address: SocketAddr,
    answer: Mutex<Arc<Answer>>,
    now_us: AtomicI64,
    taken: AtomicU64,
}

impl LyingPostgres {
    /// Starts a server that lies by this function: `None` is the truth.
    ///
    /// # Panics
    ///
    /// When no port is free.
    #[must_use]
    pub fn start(lie: impl Fn(&Asked<'_>) -> Option<Lie> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let server = Self(Arc::new(Inner {
            address: listener.local_addr().expect("it listens"),
            answer: Mutex::new(Arc::new(lie)),
            now_us: AtomicI64::new(1_700_000_000_000_000),
            taken: AtomicU64::new(0),
        }));
        let accepting = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = accepting.clone();
                // A client that goes away ends its thread.
                thread::spawn(move || server.serve(stream));
            }
        });
        server
    }

    /// Lies by another function from now on.
    pub fn set(&self, lie: impl Fn(&Asked<'_>) -> Option<Lie> + Send + Sync + 'static) {
        *self.0.answer.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(lie);
    }

    /// Moves its clock on.
    pub fn advance(&self, micros: i64) {
        self.0.now_us.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the bytes of answers without an end that clients have taken so far.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.0.taken.load(Ordering::Relaxed)
    }

    /// Returns the URL of its database.
    #[must_use]
    pub fn url(&self) -> String {
        format!(
            "postgres://postgres@{}/postgres?connect_timeout=60",
            self.0.address
        )
    }

    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let mut session = Session {
            server: self,
            input: BufReader::new(stream.try_clone()?),
            stream,
            output: Vec::new(),
            statements: HashMap::new(),
        };
        session.begin()?;
        while session.next()? {}
        Ok(())
    }
}

impl fmt::Debug for LyingPostgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LyingPostgres")
            .field("address", &self.0.address)
            .finish_non_exhaustive()
    }
}

struct Session<'a> {
    server: &'a LyingPostgres,
    input: BufReader<TcpStream>,
    stream: TcpStream,
    /// What is sent with the end of the reply.
    output: Vec<u8>,
    statements: HashMap<String, String>,
}

impl Session<'_> {
    /// Answers, by a lie or by the truth.
    fn answer(&mut self, asked: &Asked<'_>, truth: Vec<u8>) -> io::Result<()> {
        let lie = Arc::clone(
            &self
                .server
                .0
                .answer
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        match lie(asked) {
            None => self.output.extend(truth),
            Some(Lie::Bytes(bytes)) => self.output.extend(bytes),
            Some(Lie::End) => return Err(io::ErrorKind::ConnectionAborted.into()),
            Some(Lie::Forever(begin, again)) => {
                self.output.extend(begin);
                self.flush()?;
                let again = again.repeat(65_536 / again.len() + 1);
                while self.server.taken() < MOST {
                    self.stream.write_all(&again)?;
                    self.server
                        .0
                        .taken
                        .fetch_add(again.len() as u64, Ordering::Relaxed);
                }
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&std::mem::take(&mut self.output))
    }

    /// Reads so many bytes behind a length that counts itself.
    fn body(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.input.read_exact(&mut length)?;
        let mut body = vec![0; (u32::from_be_bytes(length) as usize).saturating_sub(4)];
        self.input.read_exact(&mut body)?;
        Ok(body)
    }

    fn begin(&mut self) -> io::Result<()> {
        const TLS: &[u8] = &80_877_103_i32.to_be_bytes();
        while self.body()? == TLS {
            self.answer(&Asked::Tls, b"N".to_vec())?;
            self.flush()?;
        }
        let session = [
            message(b'R', &[0; 4]),
            message(b'S', b"server_version\x0017.0\0"),
            message(b'K', &[0, 0, 0, 77, 0, 0, 0, 1]),
            READY.to_vec(),
        ];
        self.answer(&Asked::Session, session.concat())?;
        self.flush()
    }

    /// Serves a message. Returns whether there may be more.
    fn next(&mut self) -> io::Result<bool> {
        let mut kind = [0];
        self.input.read_exact(&mut kind)?;
        let body = self.body()?;
        let mut words = body.split(|byte| *byte == 0);
        let mut word = || String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
        match kind[0] {
            b'Q' => {
                let text = word();
                self.answer(&Asked::Query(&text), answer(&text))?;
                self.output.extend(READY);
                self.flush()?;
            }
            b'P' => {
                self.statements.insert(word(), word());
                self.output.extend(message(b'1', b""));
            }
            b'D' => {
                let name = word();
                let text = self.text(name.get(1..).unwrap_or_default());
                self.answer(&Asked::Description(&text), described(&text))?;
            }
            b'B' => {
                word();
                let (text, parameters) = (self.text(&word()), parameters(&body));
                self.output.extend(message(b'2', b""));
                let now_us = self.server.0.now_us.load(Ordering::Relaxed);
                let rows = rows(&text, &parameters, now_us);
                self.answer(&Asked::Rows(&text, &parameters), rows)?;
            }
            b'S' => {
                self.output.extend(READY);
                self.flush()?;
            }
            b'X' => return Ok(false),
            _ => {}
        }
        Ok(true)
    }

    fn text(&self, name: &str) -> String {
        self.statements.get(name).cloned().unwrap_or_default()
    }
}

const READY: &[u8] = &[b'Z', 0, 0, 0, 5, b'I'];

/// Returns a message of this kind.
#[must_use]
pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[kind], &length[..], body].concat()
}

/// Returns an error, or with `N` a notice, with this code and text.
#[must_use]
pub fn report(kind: u8, code: &str, text: &str) -> Vec<u8> {
    let fields = format!("SERROR\0VERROR\0C{code}\0M{text}\0\0");
    message(kind, fields.as_bytes())
}

/// Returns the description of columns of these types.
#[must_use]
pub fn columns(types: &[u32]) -> Vec<u8> {
    let mut body = (types.len() as u16).to_be_bytes().to_vec();
    for number in types {
        body.extend(b"name\0\0\0\0\0\0\0");
        body.extend(number.to_be_bytes());
        body.extend([0; 8]);
    }
    message(b'T', &body)
}

/// Returns the description of parameters of these types.
#[must_use]
pub fn types(types: &[u32]) -> Vec<u8> {
    let mut body = (types.len() as u16).to_be_bytes().to_vec();
    types
        .iter()
        .for_each(|number| body.extend(number.to_be_bytes()));
    message(b't', &body)
}

/// Returns a row.
#[must_use]
pub fn row(values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut body = (values.len() as u16).to_be_bytes().to_vec();
    for value in values {
        body.extend(value.map_or(-1, |value| value.len() as i32).to_be_bytes());
        body.extend(value.unwrap_or_default());
    }
    message(b'D', &body)
}

/// Returns an array of elements of a type, of which it announces `count`.
#[must_use]
pub fn array(of: u32, count: i32, elements: &[Option<&[u8]>]) -> Vec<u8> {
    let mut array: Vec<u8> = [1, 1, of as i32, count, 1]
        .iter()
        .flat_map(|number: &i32| number.to_be_bytes())
        .collect();
    for element in elements {
        array.extend(
            element
                .map_or(-1, |element| element.len() as i32)
                .to_be_bytes(),
        );
        array.extend(element.unwrap_or_default());
    }
    array
}

/// Returns the end of the rows of a statement.
#[must_use]
pub fn complete(rows: u32) -> Vec<u8> {
    message(b'C', format!("DELETE {rows}\0").as_bytes())
}

/// Returns the number of keys that are the first parameter of a read.
#[must_use]
pub fn keys(parameters: &[Vec<u8>]) -> i32 {
    let count = parameters.first().and_then(|keys| keys.get(12..16));
    count.map_or(0, |count| {
        i32::from_be_bytes(count.try_into().expect("four bytes"))
    })
}

/// Returns whether a statement reads states, or writes them.
#[must_use]
pub fn is_read(text: &str) -> bool {
    text.contains("AS asked (key, at)")
}

/// See [`is_read`].
#[must_use]
pub fn is_write(text: &str) -> bool {
    text.contains("WITH asked")
}

/// Returns whether a statement removes expired rows.
#[must_use]
pub fn is_sweep(text: &str) -> bool {
    text.starts_with("DELETE")
}

fn parameters(body: &[u8]) -> Vec<Vec<u8>> {
    let mut at = 0;
    for _ in 0..2 {
        at += body[at..]
            .iter()
            .position(|byte| *byte == 0)
            .expect("a name ends")
            + 1;
    }
    let short = |at: usize| usize::from(u16::from_be_bytes([body[at], body[at + 1]]));
    at += 2 + 2 * short(at);
    let count = short(at);
    at += 2;
    let mut parameters = Vec::new();
    for _ in 0..count {
        let length = i32::from_be_bytes(body[at..at + 4].try_into().expect("four bytes"));
        let length = usize::try_from(length).unwrap_or(0);
        parameters.push(body[at + 4..at + 4 + length].to_vec());
        at += 4 + length;
    }
    parameters
}

/// Returns the true answer to a text.
fn answer(text: &str) -> Vec<u8> {
    match text {
        _ if text.contains("transaction_read_only") || text.contains("set_config") => {
            [columns(&[25]), row(&[Some(b"off")]), complete(1)].concat()
        }
        _ => complete(0),
    }
}

const BYTES: u32 = 17;
const INT4: u32 = 23;

/// Returns the true description of a statement.
fn described(text: &str) -> Vec<u8> {
    let none = || message(b'n', b"");
    let (parameters, columns) = match text {
        _ if text.contains("obj_description") => (types(&[]), columns(&[25, 16])),
        _ if is_read(text) => (types(&[1001]), columns(&[20, 1001])),
        _ if is_write(text) => (
            types(&[1001, 1001, 1001, 1016, 1007, 1007, 1007]),
            columns(&[1007]),
        ),
        _ if is_sweep(text) && text.contains("$3") => (types(&[23, 20, 20]), none()),
        _ if is_sweep(text) => (types(&[23, 20]), none()),
        _ if text.contains("pg_catalog.pg_type") => {
            (types(&[26]), columns(&[19, 18, 26, 26, 26, 19, 26]))
        }
        _ => (types(&[1001, 23]), none()),
    };
    [parameters, columns].concat()
}

/// Returns the true rows of a statement. An unknown type is one of an unknown type.
fn rows(text: &str, parameters: &[Vec<u8>], now_us: i64) -> Vec<u8> {
    let now_us = now_us.to_be_bytes();
    let row = match text {
        _ if text.contains("obj_description") => {
            row(&[Some(b"tollgate table version 1"), Some(&[0])])
        }
        _ if is_read(text) => {
            let count = keys(parameters);
            let values = array(BYTES, count, &vec![None; count as usize]);
            row(&[Some(&now_us), Some(&values)])
        }
        _ if is_write(text) => row(&[Some(&array(INT4, 0, &[])[..])]),
        _ if text.contains("pg_catalog.pg_type") => {
            let asked = parameters[0].as_slice().try_into().expect("four bytes");
            let next = (u32::from_be_bytes(asked) + 1).to_be_bytes();
            let zero = 0_u32.to_be_bytes();
            row(&[
                Some(b"odd"),
                Some(b"b"),
                Some(&next),
                None,
                Some(&zero),
                Some(b"public"),
                Some(&zero),
            ])
        }
        _ => Vec::new(),
    };
    [row, complete(0)].concat()
}
