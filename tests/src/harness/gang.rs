//! The demo trainer without a supervisor: an older run, a stranger, the run that nothing interrupts.

use std::net::TcpListener;
use std::process::{Child, Stdio};

use super::Scene;

/// Ranks that end with the test.
#[derive(Debug)]
pub struct Gang {
    ranks: Vec<Child>,
}

impl Gang {
    /// Starts all ranks on the scene's YAML.
    #[must_use]
    pub fn start(scene: &Scene, overrides: &[&str]) -> Self {
        let config = scene.write_config();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let start = |rank: u64| {
            scene
                .dressed("demo_trainer")
                .arg("--config")
                .arg(&config)
                .args(overrides)
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", scene.world().to_string())
                .env("MASTER_ADDR", "127.0.0.1")
                .env("MASTER_PORT", port.to_string())
                // A gang must be known by more than a port, which is handed out again.
                .env(
                    "SUPERVISE_ATTEMPT",
                    format!("{}gang/{}/{port}", scene.mark(), scene.path("").display()),
                )
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        };
        Gang {
            ranks: (0..scene.world()).map(start).collect(),
        }
    }

    /// The exit codes of all ranks.
    #[must_use]
    pub fn wait(mut self) -> Vec<Option<i32>> {
        self.ranks.iter_mut().map(|r| r.wait().unwrap().code()).collect()
    }
}

impl Drop for Gang {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}
