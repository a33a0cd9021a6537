//! What every page is made of: a template that escapes what is put into it, and the frame around it.
//!
//! This is the only file that names the template library (maud): a test below holds that. A page is built with
//! [`html!`] and is an [`Html`], which nothing but the macro makes of a text, so words of others cannot become
//! markup by a forgotten call. What must not be shown at all is replaced once, in the whole page.

use maud::{Markup, PreEscaped, Render};
use vmio_model::rules::Severity;
use vmio_model::shown;

/// A part of a page. Texts are put into one by [`html!`] alone, which escapes them.
pub(super) struct Html(Markup);

impl Html {
    /// For [`html!`]. The type of the argument cannot be named outside of this file.
    pub(super) fn of(markup: Markup) -> Html {
        Html(markup)
    }
}

impl Render for Html {
    fn render_to(&self, page: &mut String) {
        self.0.render_to(page);
    }
}

/// A part of a page, in the syntax of maud.
macro_rules! html {
    ($($template:tt)*) => { $crate::report::page::Html::of(::maud::html! { $($template)* }) };
}
pub(super) use html;

/// The style of all pages: our own constant text, and the one text that is put into a page as it is.
const STYLE: PreEscaped<&str> = PreEscaped(include_str!("style.css"));

/// Loads nothing, runs nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// A whole page, with a headline. It loads nothing, and no character is in it that must not be shown.
pub(super) fn whole(title: &str, body: &Html) -> String {
    let page = html! {
        (maud::DOCTYPE) "\n"
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (STYLE) }
            }
            body {
                main { "\n" h1 { (title) } (body) }
            }
        }
        "\n"
    };
    // None of the characters that are replaced is part of any markup.
    shown::lines(&page.0.into_string()).into_owned()
}

/// A severity as a chip.
pub(super) fn chip(severity: Severity) -> Html {
    html! { span class={ "tag " (severity.name()) } { (severity.name()) } }
}

/// A list of texts, or nothing.
pub(super) fn list<T: AsRef<str>>(lines: &[T]) -> Html {
    html! {
        @if !lines.is_empty() {
            ul { @for line in lines { li { (line.as_ref()) } } }
        }
    }
}

#[cfg(test)]
impl Html {
    /// What it is as text.
    pub(super) fn text(&self) -> String {
        self.0.clone().into_string()
    }
}
