//! Accepts connections to the pages: a limited number per entrance, none of which keeps its place without sending a request or
//! reading its answer.

use super::places::{ConnectionPlace, ConnectionPlaces, REQUEST};
use axum::Router;
use axum::extract::Request;
use axum::serve::Listener;
use futures_util::future::select;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Semaphore;
use tokio::time::{Sleep, sleep};

/// Maximum number of this user's open connections; others wait. A live page keeps one.
const PLACES: usize = 256;
/// Time for the head of each request of this user.
const HEAD: Duration = Duration::from_secs(15);
/// A reader that takes nothing of an answer for this long is gone.
const TAKES: Duration = Duration::from_secs(15);
/// Longest head of a request, in bytes: browsers send the cookies of every port of a host.
const HEAD_BYTES: usize = 32 << 10;

/// Serves this user forever; other users are rejected.
pub(super) async fn hear_owner<L: Listener>(mut listener: L, pages: Router) {
    let places = Arc::new(Semaphore::new(PLACES));
    loop {
        let place = places.clone().acquire_owned().await;
        let (stream, _) = listener.accept().await;
        let stream = TokioIo::new(TimedStream { stream, waits: None });
        let pages = TowerToHyperService::new(pages.clone());
        tokio::spawn(async move {
            let _place = place;
            // A reader may disconnect during an answer.
            let _ = http(HEAD).serve_connection(stream, pages).await;
        });
    }
}

/// Serves anyone forever. Existing connections never delay a new one.
pub(super) async fn hear_anyone<L: Listener>(mut listener: L, pages: Router) {
    let places = Arc::new(ConnectionPlaces::default());
    loop {
        let (stream, _) = listener.accept().await;
        let stream = TokioIo::new(TimedStream { stream, waits: None });
        let held = places.enter();
        let pages = PlacedPages {
            pages: TowerToHyperService::new(pages.clone()),
            place: held.0.clone(),
        };
        tokio::spawn(async move {
            let ends = pin!(held.0.ends());
            // A reader may disconnect during an answer.
            let _ = select(http(REQUEST).serve_connection(stream, pages), ends).await;
        });
    }
}

fn http(head: Duration) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_buf_size(HEAD_BYTES);
    http
}

/// The pages; each request gets the place of its connection.
struct PlacedPages {
    pages: TowerToHyperService<Router>,
    place: Arc<ConnectionPlace>,
}

impl Service<Request<Incoming>> for PlacedPages {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.place.clone());
        self.pages.call(request)
    }
}

/// A connection that fails if the other side stops reading.
struct TimedStream<S> {
    stream: S,
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedStream<S> {
    fn in_time<T>(&mut self, done: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.waits = None;
            return done;
        }
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(TAKES)));
        ready!(waits.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.in_time(done, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(cx);
        self.in_time(done, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.in_time(done, cx)
    }
}
