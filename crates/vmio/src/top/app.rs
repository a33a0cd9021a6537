//! The state of the interactive screen, and what its keys do. Knows no terminal: keys in, state out.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::columns::{self, Column};
use super::screen::Screen;

/// Intervals that `+` and `-` step through, in seconds.
const INTERVALS: [f64; 9] = [0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0];
/// Guests that Page Up and Page Down scroll by.
const PAGE: usize = 10;

/// The state of the screen.
pub struct App {
    /// The last interval; `None` until the first one has passed.
    pub screen: Option<Screen>,
    /// What guests are sorted by.
    pub sort: &'static Column,
    /// Text that a guest's name must hold.
    pub filter: String,
    /// Whether the filter is being typed.
    pub typing: bool,
    /// Whether the screen is paused. Counting goes on, so that no interval is missed.
    pub paused: bool,
    /// Seconds of an interval.
    pub interval: f64,
    /// Number of guests above the screen.
    pub offset: usize,
    /// Whether to end.
    pub ended: bool,
}

impl App {
    /// The state at the start.
    pub fn new(sort: &'static Column, filter: &str, interval: f64) -> App {
        let filter = filter.to_owned();
        App { screen: None, sort, filter, typing: false, paused: false, interval, offset: 0, ended: false }
    }

    /// Takes a new interval.
    pub fn show(&mut self, screen: Screen) {
        if !self.paused || self.screen.is_none() {
            self.screen = Some(screen);
        }
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            self.ended |= matches!(key.code, KeyCode::Char('c' | 'd'));
            return;
        }
        if self.typing {
            return self.type_filter(key.code);
        }
        match key.code {
            KeyCode::Char('q') => self.ended = true,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Esc => self.set_filter(String::new()),
            KeyCode::Char('+' | '=') => self.step(1),
            KeyCode::Char('-') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown => self.scroll(PAGE as isize),
            KeyCode::PageUp => self.scroll(-(PAGE as isize)),
            KeyCode::Home => self.offset = 0,
            KeyCode::Char(letter) => {
                if let Some(column) = columns::ALL.iter().find(|c| c.key == letter) {
                    self.sort = column;
                    self.offset = 0;
                }
            }
            _ => {}
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.set_filter(String::new());
            }
            KeyCode::Backspace => {
                let mut shorter = self.filter.clone();
                shorter.pop();
                self.set_filter(shorter);
            }
            KeyCode::Char(letter) => self.set_filter(format!("{}{letter}", self.filter)),
            _ => {}
        }
    }

    fn set_filter(&mut self, filter: String) {
        self.filter = filter;
        self.offset = 0;
    }

    fn step(&mut self, by: isize) {
        let nearest = |wanted: &dyn Fn(&f64) -> bool| INTERVALS.iter().copied().find(wanted);
        let next = match by {
            1 => nearest(&|i| *i > self.interval + 1e-9),
            _ => INTERVALS.iter().rev().copied().find(|i| *i < self.interval - 1e-9),
        };
        self.interval = next.unwrap_or(self.interval);
    }

    fn scroll(&mut self, by: isize) {
        let last = self.screen.as_ref().map_or(0, |s| s.guests.len().saturating_sub(1));
        self.offset = self.offset.saturating_add_signed(by).min(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(app: &mut App, text: &str) {
        for letter in text.chars() {
            let code = match letter {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                '\x08' => KeyCode::Backspace,
                letter => KeyCode::Char(letter),
            };
            app.key(KeyEvent::new(code, KeyModifiers::NONE));
        }
    }

    #[test]
    fn keys() {
        let mut app = App::new(&columns::ALL[0], "", 1.0);
        press(&mut app, "l");
        assert_eq!(app.sort.name, "latency");
        press(&mut app, "++");
        assert_eq!(app.interval, 3.0);
        press(&mut app, "-----");
        assert_eq!(app.interval, 0.2);
        press(&mut app, "------+");
        assert_eq!(app.interval, 0.5);
        press(&mut app, "p");
        assert!(app.paused);
        // While the filter is typed, letters are letters.
        press(&mut app, "/dbq\x08");
        assert!(app.typing && !app.ended);
        assert_eq!((app.filter.as_str(), app.sort.name), ("db", "latency"));
        press(&mut app, "\nd");
        assert_eq!((app.filter.as_str(), app.typing, app.sort.name), ("db", false, "disk"));
        press(&mut app, "\x1b");
        assert_eq!(app.filter, "");
        app.key(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE));
        assert_eq!(app.offset, 0, "there is nothing to scroll");
        press(&mut app, "q");
        assert!(app.ended);
        let mut other = App::new(&columns::ALL[0], "", 2.5);
        press(&mut other, "+");
        assert_eq!(other.interval, 3.0);
        other.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(other.ended);
    }
}
