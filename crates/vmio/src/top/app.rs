//! The state of the interactive screen, and what its keys do. Knows no terminal: keys in, state out.

use std::cell::Cell;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::columns::{self, Column, Set};
use super::minute::{GuestId, Minutes};
use super::screen::Screen;

/// Intervals that `+` and `-` step through, in seconds.
const INTERVALS: [f64; 9] = [0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0];
/// Guests, or lines of a page, that Page Up and Page Down go by.
const PAGE: isize = 10;

/// What is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum View {
    /// All guests.
    Table,
    /// A guest.
    Guest(GuestId),
    /// Keys and columns.
    Help,
}

/// The state of the screen.
pub struct App {
    /// The last interval; `None` until the first one has passed.
    pub screen: Option<Screen>,
    /// What is shown.
    pub view: View,
    /// The columns of the guests.
    pub set: Set,
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
    /// The selected guest; it stays selected when the order changes.
    pub selected: Option<GuestId>,
    /// Lines of a page above the screen; the view, which knows how long the page is, sets it to the most there are.
    pub scrolled: Cell<usize>,
    /// The last minute of each guest.
    pub minutes: Minutes,
    /// The same when the screen was paused.
    frozen: Option<Minutes>,
    /// Whether the terminal shows no blocks: they are drawn with ASCII.
    pub ascii: bool,
    /// Whether to end.
    pub ended: bool,
}

impl App {
    /// The state at the start.
    pub fn new(set: Set, sort: &'static Column, filter: &str, interval: f64) -> App {
        App {
            screen: None,
            view: View::Table,
            set,
            sort,
            filter: filter.to_owned(),
            typing: false,
            paused: false,
            interval,
            selected: None,
            scrolled: Cell::default(),
            minutes: Minutes::default(),
            frozen: None,
            ascii: false,
            ended: false,
        }
    }

    /// Takes a new interval.
    pub fn show(&mut self, screen: Screen) {
        self.minutes.add(&screen.guests, screen.seconds);
        match &mut self.screen {
            // A page that is opened while the screen stands still gets its devices and threads.
            Some(shown) if self.paused => {
                let known = shown.opened.as_ref().map(|opened| opened.pid);
                if screen.opened.as_ref().is_some_and(|opened| Some(opened.pid) != known) {
                    shown.opened = screen.opened;
                }
            }
            shown => *shown = Some(screen),
        }
    }

    /// The last minute of each guest as it is shown.
    pub fn shown_minutes(&self) -> &Minutes {
        self.frozen.as_ref().unwrap_or(&self.minutes)
    }

    /// The process of the guest whose page is open.
    pub fn opened(&self) -> Option<u32> {
        match &self.view {
            View::Guest(id) => id.pid,
            _ => None,
        }
    }

    /// The guests in the order in which they are shown.
    fn order(&self) -> Vec<GuestId> {
        let Some(screen) = &self.screen else { return Vec::new() };
        screen.clone().arranged(self.sort, &self.filter).guests.iter().map(GuestId::of).collect()
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
            KeyCode::Char('p' | ' ') => {
                self.paused = !self.paused;
                self.frozen = self.paused.then(|| self.minutes.clone());
            }
            KeyCode::Char('+' | '=') => self.step(1),
            KeyCode::Char('-') => self.step(-1),
            KeyCode::Char('?' | 'h') => {
                let view = if self.view == View::Help { View::Table } else { View::Help };
                self.go(view);
            }
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::PageDown => self.select(PAGE),
            KeyCode::PageUp => self.select(-PAGE),
            KeyCode::Home => self.select(isize::MIN / 2),
            KeyCode::Esc | KeyCode::Backspace if self.view != View::Table => self.go(View::Table),
            code if self.view == View::Table => self.table_key(code),
            _ => {}
        }
    }

    /// Keys that only the table has.
    fn table_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Esc => {
                self.selected = None;
                self.set_filter(String::new());
            }
            KeyCode::Tab => self.set = self.set.step(1),
            KeyCode::BackTab => self.set = self.set.step(-1),
            KeyCode::Char(digit @ '1'..='5') => self.set = Set::ALL[digit as usize - '1' as usize],
            KeyCode::Enter => {
                let order = self.order();
                let chosen = self.selected.clone().filter(|id| order.contains(id)).or_else(|| order.first().cloned());
                if let Some(id) = chosen {
                    self.selected = Some(id.clone());
                    self.go(View::Guest(id));
                }
            }
            KeyCode::Char(letter) => {
                if let Some(column) = columns::ALL.iter().find(|c| c.key == letter) {
                    self.sort = column;
                }
            }
            _ => {}
        }
    }

    fn go(&mut self, view: View) {
        self.view = view;
        self.scrolled.set(0);
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
    }

    fn step(&mut self, by: isize) {
        let nearest = |wanted: &dyn Fn(&f64) -> bool| INTERVALS.iter().copied().find(wanted);
        let next = match by {
            1 => nearest(&|i| *i > self.interval + 1e-9),
            _ => INTERVALS.iter().rev().copied().find(|i| *i < self.interval - 1e-9),
        };
        self.interval = next.unwrap_or(self.interval);
    }

    /// Selects another guest, or scrolls a page.
    fn select(&mut self, by: isize) {
        if self.view != View::Table {
            self.scrolled.set(self.scrolled.get().saturating_add_signed(by));
            return;
        }
        let order = self.order();
        let now = self.selected.as_ref().and_then(|id| order.iter().position(|other| other == id));
        let last = order.len().saturating_sub(1);
        let next = now.map_or(0, |at| at.saturating_add_signed(by).min(last));
        self.selected = order.get(next).cloned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(app: &mut App, text: &str) {
        for letter in text.chars() {
            let code = match letter {
                '\n' => KeyCode::Enter,
                '\t' => KeyCode::Tab,
                '\x1b' => KeyCode::Esc,
                '\x08' => KeyCode::Backspace,
                letter => KeyCode::Char(letter),
            };
            app.key(KeyEvent::new(code, KeyModifiers::NONE));
        }
    }

    #[test]
    fn keys() {
        let mut app = App::new(Set::Overview, &columns::ALL[0], "", 1.0);
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
        assert_eq!(app.selected, None, "there is nothing to select");
        press(&mut app, "\n");
        assert_eq!(app.view, View::Table, "nor to open");
        press(&mut app, "\t");
        assert_eq!(app.set, Set::Disk);
        app.key(KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT));
        assert_eq!(app.set, Set::Overview);
        press(&mut app, "4");
        assert_eq!(app.set, Set::Processor);
        // In the help letters sort nothing, and Esc leaves it.
        press(&mut app, "?c");
        assert_eq!((&app.view, app.sort.name), (&View::Help, "disk"));
        press(&mut app, "\x1b");
        assert_eq!(app.view, View::Table);
        press(&mut app, "hh");
        assert_eq!(app.view, View::Table);
        press(&mut app, "q");
        assert!(app.ended);
        let mut other = App::new(Set::Overview, &columns::ALL[0], "", 2.5);
        press(&mut other, "+");
        assert_eq!(other.interval, 3.0);
        other.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(other.ended);
    }
}
