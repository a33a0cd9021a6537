// Asks for /v1/status each second and shows it, with what /v1/history tells of each member. Every text of others becomes a text node, never markup.
"use strict";

const ROWS = 200; // of a pool; there may be thousands
const KEY = "vmio-guard-token";
const by = (id) => document.getElementById(id);
const PLACES = {
  held: "excess waits in the guest",
  queued: "excess waits on the host",
  nic: "excess waits in the card",
  none: "not limited",
};
const SECONDS = 600; // of a member's history, as the guard keeps it
const PARALLEL = 8; // histories asked for at once
const SVG = "http://www.w3.org/2000/svg";
let last = null; // the answer before, for what was dropped in between
let timer = 0;
const histories = new Map(); // of members shown, by pool and name: rates and minimums, a second each

// What must not be shown is replaced, as everywhere in vmio (model/sanitize.rs).
const HIDDEN = /[\p{Cc}\u061c\u200b\u200e\u200f\u202a-\u202e\u2028\u2029\u2060-\u206f\ufeff]/gu;
const clean = (text) => String(text).replace(HIDDEN, "\ufffd");

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  for (const child of children) {
    if (child !== null) made.append(typeof child === "string" ? clean(child) : child);
  }
  return made;
}

function scaled(value, units, step) {
  let at = 0;
  while (value >= 0.9995 * step && at + 1 < units.length) {
    value /= step;
    at += 1;
  }
  const decimals = value === 0 || value >= 99.95 || (at === 0 && step > 1) ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(decimals)} ${units[at]}`;
}
const rate = (bits) => scaled(bits, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"], 1000);
// What somebody wrote has no zeros at its end.
const written = (bits) => rate(bits).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
const bytes = (n) => scaled(n, ["B", "KiB", "MiB", "GiB"], 1024);
const few = (x) => x.toFixed(x >= 99.5 ? 0 : x >= 9.95 ? 1 : 2);
const number = (n) => n.toLocaleString("en");

function time(seconds) {
  if (seconds < 0.9995e-3) return `${few(seconds * 1e6)} µs`;
  if (seconds < 0.9995) return `${few(seconds * 1e3)} ms`;
  if (seconds < 120) return `${few(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${few(seconds / 3600)} h` : `${few(seconds / 86400)} days`;
}

// The guest of a member, where one is known and has another name.
const guestOf = (member) => member.guest && member.guest !== member.name ? member.guest : null;
// A member as an operator knows it: its guest, where one is known, and the interface.
const called = (member) => guestOf(member) ? `${guestOf(member)} (${member.name})` : member.name;
const DIRECTIONS = { guest_tx: "guests send", guest_rx: "guests receive" };
const named = (pool) => `${pool.uplink}, ${DIRECTIONS[pool.direction] || pool.direction}`;

const who = (status) => status.measures ? `${status.algorithm} (${status.measures})` : status.algorithm;

function tile(what, figure, more, bad) {
  const made = element("div", bad ? "tile bad" : "tile");
  made.append(element("div", "what", what), element("div", "figure", figure), element("div", "more", more));
  return made;
}

function tiles(status, breaches) {
  const { loop, policy, appeared } = status;
  const sum = (of) => status.pools.reduce((all, pool) => all + (of(pool) || 0), 0);
  const interruptions = sum((pool) => pool.interruptions_total);
  const interrupted = time(sum((pool) => pool.interrupted_seconds_total));
  const met = members(status).filter(({ member }) => member.guarantee_met_ratio != null);
  const least = met.length ? Math.min(...met.map(({ member }) => member.guarantee_met_ratio)) : null;
  const all = [
    tile("Breaches now", String(breaches), breaches ? "a minimum needed but not reached" : "no minimum missed for 2 s in a row", breaches),
    tile("Guarantee met", least === null ? "–" : `${few(least * 100)} %`, least === null ? "no minimum was needed in the last minute" : "of the last minute, by the member that got least", least !== null && least < 0.99),
    loop.periods_total === 0
      ? tile("Control loop", "–", "not needed so far: the kernel does it alone")
      : tile("Control loop", time(loop.last_seconds), `of each ${time(loop.period_seconds)}; at most ${time(loop.longest_seconds)} so far`, loop.last_seconds > loop.period_seconds),
    tile("New interfaces", appeared.p99_seconds == null ? "–" : time(appeared.p99_seconds), appeared.p99_seconds == null ? "none came so far" : `99 % were limited within this time; ${number(appeared.total)} came so far`),
    tile("Interruptions", number(interruptions), interruptions ? `limits broken from outside since the start; about ${interrupted} in all` : "nobody has broken limits since the start"),
    tile("Policy", `revision ${policy.revision}`, policy.files.join(", ")),
  ];
  by("tiles").replaceChildren(...all);
}

function notices(status) {
  const all = [];
  const add = (text, bad) => all.push(element("div", bad ? "notice bad" : "notice", text));
  const { policy } = status;
  if (status.trouble) add(`Trouble: ${status.trouble}`, true);
  for (const pool of status.pools.filter((pool) => pool.not_in_force != null)) {
    add(`${named(pool)}: not in force: ${pool.not_in_force}`, true);
  }
  for (const uplink of status.uplinks_down || []) add(`${uplink} is down: nothing passes it`, true);
  if (policy.refused) add(`The last change was refused: ${policy.refused}`, true);
  if (policy.taken_back_in_seconds != null) {
    add(`This change reverts in ${time(policy.taken_back_in_seconds)}; to keep it: vmio guard confirm`);
  }
  for (const { pool, member } of members(status).filter(({ member }) => member.flooded_seconds != null).slice(0, 20)) {
    add(`${pool.uplink}, ${called(member)}: receives ${member.rate_bps == null ? "less" : rate(member.rate_bps)} of its minimum of ${written(member.min_effective_bps)} while the link is full: the loss happens before this host, which cannot prevent it`, true);
  }
  for (const { pool, member } of members(status).filter(({ member }) => member.delay && member.delay.missed_seconds != null).slice(0, 20)) {
    const now = member.delay.p99_seconds == null ? "nothing passes" : waits(member);
    add(`${pool.uplink}, ${called(member)}: a target of delay is missed: ${now}`, true);
  }
  for (const { pool, member } of members(status).filter(({ member }) => member.spoofed_packets_total > 0).slice(0, 20)) {
    add(`${pool.uplink}, ${called(member)}: ${number(member.spoofed_packets_total)} packets so far claimed addresses that are not its own, ${number(member.spoofed_dropped_packets_total)} of them dropped`, true);
  }
  if (policy.files_differ) add("The files have changed since; to put them in force: vmio guard apply");
  if (policy.over) add(`Set over the files: ${policy.over.trim().split("\n").join(" ")}`);
  by("notices").replaceChildren(...all);
  // What stands always is folded away; whoever has opened it keeps it open.
  const notes = [...status.notes, ...policy.warnings];
  by("notes").hidden = notes.length === 0;
  by("noted").textContent = notes.length === 1 ? "1 note" : `${number(notes.length)} notes`;
  by("note").replaceChildren(...notes.slice(0, 200).map((text) => element("p", "dim", text)));
}

const members = (status) => status.pools.flatMap((pool) => pool.members.map((member) => ({ pool, member })));

// What a member lost since the answer before, a second.
function lost(pool, member, seconds) {
  const before = last && last.dropped.get(keyOf(pool, member));
  const packets = before === undefined || before === null ? 0 : member.dropped_packets_total - before;
  return packets > 0 && seconds > 0 ? packets / seconds : 0;
}

function bar(pool, member) {
  const made = element("div", "bar");
  const part = (value) => `${Math.min(100, (100 * value) / Math.max(1, pool.capacity_bps))}%`;
  const piece = (className, property, value) => {
    const one = element("i", className);
    one.style[property] = part(value);
    made.append(one);
  };
  piece("allowed", "width", Math.min(member.max_bps, pool.capacity_bps));
  piece("now", "width", member.rate_bps || 0);
  if (member.min_effective_bps > 0) piece("least", "left", member.min_effective_bps);
  made.setAttribute("role", "img");
  const now = member.rate_bps == null ? "not known yet" : rate(member.rate_bps);
  made.setAttribute("aria-label", `${now}; minimum ${written(member.min_effective_bps)}, maximum ${written(member.max_bps)}`);
  return made;
}

function excess(pool, member, seconds) {
  const made = element("div", "excess");
  const say = (...parts) => made.append(...(made.hasChildNodes() ? ["; "] : []), ...parts);
  const strong = (text, className) => element("b", className || "", text);
  if (member.breached_seconds != null) say(strong(`less than its minimum for ${time(member.breached_seconds)}`, "bad"));
  if (member.excess) {
    const { waits: place } = member.excess;
    say(pool.queueless && place === "queued" ? "no queue" : PLACES[place] || clean(place));
    made.title = clean(member.excess.reason);
  }
  if (member.waiting_bytes > 0) say(strong(bytes(member.waiting_bytes)), " wait on this host now");
  if (member.delay && member.delay.p99_seconds != null) {
    const missed = member.delay.missed_seconds != null;
    say(missed ? strong(waits(member), "bad") : waits(member));
  }
  const drops = lost(pool, member, seconds);
  if (drops > 0) say(strong(`${number(Math.round(drops))}/s`), " dropped now");
  if (member.held_seconds_total > 0) say(`wanted more than it got for ${time(member.held_seconds_total)} in all`);
  if (member.dropped_packets_total > 0) say(`${number(member.dropped_packets_total)} packets dropped in all`);
  return made;
}

const target = (value) => value == null ? "" : ` of at most ${time(value)}`;

// What the last second's packets of a member waited in its queue, with the targets of its class.
function waits({ delay, settings }) {
  const { delay_seconds, jitter_seconds } = settings || {};
  return `delay ${time(delay.p99_seconds)}${target(delay_seconds)}, jitter ${time(delay.jitter_seconds)}${target(jitter_seconds)}`;
}

const keyOf = (pool, member) => `${pool.uplink} ${pool.direction} ${member.name}`;

// The member's history with this second; null until the guard has told what was before, and where that is long ago.
function grown(pool, member) {
  const key = keyOf(pool, member);
  const now = Date.now();
  const known = histories.get(key) || { at: now, rates: null, path: [pool.uplink, pool.direction, member.name], asked: false };
  histories.set(key, known);
  if (!known.rates) return null;
  const due = Math.round((now - known.at) / 1000);
  if (due === 1) {
    known.rates.push(member.rate_bps);
    known.minimums.push(member.min_effective_bps);
    known.at += 1000;
  }
  // Seconds in between (a slow answer, a hidden tab, a clock set back) are in the guard's history, which is asked again.
  if (due > 1 || due < 0) known.asked = false;
  known.rates.splice(0, known.rates.length - SECONDS);
  known.minimums.splice(0, known.minimums.length - SECONDS);
  return due > 10 ? null : known;
}

// Asks for the histories of members that are shown and have none yet, or lack seconds.
async function learn(shown) {
  for (const key of histories.keys()) if (!shown.has(key)) histories.delete(key);
  const wanted = [...histories.values()].filter((known) => !known.asked).slice(0, PARALLEL);
  const token = sessionStorage.getItem(KEY);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  await Promise.all(wanted.map(async (known) => {
    known.asked = true;
    const path = known.path.map(encodeURIComponent).join("/");
    const answer = await fetch(`v1/history/${path}`, { headers, cache: "no-store", signal: AbortSignal.timeout(10000) });
    // A guard with thousands of members keeps none of some.
    if (!answer.ok) return;
    const { rates_bps, minimums_bps } = await answer.json();
    Object.assign(known, { at: Date.now(), rates: rates_bps, minimums: minimums_bps });
  }));
}

function line(className, values, top, width) {
  const made = document.createElementNS(SVG, "path");
  let path = "";
  let pen = false;
  values.forEach((value, i) => {
    if (value != null) path += `${pen ? "L" : "M"}${width - values.length + i} ${(30 - (28 * Math.min(value, top)) / top).toFixed(1)}`;
    pen = value != null;
  });
  made.setAttribute("d", path);
  made.setAttribute("class", className);
  return made;
}

function past(pool, member) {
  const known = grown(pool, member);
  if (!known || known.rates.length < 2) return null;
  const most = Math.max(...known.rates.map((value) => value || 0));
  const max = Math.min(member.max_bps, pool.capacity_bps);
  const top = Math.max(1, most, ...known.minimums.map((value) => value || 0), most > max / 4 ? max : 0);
  const width = Math.max(60, known.rates.length);
  const made = document.createElementNS(SVG, "svg");
  made.setAttribute("viewBox", `0 0 ${width - 1} 32`);
  made.setAttribute("preserveAspectRatio", "none");
  made.setAttribute("class", "past");
  made.setAttribute("role", "img");
  if (max <= top) made.append(line("most", known.rates.map(() => max), top, width));
  if (known.minimums.some((value) => value > 0)) made.append(line("least", known.minimums, top, width));
  made.append(line("now", known.rates, top, width));
  const least = member.min_effective_bps > 0 ? `, minimum ${written(member.min_effective_bps)}` : "";
  const title = document.createElementNS(SVG, "title");
  title.textContent = `the last ${time(known.rates.length)}: at most ${rate(most)}${least}, maximum ${written(member.max_bps)}`;
  made.append(title);
  return element("div", "history", made, element("small", "", `${time(known.rates.length)}, 0 to ${rate(top)}`));
}

function row(pool, member, seconds) {
  const made = element("div", member.breached_seconds != null ? "row breached" : "row");
  const guest = guestOf(member);
  const of = [guest && member.name, member.name === member.class ? null : member.class, `priority ${member.priority}`];
  const name = element("div", "name", guest || member.name, element("small", "", of.filter(Boolean).join(", ")));
  const now = element("div", "rate", member.rate_bps == null ? "–" : rate(member.rate_bps));
  const least = member.min_effective_bps > 0 ? `min ${written(member.min_effective_bps)}` : null;
  now.append(...[least, `max ${written(member.max_bps)}`].filter(Boolean).map((text) => element("small", "", text)));
  made.append(name, bar(pool, member), now, excess(pool, member, seconds));
  const before = past(pool, member);
  if (before) made.append(before);
  return made;
}

function show(status) {
  const now = performance.now();
  const seconds = last ? (now - last.at) / 1000 : 0;
  const found = by("find").value.trim().toLowerCase();
  const wanted = (m) => !found || [called(m), m.class].some((text) => text.toLowerCase().includes(found));
  const shown = new Set();
  const sections = status.pools.map((pool) => {
    const total = pool.members.reduce((sum, member) => sum + (member.rate_bps || 0), 0);
    const off = pool.not_in_force != null;
    const head = element("div", "head", element("h2", "", named(pool)));
    const shared = pool.shared_bps === pool.capacity_bps ? "" : ` (the link has ${written(pool.capacity_bps)})`;
    const taken = off ? "not in force: what passes is not counted" : `${rate(total)} of ${written(pool.shared_bps)}${shared}`;
    head.append(element("span", "dim", taken));
    if (pool.stage) {
      const { shared_bps, waiting_bytes, dropped_packets_total } = pool.stage;
      const after = `after that ${bytes(waiting_bytes)} wait at the uplink, ${number(dropped_packets_total)} packets were dropped there so far`;
      head.append(element("span", "dim", `guests wait before the uplink and share ${written(shared_bps)}; ${after}`));
    }
    const made = element("section", "pool", head);
    let rows = pool.members.filter(wanted);
    if (rows.length > ROWS) {
      // Who deserves a look first.
      const rank = (m) => [m.breached_seconds != null, m.waiting_bytes > 0, m.rate_bps || 0].map(Number);
      const ranked = rows.map((m) => [rank(m), m]);
      ranked.sort(([a], [b]) => b[0] - a[0] || b[1] - a[1] || b[2] - a[2]);
      rows = ranked.map(([, m]) => m);
    }
    rows.slice(0, ROWS).forEach((member) => shown.add(keyOf(pool, member)));
    made.append(...rows.slice(0, ROWS).map((member) => row(pool, member, seconds)));
    if (rows.length > ROWS) made.append(element("p", "dim", `and ${number(rows.length - ROWS)} more`));
    return made;
  });
  by("pools").replaceChildren(...sections);
  const all = members(status);
  const breaches = all.filter(({ member }) => member.breached_seconds != null).length;
  tiles(status, breaches);
  notices(status);
  by("tools").hidden = all.length < 20;
  by("legend").hidden = false;
  const since = new Date(status.started_unix_seconds * 1000).toLocaleString();
  by("about").textContent = clean(`vmio ${status.vmio_version}, plane ${status.plane}, ${who(status)}, since ${since}`);
  const off = status.pools.filter((pool) => pool.not_in_force != null).length;
  const broken = breaches === 1 ? "1 guarantee is broken" : `${number(breaches)} guarantees are broken`;
  const down = (status.uplinks_down || []).map((uplink) => `${clean(uplink)} is down`).join(", ");
  const bad = off ? "not in force everywhere" : status.trouble ? "trouble" : breaches ? broken : down;
  const good = status.plane === "observe" ? "observing: nothing is limited" : "in force, no guarantee is broken";
  state(bad || good, bad ? "bad" : "good");
  document.title = bad ? `${bad} · vmio guard` : "vmio guard";
  const dropped = all.map(({ pool, member }) => [keyOf(pool, member), member.dropped_packets_total]);
  last = { at: now, dropped: new Map(dropped) };
  learn(shown).catch((error) => console.error(error));
}

function state(text, className) {
  const place = by("state");
  if (place.textContent !== text) place.textContent = text;
  place.className = `state ${className}`;
  document.body.classList.toggle("stale", className === "old");
}

async function ask() {
  clearTimeout(timer);
  const began = performance.now();
  const token = sessionStorage.getItem(KEY);
  try {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const answer = await fetch("v1/status", { headers, cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (answer.status === 401) {
      sessionStorage.removeItem(KEY);
      by("door").hidden = false;
      state(token ? "that is not the token" : "needs the token", "old");
      return;
    }
    if (!answer.ok) throw new Error(`answer ${answer.status}`);
    const status = await answer.json();
    by("door").hidden = true;
    show(status);
  } catch (error) {
    last = null;
    state("no answer from the guard; limits stay in force", "old bad");
    document.body.classList.add("stale");
    console.error(error);
  }
  // A second after the last time, so that each answer is one of a second.
  timer = setTimeout(ask, Math.max(100, 1000 - (performance.now() - began)));
}

by("door").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, by("token").value.trim());
  by("token").value = "";
  ask();
});
by("find").addEventListener("input", ask);
ask();
