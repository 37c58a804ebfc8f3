//! The pages of `supervise serve`: who may read them, what they tell of runs that live and that are dead, and that nothing of a run is
//! ever more than text in them.

use super::{saved, scene};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use supervise_tests::harness::{Browser, PATIENCE, Scene, Supervisor, eventually, send, wait_for};

/// A server, and where it listens.
pub(super) struct Server {
    process: Supervisor,
    pub(super) at: String,
    pub(super) link: String,
}

pub(super) fn serve(scene: &Scene, more: &[&str]) -> Server {
    let socket = scene.path("serve.sock");
    let socket = ["--listen", "127.0.0.1:0", "--socket", socket.to_str().unwrap()];
    let process = scene.start_with(&[&["serve"], &socket[..], more].concat());
    let url = eventually("the link is told", || {
        let text = process.text();
        let (_, rest) = text.split_once("http://")?;
        Some(rest.split_once('\n')?.0.to_owned())
    });
    let (at, link) = url.split_once('/').unwrap();
    Server {
        at: at.to_owned(),
        link: format!("/{link}"),
        process,
    }
}

/// The head and the body of an answer.
pub(super) fn asked(mut stream: impl Read + Write, request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

impl Server {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub(super) fn get(&self, path: &str, headers: &str) -> (String, String) {
        let at = &self.at;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n{headers}\r\n");
        asked(self.connect(), &request)
    }

    /// The cookie that the link gives.
    pub(super) fn enter(&self) -> String {
        let (head, _) = self.get(&self.link, "");
        let line = head.lines().find_map(|l| l.strip_prefix("set-cookie: ")).unwrap();
        let (pair, rest) = line.split_once("; ").unwrap();
        assert!(rest.contains("HttpOnly") && rest.contains("SameSite=Strict"), "{line}");
        assert!(head.starts_with("HTTP/1.1 200 "), "the link is no redirection: {head}");
        format!("Cookie: {pair}\r\n")
    }

    pub(super) fn stops(self) {
        self.process.signal(libc::SIGTERM);
        self.process.wait().expect(0);
    }
}

pub(super) fn code(head: &str) -> &str {
    head.split(' ').nth(1).unwrap()
}

pub(super) fn run_of(scene: &Scene) -> String {
    scene.status()["run"].as_str().unwrap().to_owned()
}

#[test]
fn whoever_has_the_key_reads_and_nobody_else() {
    let scene = scene();
    scene.run(&[]).expect(0);
    let server = serve(&scene, &[]);
    for path in [
        "/",
        "/metrics",
        "/live",
        &format!("/run/{}", run_of(&scene)),
        "/nowhere",
    ] {
        let (head, body) = server.get(path, "");
        assert_eq!(code(&head), "401", "{path}");
        assert!(!body.contains("checkpoints"), "{body}");
        assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
    }
    let looked = format!(
        "HEAD {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        server.link, server.at
    );
    assert_eq!(code(&asked(server.connect(), &looked).0), "405", "a look opens nothing");
    let cookie = server.enter();
    assert_eq!(code(&server.get(&server.link, "").0), "403", "the link opens once");
    assert_eq!(code(&server.get("/", &cookie).0), "200");
    assert_eq!(code(&server.get("/run/0000000000000000", &cookie).0), "404");
    assert_eq!(code(&server.get("/", "Cookie: supervise-8617=00\r\n").0), "401");
    let token = cookie.trim().rsplit('=').next().unwrap().to_owned();
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let (head, body) = server.get("/metrics", &bearer);
    assert_eq!(code(&head), "200");
    assert!(body.contains("supervise_run_proven_step{"), "{body}");
    let accepts = format!("{bearer}Accept: application/openmetrics-text\r\n");
    assert!(server.get("/metrics", &accepts).1.contains("# EOF"));
    let form = |token: &str| {
        let body = format!("token={token}");
        let length = body.len();
        let at = &server.at;
        let request = format!(
            "POST /enter HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        asked(server.connect(), &request).0
    };
    assert_eq!((code(&form(&token)), code(&form("x"))), ("200", "403"));
    for method in ["POST", "PUT", "DELETE"] {
        let request = format!(
            "{method} / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{cookie}\r\n",
            server.at
        );
        assert_eq!(code(&asked(server.connect(), &request).0), "405", "{method}");
    }
    let elsewhere = format!("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n{cookie}\r\n");
    assert_eq!(code(&asked(server.connect(), &elsewhere).0), "421");
    let socket = scene.path("serve.sock");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let by_socket = asked(
        UnixStream::connect(&socket).unwrap(),
        "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(code(&by_socket.0), "200", "this user needs no key there");
    let rebound = "GET / HTTP/1.1\r\nHost: evil.example:8617\r\nConnection: close\r\n\r\n";
    let by_name = asked(UnixStream::connect(&socket).unwrap(), rebound);
    assert_eq!(code(&by_name.0), "421", "a page elsewhere comes through a tunnel, too");
    let owner = fs::metadata(&socket).unwrap().uid();
    assert_eq!(owner, fs::metadata(scene.root()).unwrap().uid());
    server.stops();
    assert!(!socket.exists());
}

#[test]
fn a_page_follows_its_run() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    saved(&scene, 4);
    let server = serve(&scene, &[]);
    let cookie = server.enter();
    let id = run_of(&scene);
    let page = format!("/run/{id}");
    let body = eventually("the page shows the proven step", || {
        let (_, body) = server.get(&page, &cookie);
        body.contains("step 4").then_some(body)
    });
    assert!(body.contains("<svg") && body.contains("Attempt 1"), "{body}");
    assert!(body.len() < 200_000, "{}", body.len());
    let live = server.connect();
    let request = format!("GET /live?run={id} HTTP/1.1\r\nHost: {}\r\n{cookie}\r\n", server.at);
    (&live).write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(live).lines();
    assert!(lines.next().unwrap().unwrap().contains("200"));
    let mut told = || {
        assert!(lines.any(|l| l.unwrap() == "event: change"), "a change is told");
        let data = lines.next().unwrap().unwrap();
        assert!(
            data.strip_prefix("data: ").is_some_and(|d| !d.is_empty()),
            "browsers drop it: {data}"
        );
    };
    told();
    scene.go();
    told();
    run.wait().expect(0);
    let ended = eventually("the page tells of the end", || {
        let (_, body) = server.get(&page, &cookie);
        body.contains("finished: step 12 is proven").then_some(body)
    });
    assert!(ended.contains("Goodput"), "{ended}");
    let (_, log) = server.get(&format!("{page}/log?attempt=1&worker=0&q=step:12"), &cookie);
    assert!(log.contains("step:12"), "{log}");
    server.stops();
    scene.assert_alone();
}

#[test]
fn a_run_whose_supervisor_was_killed_is_shown_as_it_was() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    saved(&scene, 4);
    eventually("step 4 is proven", || (scene.proven() >= 4).then_some(()));
    let guards = scene.guards();
    run.kill();
    let server = serve(&scene, &["--public-read"]);
    let (_, list) = server.get("/", "");
    assert!(
        list.contains("no supervisor; workers still running under the guard"),
        "{list}"
    );
    guards.into_iter().for_each(|pid| send(pid, libc::SIGKILL));
    let id = run_of(&scene);
    eventually("the page says that nobody is there", || {
        let (_, body) = server.get(&format!("/run/{id}"), "");
        (body.contains("not running (was: ") && body.contains("step 4")).then_some(())
    });
    server.stops();
    scene.go();
    scene.run(&[]).expect(0);
}

/// Chromium on a page, where it is installed: its DOM after scripts ran, and a screenshot.
fn browsed(url: &str, scene: &Scene, width: u32, dark: bool, picture: &Path) -> Option<String> {
    if !Browser::is_here() {
        return None;
    }
    let profile = scene.path("browser");
    let chromium = |more: &[String]| {
        let mut command = Command::new("timeout");
        command.args([
            "60",
            "/usr/bin/chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ]);
        command.arg(format!("--user-data-dir={}", profile.display()));
        command.arg(format!("--window-size={width},1600"));
        if dark {
            command.args(["--blink-settings=preferredColorScheme=0"]);
        }
        let output = command.args(more).arg(url).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    chromium(&[
        format!("--screenshot={}", picture.display()),
        "--hide-scrollbars".to_owned(),
    ]);
    Some(chromium(&["--dump-dom".to_owned()]))
}

#[test]
fn nothing_of_a_run_is_more_than_text_in_a_real_browser() {
    let scene = scene();
    let evil = "<svg onload=document.title='owned'>";
    let dir = scene.path(evil);
    let text = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">";
    let script = format!("echo 'RuntimeError: {}'; exit 3", text.replace('\'', "'\\''"));
    let run_dir = format!("run_dir={}", dir.display());
    let run = scene.start_plain(&["retries=0", &run_dir], &["sh", "-c", &script]);
    let _ = run.wait();
    let server = serve(&scene, &["--public-read"]);
    let (_, list) = server.get("/", "");
    let id = list
        .split_once("/run/")
        .unwrap()
        .1
        .split('"')
        .next()
        .unwrap()
        .to_owned();
    let urls = [
        "/".to_owned(),
        format!("/run/{id}"),
        format!("/run/{id}/log?attempt=1&worker=0&q=%3Cscript%3E"),
    ];
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    fs::create_dir_all(&pictures).unwrap();
    for (n, path) in urls.iter().enumerate() {
        let (head, body) = server.get(path, "");
        assert_eq!(code(&head), "200", "{path}: {body}");
        assert!(
            !body.contains("<script>document") && !body.contains("<img src=x") && !body.contains("<svg onload"),
            "{body}"
        );
        assert!(body.contains("&lt;"), "the text is there: {body}");
        let picture = pictures.join(format!("page-{n}-360-dark.png"));
        let Some(dom) = browsed(&format!("http://{}{path}", server.at), &scene, 360, true, &picture) else {
            continue;
        };
        assert!(!dom.contains("<title>owned"), "{dom}");
        let png = fs::read(&picture).unwrap();
        let width = u32::from_be_bytes(png[16..20].try_into().unwrap());
        assert_eq!(width, 360);
        assert!(png.len() > 3000, "it is not blank: {} bytes", png.len());
    }
    server.stops();
}

#[test]
fn a_second_server_says_who_is_in_its_way() {
    let scene = scene();
    let server = serve(&scene, &[]);
    let socket = scene.path("serve.sock");
    let socket = socket.to_str().unwrap();
    let other = scene.ask(&["serve", "--listen", "none", "--socket", socket]);
    other.expect(69).says("another `supervise serve` listens there");
    let taken = scene.ask(&["serve", "--listen", &server.at, "--socket", &format!("{socket}2")]);
    taken.expect(69).says(&format!("--listen {}", server.at));
    let left = fs::exists(format!("{socket}2")).unwrap();
    assert!(!left, "nothing is left of a server that could not begin");
    let odd = scene.ask(&["serve", "--listen", "nowhere", "--socket", &format!("{socket}2")]);
    odd.expect(64).says("expected an address and a port");
    server.stops();
    fs::write(socket, "x").unwrap();
    let other = scene.ask(&["serve", "--listen", "none", "--socket", socket]);
    other.expect(69).says("expected a socket or nothing");
}

/// A POST as a program makes it.
pub(super) fn post(server: &Server, path: &str, headers: &str, body: &str) -> String {
    let (at, length) = (&server.at, body.len());
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {length}\r\n{headers}\r\n{body}"
    );
    asked(server.connect(), &request).0
}

pub(super) fn form_key(page: &str) -> Option<&str> {
    page.split_once("name=\"key\" value=\"")?.1.split('"').next()
}

#[test]
fn whoever_only_reads_or_comes_from_elsewhere_changes_nothing() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    saved(&scene, 4);
    let page = format!("/run/{}", run_of(&scene));
    let stop = format!("{page}/act/stop");
    let shows = serve(&scene, &[]);
    let cookie = shows.enter();
    assert_eq!(
        form_key(&shows.get(&page, &cookie).1),
        None,
        "no form where none is allowed"
    );
    assert_eq!(code(&post(&shows, &stop, &cookie, "key=")), "403");
    shows.stops();
    let server = serve(&scene, &["--allow-actions", "--public-read"]);
    let (_, read) = server.get(&page, "");
    assert!(
        read.contains("step 4") && form_key(&read).is_none(),
        "who has no key reads: {read}"
    );
    assert_eq!(code(&post(&server, &stop, "", "key=")), "401");
    let cookie = server.enter();
    let (_, mine) = server.get(&page, &cookie);
    let key = form_key(&mine).unwrap();
    let body = format!("key={key}");
    for (headers, body) in [
        (cookie.clone(), "key=".to_owned()),
        (cookie.clone(), String::new()),
        (format!("{cookie}Origin: http://evil.example\r\n"), body.clone()),
        (format!("{cookie}Origin: null\r\n"), body.clone()),
        (format!("{cookie}Sec-Fetch-Site: cross-site\r\n"), body.clone()),
    ] {
        assert_eq!(code(&post(&server, &stop, &headers, &body)), "403", "{headers} {body}");
    }
    assert_eq!(
        code(&post(&server, &format!("{page}/act/dance"), &cookie, &body)),
        "404"
    );
    let nobodys = "/run/0000000000000000/act/stop";
    assert_eq!(code(&post(&server, nobodys, &cookie, &body)), "404");
    assert_eq!(
        code(&post(&server, &format!("{page}/act/unhold"), &cookie, &body)),
        "409",
        "nobody holds it"
    );
    let long = format!("key={key}&reason={}", "x".repeat(5000));
    assert_eq!(code(&post(&server, &format!("{page}/act/hold"), &cookie, &long)), "413");
    assert_eq!(scene.status()["mode"], "running", "nothing of it changed anything");
    // A program bears the token itself, which no page can make a browser do.
    let token = cookie.trim().rsplit('=').next().unwrap();
    let bearer = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(code(&post(&server, &stop, &bearer, "")), "303");
    run.wait().expect(7);
    assert_eq!(
        code(&post(&server, &stop, &bearer, "")),
        "409",
        "there is nobody left to ask"
    );
    server.stops();
    scene.assert_alone();
}

#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    let scene = scene();
    scene.run(&[]).expect(0);
    let server = serve(&scene, &["--public-read"]);
    let silent: Vec<TcpStream> = (0..300).map(|_| server.connect()).collect();
    let socket = UnixStream::connect(scene.path("serve.sock")).unwrap();
    let (head, _) = asked(socket, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(code(&head), "200", "the socket has places of its own");
    assert_eq!(
        code(&server.get("/", "").0),
        "200",
        "a silent one is closed, and the next is heard"
    );
    let mut closed = Vec::new();
    let mut first = &silent[0];
    first.read_to_end(&mut closed).unwrap();
    server.stops();
}

#[test]
fn threads_that_a_crowd_needed_go_while_one_reader_stays() {
    let scene = scene();
    scene.run(&[]).expect(0);
    let server = serve(&scene, &["--public-read"]);
    let tasks = format!("/proc/{}/task", server.process.pid());
    let threads = || fs::read_dir(&tasks).unwrap().count();
    let page = format!("/run/{}", run_of(&scene));
    // A page takes a thread of its own: how many are needed at once is chance, and a crowd comes again.
    let most = eventually("a crowd needs many threads", || {
        std::thread::scope(|scope| {
            let crowd: Vec<_> = (0..64).map(|_| scope.spawn(|| server.get(&page, ""))).collect();
            let mut most = 0;
            while crowd.iter().any(|one| !one.is_finished()) {
                most = most.max(threads());
            }
            (most > 12).then_some(most)
        })
    });
    // One reader alone asks often enough to keep all of them busy by turns, if each stayed for ten seconds without work.
    wait_for("some of them have ended", || {
        server.get(&page, "");
        std::thread::sleep(Duration::from_millis(400));
        threads() < most * 2 / 3
    });
    server.stops();
}
