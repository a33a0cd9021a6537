//! The loop of the terminal: count, draw, keys. The terminal is restored however the program ends: `q`, Ctrl-C,
//! SIGTERM, SIGHUP, an error or a panic.

use std::io;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{process, thread};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use ratatui::widgets::Paragraph;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::app::App;
use super::screen::Screen;
use super::view;

/// How long a signal may go unnoticed.
const HEARD: Duration = Duration::from_millis(100);
/// How long after a signal the program is ended all the same: a terminal that goes while keys are read keeps the
/// library that reads them for ever.
const UNHEARD: Duration = Duration::from_secs(2);

/// Restores the terminal when it is dropped.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Runs until a key or a signal ends it. `next` gives the screen of the time since its last call, with more of the guest
/// whose process it is given.
pub fn run(mut app: App, mut next: impl FnMut(Option<u32>) -> Option<Screen>) -> io::Result<()> {
    let ended = Arc::new(AtomicBool::new(false));
    let (mut signals, heard) = (Signals::new([SIGINT, SIGTERM, SIGHUP])?, Arc::clone(&ended));
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            heard.store(true, Ordering::Relaxed);
            thread::sleep(UNHEARD);
            ratatui::restore();
            process::exit(1);
        }
    });
    // Also sets a hook that gives the terminal back before a panic is told.
    let mut terminal = ratatui::try_init()?;
    let _restore = Restore;
    let _ = next(None);
    let mut last = Instant::now();
    draw(&mut terminal, &app)?;
    while !app.ended && !ended.load(Ordering::Relaxed) {
        let due = last + Duration::from_secs_f64(app.interval);
        let left = due.saturating_duration_since(Instant::now());
        if is_gone(left.min(HEARD))? {
            break;
        }
        if event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) => app.key(key),
                Event::Resize(..) => {}
                _ => continue,
            }
            draw(&mut terminal, &app)?;
        }
        if Instant::now() >= due {
            last = Instant::now();
            if let Some(screen) = next(app.opened()) {
                app.show(screen);
            }
            draw(&mut terminal, &app)?;
        }
    }
    Ok(())
}

fn draw(terminal: &mut DefaultTerminal, app: &App) -> io::Result<()> {
    terminal.draw(|frame| {
        let area = frame.area();
        frame.render_widget(Paragraph::new(view::lines(app, area.width, area.height)), area);
    })?;
    Ok(())
}

/// Waits for a key at most so long, and says whether the terminal is gone (closed window, lost connection), where the
/// library that reads keys would loop for ever.
fn is_gone(limit: Duration) -> std::io::Result<bool> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        thread::sleep(limit);
        return Ok(false);
    }
    let mut watched = [PollFd::new(&stdin, PollFlags::IN)];
    let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
    match poll(&mut watched, Some(&limit)) {
        Ok(_) => Ok(watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)),
        Err(rustix::io::Errno::INTR) => Ok(false), // the signal is looked at next
        Err(e) => Err(e.into()),
    }
}
