//! Takes the terminal as `supervise top` does, and panics.

use supervise::screen::Screen;

fn main() -> std::io::Result<()> {
    let mut screen = Screen::take()?;
    screen.draw(|_, _| vec!["drawn".into()])?;
    panic!("on purpose");
}
