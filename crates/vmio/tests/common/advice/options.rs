//! Edits of a command line of QEMU, by the id of what an option belongs to.

use super::applier::Edit;
use super::wrong::{Wrong, form};

/// Options and their values.
pub type Line = Vec<[String; 2]>;

/// What a reader knows of the device that a change is about.
#[derive(Debug, Clone, Default)]
pub struct Own {
    /// QEMU's id of it.
    pub id: Option<String>,
    /// File or address of a disk.
    pub source: Option<String>,
    /// Address of a card.
    pub mac: Option<String>,
}

/// Options of a text, split at spaces.
pub fn line(text: &str) -> Line {
    let mut all: Line = Vec::new();
    for word in text.split_whitespace() {
        match all.last_mut() {
            Some(last) if last[1].is_empty() && !word.starts_with('-') => last[1] = word.to_owned(),
            _ => all.push([word.to_owned(), String::new()]),
        }
    }
    all
}

/// Makes the edits.
pub fn edit(line: &mut Line, own: &Own, edits: &[Edit]) -> Result<(), Wrong> {
    let mut new: Line = Vec::new();
    for Edit { place, text } in edits {
        if text.starts_with('-') {
            let options = self::line(&unquoted(text)?);
            if place.contains("in place of its own -netdev and -device") {
                let at = own_card(line, own)?;
                let netdev = key(&line[at][1], "netdev").map(str::to_owned);
                line.remove(at);
                line.retain(|[o, v]| o != "-netdev" || key(v, "id") != netdev.as_deref());
            } else if let Some((_, given)) = place.split_once("in place of its own ") {
                // Named as they stand, or by the name of an option that is there once.
                let given = given.split(": th").next().unwrap_or_default().split("; ").next().unwrap_or_default();
                for one in given.trim_end_matches(':').split(" and ") {
                    let is = |[o, v]: &[String; 2]| format!("{o} {v}") == one || o == one;
                    let at = line.iter().position(is).ok_or_else(|| form(format!("no {one} in {line:?}")))?;
                    line.remove(at);
                }
            } else if !(place.contains("one more option") || place.contains("that QEMU adds by itself")) {
                return Err(form(format!("an option without a place: {place:?} {text}")));
            }
            new.extend(options);
            continue;
        }
        // Keys to remove are named with their `=`; those after "keep" stay.
        let gone = place.split("keep ").next().unwrap_or_default().split([' ', ',', '(', ')']);
        let mut gone: Vec<String> = gone.filter_map(|w| w.strip_suffix('=')).map(str::to_owned).collect();
        let taken = place.contains("remove these");
        if taken {
            gone.extend(text.split(',').map(|key| name(key).to_owned()));
        }
        let set = if taken { "" } else { text.as_str() };
        let model = place.contains("in place of its driver") || place.contains("this in place of ");
        for at in places(line, own, place)? {
            line[at][1] = keys_set(&line[at][1], set, &gone, model);
        }
    }
    // What others name must be there before them.
    new.append(line);
    *line = new;
    Ok(())
}

/// As a shell reads it.
fn unquoted(text: &str) -> Result<String, Wrong> {
    let out = std::process::Command::new("sh").args(["-c", &format!("printf '%s ' {text}")]).output();
    Ok(String::from_utf8_lossy(&out?.stdout).into_owned())
}

fn name(key: &str) -> &str {
    key.split('=').next().unwrap_or_default()
}

fn key<'a>(value: &'a str, wanted: &str) -> Option<&'a str> {
    value.split(',').find_map(|part| part.split_once('=').filter(|(name, _)| *name == wanted).map(|(_, v)| v))
}

/// Options that a comment means.
fn places(line: &Line, own: &Own, place: &str) -> Result<Vec<usize>, Wrong> {
    let card =
        own.mac.is_some() || line.iter().any(|[o, v]| o == "-device" && key(v, "netdev").is_some() && is_id(v, own));
    let found = if place.contains("own -nic") {
        vec![find(line, place, |o, _| o == "-nic")?]
    } else if place.contains("own -net nic") {
        vec![find(line, place, |o, v| o == "-net" && v.starts_with("nic"))?]
    } else if place.contains("in the -object throttle-group with id=") {
        let id = place.split_once("with id=").map_or("", |(_, id)| id).split(':').next().unwrap_or_default();
        vec![find(line, place, |o, v| o == "-object" && v.starts_with("throttle-group") && key(v, "id") == Some(id))?]
    } else if place.contains("own -netdev") {
        let at = own_card(line, own)?;
        let netdev = key(&line[at][1], "netdev").unwrap_or_default().to_owned();
        vec![find(line, place, |o, v| o == "-netdev" && key(v, "id") == Some(&netdev))?]
    } else if place.contains("own -device") || place.contains("the virtio-net device") {
        vec![if card || place.contains("net") { own_card(line, own)? } else { own_disk(line, own)? }]
    } else if place.contains("in the -device virtio-scsi-pci") {
        let bus = key(&line[own_disk(line, own)?][1], "bus").unwrap_or_default().trim_end_matches(".0").to_owned();
        vec![find(line, place, |o, v| o == "-device" && key(v, "id") == Some(&bus))?]
    } else if place.contains("-drive or -blockdev") {
        // Of whichever the disk has: the other is not there.
        match drive(line, own) {
            Ok(at) => vec![at],
            Err(_) => nodes(line, own)?.into_iter().take(1).collect(),
        }
    } else if place.contains("own -drive") {
        vec![drive(line, own)?]
    } else if place.contains("that of driver ") {
        let qcow2 = place.contains("driver qcow2");
        let is = |at: &usize| match key(&line[*at][1], "driver") {
            Some("qcow2") => qcow2,
            Some("file" | "host_device") => !qcow2,
            _ => false,
        };
        nodes(line, own)?.into_iter().filter(is).collect()
    } else if place.contains("-blockdev") {
        nodes(line, own)?
    } else {
        return Err(form(format!("no such place: {place}")));
    };
    if found.is_empty() { Err(form(format!("nothing is at: {place}\n{line:?}"))) } else { Ok(found) }
}

fn find(line: &Line, place: &str, is: impl Fn(&str, &str) -> bool) -> Result<usize, Wrong> {
    let at = line.iter().position(|[option, value]| is(option, value));
    at.ok_or_else(|| form(format!("the command line has no such option ({place}): {line:?}")))
}

fn is_id(value: &str, own: &Own) -> bool {
    own.id.as_deref().is_some_and(|id| key(value, "id") == Some(id))
}

fn own_card(line: &Line, own: &Own) -> Result<usize, Wrong> {
    let by_id = |o: &str, v: &str| o == "-device" && key(v, "netdev").is_some() && is_id(v, own);
    let by_mac = |o: &str, v: &str| o == "-device" && own.mac.is_some() && key(v, "mac") == own.mac.as_deref();
    find(line, "the card's -device", by_id).or_else(|_| find(line, "the card's -device", by_mac))
}

fn own_disk(line: &Line, own: &Own) -> Result<usize, Wrong> {
    let device = |o: &str, v: &str| o == "-device" && key(v, "drive").is_some();
    let by_id = find(line, "the disk's -device", |o, v| device(o, v) && is_id(v, own));
    let by_drive = |o: &str, v: &str| device(o, v) && own.id.is_some() && key(v, "drive") == own.id.as_deref();
    by_id.or_else(|_| find(line, "the disk's -device", by_drive)).or_else(|e| {
        let has = |id: &str| {
            line.iter().any(|[o, v]| {
                (o == "-drive" && key(v, "id") == Some(id) && has_source(v, own))
                    || (o == "-blockdev" && key(v, "node-name") == Some(id) && of_source(line, v, own))
            })
        };
        find(line, "", |o, v| device(o, v) && key(v, "drive").is_some_and(has)).map_err(|_| e)
    })
}

fn has_source(value: &str, own: &Own) -> bool {
    own.source.is_some() && ["file", "filename"].iter().any(|k| key(value, k) == own.source.as_deref())
}

fn of_source(line: &Line, value: &str, own: &Own) -> bool {
    let below = key(value, "file");
    has_source(value, own)
        || line.iter().any(|[o, v]| o == "-blockdev" && key(v, "node-name") == below && has_source(v, own))
}

/// The `-drive` of the disk's device; one without a device is found by its file.
fn drive(line: &Line, own: &Own) -> Result<usize, Wrong> {
    let of_device = own_disk(line, own).ok().and_then(|at| key(&line[at][1], "drive").map(str::to_owned));
    find(line, "its own -drive", |o, v| {
        o == "-drive"
            && if of_device.is_some() {
                key(v, "id") == of_device.as_deref()
            } else {
                is_id(v, own) || has_source(v, own)
            }
    })
}

/// The nodes of the disk, the top one first; those that lie below an image are others' files.
fn nodes(line: &Line, own: &Own) -> Result<Vec<usize>, Wrong> {
    let mut next = key(&line[own_disk(line, own)?][1], "drive").map(str::to_owned);
    let mut all = Vec::new();
    while let Some(node) = next {
        let at = find(line, &node, |o, v| o == "-blockdev" && key(v, "node-name") == Some(&node))?;
        next = key(&line[at][1], "file").map(str::to_owned);
        all.push(at);
    }
    Ok(all)
}

fn keys_set(value: &str, keys: &str, gone: &[String], model: bool) -> String {
    let set: Vec<&str> = keys.split(',').map(name).collect();
    let stays = |key: &&str| {
        let is_gone =
            gone.iter().any(|g| g == name(key) || g.strip_suffix('*').is_some_and(|p| name(key).starts_with(p)));
        !set.contains(&name(key)) && !is_gone
    };
    // A comma in a value is written twice.
    let whole = value.replace(",,", "\u{1}");
    let kept = whole.split(',').skip(usize::from(model)).filter(stays);
    let set = Some(keys).filter(|keys| !keys.is_empty());
    let parts: Vec<&str> = if model { set.into_iter().chain(kept).collect() } else { kept.chain(set).collect() };
    parts.join(",").replace('\u{1}', ",,")
}
