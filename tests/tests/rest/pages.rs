//! The pages of `supervise serve` while somebody holds connections open, and requests that name more than one host.

use super::scene;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use supervise_tests::harness::{PATIENCE, Scene, Supervisor, eventually};

/// More than there are places.
const CROWD: usize = 400;

struct Pages {
    process: Supervisor,
    at: String,
    /// The header with the key.
    key: String,
}

fn serve(scene: &Scene, more: &[&str]) -> Pages {
    let socket = scene.path("serve.sock");
    let words = ["serve", "--listen", "127.0.0.1:0", "--socket", socket.to_str().unwrap()];
    let process = scene.start_with(&[&words[..], more].concat());
    let url = eventually("the link is told", || {
        let text = process.text();
        let (_, rest) = text.split_once("http://")?;
        Some(rest.split_once('\n')?.0.to_owned())
    });
    let (at, link) = url.split_once('/').unwrap();
    let mut pages = Pages {
        process,
        at: at.to_owned(),
        key: String::new(),
    };
    let entered = pages.ask(&format!(
        "GET /{link} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"
    ));
    let cookie = entered.lines().find_map(|l| l.strip_prefix("set-cookie: ")).unwrap();
    pages.key = format!("Cookie: {}\r\n", cookie.split_once(';').unwrap().0);
    pages
}

impl Pages {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// All that comes back until the connection is closed.
    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        // It may be closed before all was sent.
        let _ = stream.write_all(request.as_bytes());
        rest(stream)
    }

    fn code(&self, request: &str) -> String {
        let answer = self.ask(request);
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    fn get(&self, path: &str, headers: &str) -> String {
        let at = &self.at;
        self.code(&format!(
            "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n{headers}\r\n"
        ))
    }

    fn stops(self) {
        self.process.signal(libc::SIGTERM);
        self.process.wait().expect(0);
    }
}

fn rest(mut stream: TcpStream) -> String {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
        other => drop(other.unwrap()),
    }
    String::from_utf8_lossy(&all).into_owned()
}

fn is_open(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(e) => return e.kind() == ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn connections_that_dribble_a_body_keep_the_owner_neither_out_nor_waiting() {
    let scene = scene();
    let pages = serve(&scene, &[]);
    // A page that follows its runs is open before the others come.
    let mut follows = pages.connect();
    let ask = format!("GET /live HTTP/1.1\r\nHost: {}\r\n{}\r\n", pages.at, pages.key);
    follows.write_all(ask.as_bytes()).unwrap();
    let mut head = [0; 12];
    follows.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    let over = AtomicBool::new(false);
    let head = format!(
        "POST /enter HTTP/1.1\r\nHost: {}\r\nContent-Length: 4000\r\n\r\ntoken=",
        pages.at
    );
    let crowd: Vec<TcpStream> = (0..CROWD).map(|_| pages.connect()).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut text = head.as_bytes();
            while !over.load(Ordering::Relaxed) {
                for mut stream in &crowd {
                    // One of them may be closed already.
                    let _ = stream.write_all(text);
                }
                text = b"0";
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        });
        for _ in 0..20 {
            assert_eq!(pages.get("/", &pages.key), "200");
        }
        let token = pages.key.trim().rsplit('=').next().unwrap();
        let enter = format!(
            "POST /enter HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\ntoken={token}",
            pages.at,
            token.len() + 6
        );
        assert_eq!(pages.code(&enter), "200", "the key can be shown meanwhile");
        over.store(true, Ordering::Relaxed);
    });
    assert!(is_open(&follows), "a page with the key lost its place");
    for stream in crowd {
        let answer = rest(stream);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    pages.stops();
}

#[test]
fn a_head_that_never_ends_is_not_waited_for() {
    let scene = scene();
    let pages = serve(&scene, &[]);
    let mut stream = pages.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
    // It is closed by the server.
    rest(stream);
    assert_eq!(pages.get("/", &pages.key), "200");
    pages.stops();
}

#[test]
fn whoever_has_no_key_gets_one_answer_of_each_connection() {
    let scene = scene();
    let pages = serve(&scene, &["--public-read"]);
    let at = &pages.at;
    let one = |headers: &str| format!("GET / HTTP/1.1\r\nHost: {at}\r\n{headers}\r\n");
    let both = pages.ask(&format!("{}{}", one(""), one("")));
    assert_eq!(both.matches("HTTP/1.1 200 ").count(), 1, "{both}");
    assert!(both.contains("connection: close"), "{both}");
    let last = format!("Connection: close\r\n{}", pages.key);
    let both = pages.ask(&format!("{}{}", one(&pages.key), one(&last)));
    assert_eq!(both.matches("HTTP/1.1 200 ").count(), 2, "{both}");
    pages.stops();
}

#[test]
fn a_request_names_one_host() {
    let scene = scene();
    let pages = serve(&scene, &[]);
    let (at, key) = (&pages.at, &pages.key);
    let code = |target: &str, version: &str, hosts: &[&str]| {
        let hosts: String = hosts.iter().map(|h| format!("Host: {h}\r\n")).collect();
        pages.code(&format!(
            "GET {target} HTTP/{version}\r\n{hosts}Connection: close\r\n{key}\r\n"
        ))
    };
    let whole = format!("http://{at}/");
    assert_eq!(code("/", "1.1", &[at]), "200");
    assert_eq!(code(&whole, "1.1", &[at]), "200");
    for (target, version, hosts) in [
        ("/", "1.1", &[at.as_str(), at][..]),
        ("/", "1.1", &[at, "elsewhere.example"]),
        ("/", "1.1", &["elsewhere.example", at]),
        ("/", "1.0", &[at, at]),
        ("/", "1.1", &[]),
        (&whole, "1.1", &[]),
        ("http://elsewhere.example/", "1.1", &[at]),
        (&whole, "1.1", &["elsewhere.example"]),
    ] {
        assert_eq!(code(target, version, hosts), "400", "{target} {version} {hosts:?}");
    }
    assert_eq!(code("/", "1.1", &["elsewhere.example"]), "421");
    pages.stops();
}

#[test]
fn requests_have_limits() {
    let scene = scene();
    let pages = serve(&scene, &[]);
    let at = &pages.at;
    let body = "x".repeat(5000);
    let long = format!(
        "POST /enter HTTP/1.1\r\nHost: {at}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(pages.code(&long), "413");
    let chunk = format!("POST /enter HTTP/1.1\r\nHost: {at}\r\nTransfer-Encoding: chunked\r\n\r\n1388\r\n{body}\r\n");
    assert_eq!(pages.code(&chunk), "413");
    let head = format!("GET / HTTP/1.1\r\nHost: {at}\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    let said = pages.code(&head);
    assert!(said.is_empty() || said == "431", "{said}");
    pages.stops();
}
