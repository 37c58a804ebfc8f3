//! Connections to the pages: so many at a time by each entrance, and none that keeps its place without asking for anything.

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Connections that are open at once; others wait. A page that follows its run keeps one.
const PLACES: usize = 256;
/// The head of a request comes within this, the first as well as the next on the same connection.
const HEAD: Duration = Duration::from_secs(15);

/// Answers whoever comes, for ever. An entrance whose places are taken does not keep another one from answering.
pub(super) async fn hear<L: Listener>(mut listener: L, pages: Router) {
    let places = Arc::new(Semaphore::new(PLACES));
    loop {
        let place = places.clone().acquire_owned().await;
        let (stream, _) = listener.accept().await;
        let pages = TowerToHyperService::new(pages.clone());
        tokio::spawn(async move {
            let _place = place;
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD);
            // Who goes away in the middle of an answer has it no more.
            let _ = http.serve_connection(TokioIo::new(stream), pages).await;
        });
    }
}
