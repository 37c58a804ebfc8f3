//! The gang: collectives of all ranks over TCP, through rank 0.
//!
//! Every collective is one exchange: each rank sends a frame to rank 0, which combines
//! all of them in rank order and answers each rank. There are no timeouts, as there are
//! none worth the name in a real trainer: where one rank sleeps, all wait; where one
//! dies, the others see a closed connection and raise. Frames carry a running number
//! and the collective's kind, so ranks that fell out of step say so.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::failure::Failure;

const MAX_FRAME: u32 = 64 << 20;
const JOIN_WITHIN: Duration = Duration::from_secs(60);
const BIND_WITHIN: Duration = Duration::from_secs(5);

/// Place of a rank, as its launcher says.
#[derive(Debug, Clone)]
pub struct Place {
    /// This process's rank.
    pub rank: usize,
    /// The number of ranks.
    pub world: usize,
    /// The address of rank 0.
    pub address: String,
    /// Names the attempt; ranks of another attempt are turned away.
    pub token: String,
}

/// This rank's connections to the others.
#[derive(Debug)]
pub struct Gang {
    /// This process's rank.
    pub rank: usize,
    /// The number of ranks.
    pub world: usize,
    /// At rank 0 one stream for each other rank, elsewhere one to rank 0.
    streams: Vec<TcpStream>,
    number: u32,
}

impl Gang {
    /// Meets the other ranks.
    pub fn join(place: &Place) -> Result<Gang, Failure> {
        let streams = if place.rank == 0 {
            gather_ranks(place)
        } else {
            find_hub(place)
        };
        let streams = streams.map_err(|e| {
            let text = format!("The client socket has failed to connect to {}: {e}", place.address);
            Failure::Exception {
                class: "torch.distributed.DistNetworkError",
                message: text,
                function: "init_process_group",
            }
        })?;
        Ok(Gang {
            rank: place.rank,
            world: place.world,
            streams,
            number: 0,
        })
    }

    /// Waits until every rank is here.
    pub fn barrier(&mut self) -> Result<(), Failure> {
        self.exchange(b'b', Vec::new(), |frames| vec![Vec::new(); frames.len()])
            .map(drop)
    }

    /// Gives every rank what rank 0 passes in; what others pass in is dropped.
    pub fn broadcast(&mut self, from_zero: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.exchange(b'c', from_zero, |mut frames| {
            let first = frames.swap_remove(0);
            vec![first; frames.len() + 1]
        })
    }

    /// Gives every rank the frames of all ranks, one after the other.
    pub fn all_gather(&mut self, mine: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.exchange(b'g', mine, |frames| vec![frames.concat(); frames.len()])
    }

    /// Sums vectors over the ranks, in rank order; each rank gets its equal part of the sum.
    pub fn reduce_scatter(&mut self, mine: &[f32]) -> Result<Vec<f32>, Failure> {
        let answer = self.exchange(b'r', to_bytes(mine), |frames| {
            let sum = to_bytes(&sum_in_order(&frames));
            let part = sum.len() / frames.len();
            (0..frames.len())
                .map(|r| sum[r * part..(r + 1) * part].to_vec())
                .collect()
        })?;
        Ok(to_floats(&answer))
    }

    /// Sums one number over the ranks, in rank order.
    pub fn sum(&mut self, mine: f32) -> Result<f32, Failure> {
        let answer = self.exchange(b's', to_bytes(&[mine]), |frames| {
            vec![to_bytes(&sum_in_order(&frames)); frames.len()]
        })?;
        Ok(to_floats(&answer).first().copied().unwrap_or_default())
    }

    fn exchange(
        &mut self,
        kind: u8,
        mine: Vec<u8>,
        combine: impl FnOnce(Vec<Vec<u8>>) -> Vec<Vec<u8>>,
    ) -> Result<Vec<u8>, Failure> {
        self.number += 1;
        let tag = (self.number << 8) | u32::from(kind);
        let result = if self.rank == 0 {
            self.exchange_at_hub(tag, mine, combine)
        } else {
            let hub = &mut self.streams[0];
            send(hub, tag, &mine).and_then(|()| receive(hub, tag))
        };
        result.map_err(|e| {
            let text = format!("[gloo/transport/tcp/pair.cc:547] Connection closed by peer: {e}");
            Failure::runtime("all_reduce", text)
        })
    }

    fn exchange_at_hub(
        &mut self,
        tag: u32,
        mine: Vec<u8>,
        combine: impl FnOnce(Vec<Vec<u8>>) -> Vec<Vec<u8>>,
    ) -> io::Result<Vec<u8>> {
        let mut frames = vec![mine];
        for stream in &mut self.streams {
            frames.push(receive(stream, tag)?);
        }
        let mut answers = combine(frames).into_iter();
        let own = answers.next().unwrap_or_default();
        for (stream, answer) in self.streams.iter_mut().zip(answers) {
            send(stream, tag, &answer)?;
        }
        Ok(own)
    }
}

fn gather_ranks(place: &Place) -> io::Result<Vec<TcpStream>> {
    let listener = bind(&place.address)?;
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + JOIN_WITHIN;
    let mut ranks: Vec<Option<TcpStream>> = (1..place.world).map(|_| None).collect();
    while ranks.iter().any(Option::is_none) {
        match listener.accept() {
            Ok((stream, _)) => {
                // A stranger, or a rank of another attempt, is no reason to fail.
                if let Ok((rank, stream)) = greet(stream, &place.token)
                    && let Some(seat) = rank.checked_sub(1).and_then(|r| ranks.get_mut(r))
                {
                    *seat = Some(stream);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() > deadline {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                thread::sleep(Duration::from_millis(2));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(ranks.into_iter().flatten().collect())
}

/// A port may be taken for a moment, by a stranger's outgoing connection for one.
fn bind(address: &str) -> io::Result<TcpListener> {
    let deadline = Instant::now() + BIND_WITHIN;
    loop {
        match TcpListener::bind(address) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

fn greet(mut stream: TcpStream, token: &str) -> io::Result<(usize, TcpStream)> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let hello = receive(&mut stream, 0)?;
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let (rank, theirs) = hello.split_first().ok_or_else(wrong)?;
    if theirs != token.as_bytes() {
        return Err(wrong());
    }
    send(&mut stream, 0, b"welcome")?;
    stream.set_read_timeout(None)?;
    Ok((usize::from(*rank), stream))
}

fn find_hub(place: &Place) -> io::Result<Vec<TcpStream>> {
    let deadline = Instant::now() + JOIN_WITHIN;
    let mut hello = vec![place.rank as u8];
    hello.extend_from_slice(place.token.as_bytes());
    loop {
        let joined = TcpStream::connect(&place.address).and_then(|mut stream| {
            stream.set_nodelay(true)?;
            send(&mut stream, 0, &hello)?;
            receive(&mut stream, 0)?;
            Ok(stream)
        });
        match joined {
            Ok(stream) => return Ok(vec![stream]),
            Err(e) if Instant::now() > deadline => return Err(e),
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn send(stream: &mut TcpStream, tag: u32, frame: &[u8]) -> io::Result<()> {
    let mut message = Vec::with_capacity(frame.len() + 8);
    message.extend_from_slice(&tag.to_le_bytes());
    message.extend_from_slice(&(frame.len() as u32).to_le_bytes());
    message.extend_from_slice(frame);
    stream.write_all(&message)
}

fn receive(stream: &mut TcpStream, tag: u32) -> io::Result<Vec<u8>> {
    let mut word = [0; 4];
    stream.read_exact(&mut word)?;
    if u32::from_le_bytes(word) != tag {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "ranks are out of step"));
    }
    stream.read_exact(&mut word)?;
    let length = u32::from_le_bytes(word);
    if length > MAX_FRAME {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "frame too long"));
    }
    let mut frame = vec![0; length as usize];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

fn sum_in_order(frames: &[Vec<u8>]) -> Vec<f32> {
    let mut total = frames.first().map(|f| to_floats(f)).unwrap_or_default();
    for frame in frames.iter().skip(1) {
        for (t, x) in total.iter_mut().zip(to_floats(frame)) {
            *t += x;
        }
    }
    total
}

/// Little-endian bytes of floats.
pub fn to_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// The floats in little-endian bytes.
pub fn to_floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect()
}
