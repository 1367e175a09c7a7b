// The explorer: one pool, several scorers, every order scored once; all that moves afterwards is arithmetic in the page.
"use strict";

const $ = id => document.getElementById(id);
const COLOURS = ["off-the-shelf", "single-order", "oc-sft", "order-averaged", "debias-first", "permutation-augmentation"];
const state = { pool: { query: "", documents: [] }, runs: [], at: 0, kind: "threshold", k: 3 };

// -- small things

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("--")) element.style.setProperty(name, value);
    else if (name === "class") element.className = value;
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
const fixed = (x, places = 2) => (Number.isFinite(x) ? x.toFixed(places) : "–");
const letter = i => (i < 26 ? String.fromCharCode(65 + i) : String(i + 1));
const letters = indices => indices.map(letter).join(" ") || "nothing";
const mean = values => values.reduce((a, b) => a + b, 0) / values.length;
const percent = share => `${Math.round(100 * share)}%`;

function say(words, wrong = false, where = "state") {
  $(where).textContent = words;
  $(where).classList.toggle("wrong", wrong);
}

// -- decisions, as measures/settling.py takes them: ties go to the document named first

const ranking = scores => scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a] || a - b);

function roles(scores, run) {
  const ranked = ranking(scores);
  if (state.kind === "threshold") return scores.map(s => (s >= run.cutoff ? "kept" : "dropped"));
  if (state.kind === "top_k") return scores.map((_, i) => (ranked.indexOf(i) < state.k ? "kept" : "dropped"));
  return scores.map((_, i) => (i === ranked[0] ? "kept" : i === ranked[ranked.length - 1] ? "rejected" : "neither"));
}

const isIn = role => role === "kept" || role === "rejected";
const keptOf = found => found.flatMap((role, i) => (role === "kept" ? [i] : []));

function jaccard(a, b) {
  const union = a.map((role, i) => isIn(role) || isIn(b[i])).filter(Boolean).length;
  const both = a.filter((role, i) => isIn(role) && role === b[i]).length;
  return union ? both / union : 1;
}

function figures(run) {
  const decided = run.presentations.slice(1).map(p => roles(p.scores, run));
  const pairs = [];
  for (let i = 0; i < decided.length; i++) for (let j = 0; j < i; j++) pairs.push(jaccard(decided[i], decided[j]));
  const given = roles(run.presentations[0].scores, run);
  const agree = decided.filter(d => d.every((role, i) => role === given[i])).length / decided.length;
  return { overlap: mean(pairs), agree, share: given.map((_, i) => mean(decided.map(d => (d[i] === "kept" ? 1 : 0)))) };
}

// A cutoff that keeps what the first k of the order as given are: scorers are compared where they keep equally much.
function matchedCutoff(scores, k) {
  const sorted = [...scores].sort((a, b) => b - a);
  return k < sorted.length ? (sorted[k - 1] + sorted[k]) / 2 : sorted[sorted.length - 1];
}

// -- asking the server

async function ask(path, body) {
  const token = $("token").value;
  const headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
  const answer = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers });
  if (answer.status === 401) $("token-field").hidden = false;
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.message || `the server answered ${answer.status}.`);
  return found;
}

function colourOf(name, place) {
  const plain = name.toLowerCase().replace(/[^a-z]+/g, "-");
  if (/oc-?sft/.test(plain)) return "oc-sft";
  return COLOURS.find(colour => plain.includes(colour)) || COLOURS[place % COLOURS.length];
}

async function score(event) {
  event?.preventDefault();
  if (!document.querySelector("#models input")) return greet();
  const documents = $("documents").value.split("\n").map(line => line.trim()).filter(Boolean);
  const query = $("query").value.trim();
  if (!query || documents.length < 2) return say("Give a query and at least two documents, one a line.", true);
  const names = [...document.querySelectorAll("#models input:checked")].map(box => box.value);
  if (!names.length) return say("Pick at least one scorer.", true);
  $("score").disabled = true;
  const began = performance.now();
  showPool({ query, documents }, names);
  try {
    for (const name of names) {
      say(`Scoring ${documents.length} documents in ${Number($("orders").value) + 1} orders with ${name} …`);
      const answer = await ask("/v1/audit", { model: name, query, documents, permutations: Number($("orders").value) });
      addRun({ name, ...answer });
      showRuns(names.slice(state.runs.length));
    }
    say(`Scored in ${fixed((performance.now() - began) / 1000, 1)} s. Press S to shuffle.`);
  } catch (fault) {
    showRuns([]);
    say(fault.message, true);
  } finally {
    $("score").disabled = false;
  }
}

function load(pool, runs) {
  showPool(pool, []);
  runs.forEach(addRun);
  showRuns([]);
}

// The documents, before anything is scored, under every scorer that will be asked.
function showPool(pool, waiting) {
  Object.assign(state, { pool, at: 0, runs: [], k: Math.min(state.k, pool.documents.length) });
  $("k").max = pool.documents.length;
  $("k").value = state.k;
  $("asked").textContent = pool.query;
  showRuns(waiting);
}

function addRun(run) {
  const all = run.presentations.flatMap(p => p.scores);
  const cutoff = run.cutoff ?? run.threshold ?? matchedCutoff(run.presentations[0].scores, state.k);
  const low = Math.min(...all, cutoff), high = Math.max(...all, cutoff);
  const room = (high - low) * 0.04 || 0.01;
  // The colour goes into a style: never one that a file names.
  state.runs.push({ ...run, colour: colourOf(run.name, state.runs.length), low: low - room, high: high + room, cutoff });
}

// What is scored, and a card without scores for every scorer that is still to come.
function showRuns(waiting) {
  $("stage").hidden = !state.runs.length && !waiting.length;
  for (const id of ["all", "share", "answer"]) $(id).hidden = !state.runs.length;
  buildCards();
  $("cards").append(...waiting.map((name, i) => make("article", { class: "waiting", "aria-label": `${name}, not scored yet` },
    make("h3", {}, name), make("p", { class: "verdict same" }, i ? "waiting" : "scoring …"),
    make("ol", { class: "shown" }, ...state.pool.documents.map((text, d) => make("li", {},
      make("span", { class: "letter" }, letter(d)), make("span", { class: "text", title: text }, text)))))));
  draw(false);
}

// -- one order at a time

function buildCards() {
  $("cards").replaceChildren(...state.runs.map((run, r) => {
    const slider = make("input", { type: "range", min: String(run.low), max: String(run.high), step: String((run.high - run.low) / 200),
      value: String(run.cutoff), id: `cut-${r}`, "aria-label": `Cutoff of ${run.name}` });
    slider.addEventListener("input", () => { run.cutoff = Number(slider.value); draw(false); });
    const marks = state.pool.documents.map((_, i) => make("span", { class: "mark", "aria-hidden": "true" }, letter(i)));
    const rows = state.pool.documents.map((text, i) => make("li", { "data-index": String(i) },
      make("span", { class: "letter" }, letter(i)), make("span", { class: "text", title: text }, text),
      make("span", { class: "value" }, make("span"), make("i", { "aria-hidden": "true" }), make("span", { class: "sr" }))));
    run.view = { marks, rows, cut: make("span", { class: "cut" }), verdict: make("p", { class: "verdict" }),
      list: make("ol", { class: "shown" }, ...rows), slider: make("div", { class: "cutoff" }, slider, make("span", { "aria-hidden": "true" }, "cutoff ", make("output", { class: "num", for: `cut-${r}` }))) };
    return make("article", { class: "card", "--own": `var(--${run.colour})`, "aria-label": run.name },
      make("h3", {}, make("span", { class: "dot", "aria-hidden": "true" }), run.name), run.view.verdict,
      make("div", { class: "axis", "aria-hidden": "true" }, run.view.cut, ...marks), run.view.slider, run.view.list);
  }));
}

function draw(animate = true) {
  if (!state.runs.length) return;
  const total = state.runs[0].presentations.length;
  $("place").textContent = state.at ? `order ${state.at} of ${total - 1}` : "order as given";
  for (const run of state.runs) drawCard(run, animate);
  drawSummaries();
}

function drawCard(run, animate) {
  const { view } = run, now = run.presentations[state.at];
  const found = roles(now.scores, run), given = roles(run.presentations[0].scores, run);
  const left = x => `${(100 * (x - run.low)) / (run.high - run.low)}%`;
  const before = new Map(view.rows.map(row => [row, row.getBoundingClientRect().top]));
  const differing = found.flatMap((role, i) => (role !== given[i] ? [i] : []));
  view.rows.forEach((row, i) => {
    const differs = role => (role === given[i] ? "" : " differs");
    row.className = found[i] + differs(found[i]);
    row.querySelector(".value span").textContent = fixed(now.scores[i], 3);
    row.querySelector(".value i").style.setProperty("--share", left(now.scores[i]));
    row.querySelector(".value .sr").textContent = `${found[i]}${differs(found[i]) && `, in the order as given ${given[i]}`}`;
    view.marks[i].className = `mark ${row.className}`;
    view.marks[i].style.left = left(now.scores[i]);
    view.marks[i].style.bottom = `${stacked(now.scores, i, run) * 1.15 - 0.55}rem`;
  });
  now.order.forEach((i, position) => {
    const row = view.rows[i];
    row.classList.toggle("break", position > 0 && now.windows[i] !== now.windows[now.order[position - 1]]);
    view.list.append(row);
  });
  view.cut.style.left = left(run.cutoff);
  view.cut.hidden = view.slider.hidden = state.kind !== "threshold";
  view.slider.querySelector("output").textContent = fixed(run.cutoff, 3);
  view.verdict.replaceChildren(make("span", {}, state.kind === "pair" ? "chooses " : "keeps ", make("b", {}, letters(keptOf(found)))),
    state.at === 0 ? make("span", { class: "same" }, "in the order as given")
      : differing.length ? make("span", { class: "changed" }, `changed: ${letters(differing)}`) : make("span", { class: "same" }, "same decision as given"));
  if (animate) move(view.rows, before);
}

// Dots that would cover each other stand on top of each other.
function stacked(scores, i, run) {
  const near = (run.high - run.low) * 0.035;
  let level = 0;
  for (let j = 0; j < i; j++) if (Math.abs(scores[j] - scores[i]) < near) level++;
  return Math.min(level, 2);
}

function move(rows, before) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const row of rows) {
    const distance = before.get(row) - row.getBoundingClientRect().top;
    if (Math.abs(distance) > 1)
      row.animate([{ transform: `translateY(${distance}px)` }, { transform: "none" }], { duration: 620, easing: "cubic-bezier(.3,.7,.2,1)" });
  }
}

function show(at) {
  const total = state.runs[0]?.presentations.length;
  if (!total) return;
  state.at = (at + total) % total;
  draw();
  $("spoken").textContent = `${$("place").textContent}: ` + state.runs.map(run => {
    return `${run.name} keeps ${letters(keptOf(roles(run.presentations[state.at].scores, run)))}`;
  }).join("; ");
}

// The next random order; the one as given is no shuffle.
function shuffle() {
  const total = state.runs[0]?.presentations.length;
  if (total) show((state.at % (total - 1)) + 1);
}

// -- all orders together

// The answer to the title's question, one line a scorer; below it the slot maps.
function drawSummaries() {
  const summaries = state.runs.map(run => ({ run, ...figures(run) }));
  const named = run => [make("span", { class: "dot", "aria-hidden": "true" }), run.name];
  $("answers").replaceChildren(...summaries.map(({ run, agree, overlap }) => {
    const orders = run.presentations.length - 1, same = Math.round(agree * orders);
    const stays = same === orders ? "Yes" : same ? "Not always" : "No";
    const facts = [["decide as given", `${same} of ${orders}`], ["overlap", fixed(overlap)], ["τ-PSI", fixed(run.measures.tau_psi)]];
    return make("div", { class: "answer", "--own": `var(--${run.colour})` }, make("h3", {}, ...named(run)),
      make("p", { class: same === orders ? "stays" : "changed" }, stays),
      make("dl", { class: "figures" }, ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)))));
  }));
  $("summaries").replaceChildren(...summaries.map(({ run, share }) =>
    make("article", { class: "card", "--own": `var(--${run.colour})`, "aria-label": `${run.name}, all orders` },
      make("h3", {}, ...named(run)),
      make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `Slot map of ${run.name}` }, slotMap(run, share)))));
}

function slotMap(run, share) {
  const slots = Math.max(...run.presentations[0].slots) + 1;
  const shown = run.presentations;
  const cells = state.pool.documents.map((_, i) => {
    const own = mean(shown.map(p => p.scores[i]));
    return Array.from({ length: slots }, (_, slot) => {
      const here = shown.filter(p => p.slots[i] === slot).map(p => p.scores[i]);
      return here.length ? mean(here) - own : NaN;
    });
  });
  // On the scale of the scorer's own spread over documents: a map is loud where order moves scores as much as content does.
  const scale = Math.max(...cells.flat().filter(Number.isFinite).map(Math.abs), (run.high - run.low) / 4, 1e-9);
  const cell = value => {
    const strength = Number.isFinite(value) ? Math.round((45 * Math.abs(value)) / scale) : 0;
    const words = Math.abs(value).toFixed(2).replace(/^0/, "");
    const td = make("td", {}, !Number.isFinite(value) ? "·" : words === ".00" ? "0" : `${value > 0 ? "+" : "−"}${words}`);
    if (strength) td.style.background = `color-mix(in srgb, var(${value > 0 ? "--own" : "--churn"}) ${strength}%, var(--wash))`;
    return td;
  };
  const torn = s => (s > 0 && s < 1 ? " torn" : "");
  const head = make("tr", {}, make("th", { scope: "col" }, make("span", { class: "sr" }, "document")), make("th", { scope: "col" }, state.kind === "pair" ? "chosen" : "kept"),
    ...Array.from({ length: slots }, (_, s) => make("th", { scope: "col" }, make("span", { class: "sr" }, "slot "), String(s + 1))));
  const rows = cells.map((row, i) => make("tr", {}, make("th", { scope: "row" }, letter(i)),
    make("td", { class: "agree" }, make("div", { class: `share-bar${torn(share[i])}`, "--share": percent(share[i]) }, make("i", { "aria-hidden": "true" }), make("span", {}, percent(share[i])))),
    ...row.map(cell)));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

// -- files

function recorded() {
  const runs = state.runs.map(({ view, low, high, ...run }) => run);
  return { steadyscore: "explorer", ...state.pool, decision: { kind: state.kind, k: state.k }, runs };
}

function download(name, kind, text) {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: kind })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
}

async function savePage() {
  const text = async (path, tag) => document.querySelector(tag)?.textContent || (await fetch(path)).text();
  const [css, js] = await Promise.all([text("/explorer.css", "style"), text("/explorer.js", "script#explorer")]);
  const page = document.documentElement.cloneNode(true);  // parsed anew, every style would be reported to the console
  for (const id of ["cards", "answers", "summaries", "models", "spoken", "state"]) page.querySelector(`#${id}`).replaceChildren();
  page.querySelector("#tabs").hidden = true;  // a typed question is answered by the server alone
  page.querySelectorAll("#deciding, script, link[rel=stylesheet], style, meta[http-equiv]").forEach(e => e.remove());
  const put = (tag, attributes, words) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = words;
    page.querySelector(tag === "style" || tag === "meta" ? "head" : "body").append(element);
  };
  put("meta", { "http-equiv": "Content-Security-Policy", content: "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:" }, "");
  put("style", {}, css);
  put("script", { type: "application/json", id: "recorded" }, JSON.stringify(recorded()).replaceAll("<", "\\u003c"));
  put("script", { id: "explorer" }, js);
  download("steadyscore-explorer.html", "text/html", `<!doctype html>\n${page.outerHTML}\n`);
}

async function openFile() {
  const file = $("file").files[0];
  if (!file) return;
  const text = await file.text();
  try {
    const found = JSON.parse(text);
    if (!found.query || !Array.isArray(found.documents)) throw new SyntaxError("no query or documents");
    if (found.runs) return load({ query: found.query, documents: found.documents }, found.runs);
    fill({ query: found.query, documents: found.documents.map(d => d.text ?? d) });
  } catch (fault) {
    if (file.name.endsWith(".json")) return say(`${file.name} holds no query and documents: ${fault.message}.`, true);
    $("documents").value = text;
  }
}

function fill(example) {
  $("query").value = example.query;
  $("documents").value = example.documents.map(text => text.replace(/\s+/g, " ")).join("\n");
}

// -- beginning

const isTyping = event => event.ctrlKey || event.metaKey || event.altKey || event.target.matches("textarea, select, input:not([type=radio]):not([type=checkbox])");

function listen() {
  $("ask").addEventListener("submit", score);
  $("shuffle").addEventListener("click", shuffle);
  $("first").addEventListener("click", () => show(0));
  $("before").addEventListener("click", () => show(state.at - 1));
  $("after").addEventListener("click", () => show(state.at + 1));
  $("save-data").addEventListener("click", () => download("steadyscore-explorer.json", "application/json", JSON.stringify(recorded(), null, 1)));
  $("save-page").addEventListener("click", savePage);
  $("file").addEventListener("change", openFile);
  $("k").addEventListener("input", () => {
    state.k = Math.max(1, Math.min(Number($("k").value) || 1, state.pool.documents.length));
    document.querySelector("input[value=top_k]").checked = true;
    state.kind = "top_k";
    draw(false);
  });
  document.querySelectorAll("input[name=kind]").forEach(radio => radio.addEventListener("change", () => { state.kind = radio.value; draw(false); }));
  addEventListener("keydown", event => {
    if ($("ranking").hidden || isTyping(event)) return;
    const arrows = !event.target.matches("input") && { ArrowLeft: () => show(state.at - 1), ArrowRight: () => show(state.at + 1) };
    const act = { s: shuffle, S: shuffle, 0: () => show(0), ...arrows }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
}

async function begin() {
  listen();
  const kept = $("recorded");
  if (kept) {
    const found = JSON.parse(kept.textContent);
    for (const id of ["edit", "ask"]) $(id).hidden = true;
    Object.assign(state, found.decision);
    document.querySelector(`input[value=${state.kind}]`).checked = true;
    return load({ query: found.query, documents: found.documents }, found.runs);
  }
  await greet();
}

// What the server offers. Where it asks for a token, the same button tries again with it.
async function greet() {
  try {
    const [models, examples] = await Promise.all([ask("/v1/models"), ask("/v1/examples")]);
    $("models").append(...models.data.map((model, i) => make("label", {}, make("input", { type: "checkbox", value: model.id, checked: i < 3 }), ` ${model.id}`)));
    $("example").append(...examples.map((e, i) => make("option", { value: String(i) }, `${e.collection}: ${e.query.slice(0, 70)}`)));
    $("example").addEventListener("change", () => fill(examples[Number($("example").value)]));
    fill(examples[0]);
  } catch (fault) {
    return say(fault.message, true);
  }
  await score();
}

begin();
