// The second tab: one state and one typed question, asked as given and again reordered, both decisions side by side.
"use strict";

const STEP = /\.([A-Za-z_]\w*)|\[(\d+)\]|\['([^']*)'\]/g;
const decided = { asked: null, results: [] };  // what was asked, and the answers: as given, then of every shuffle

// -- the state and its list

// $.candidates as the keys and places that lead to the list.
function stepsOf(path) {
  const steps = [...path.slice(1).matchAll(STEP)];
  if (!path.startsWith("$") || steps.map(step => step[0]).join("") !== path.slice(1)) throw new Error("Write the path of the list as $.candidates.");
  return steps.map(step => step[1] ?? step[3] ?? Number(step[2]));
}

function withList(content, steps, list) {
  if (!steps.length) return list;
  const copy = Array.isArray(content) ? [...content] : { ...content };
  copy[steps[0]] = withList(content[steps[0]], steps.slice(1), list);
  return copy;
}

const lines = id => $(id).value.split("\n").map(line => line.trim()).filter(Boolean);
const wordsOf = member => (typeof member === "string" ? member : member?.text ?? JSON.stringify(member));

// The form as a value, or one sentence about what is wrong with it.
function readForm() {
  let content;
  try {
    content = JSON.parse($("case-state").value);
  } catch (fault) {
    throw new Error(`The state is not JSON: ${fault.message}.`);
  }
  const steps = stepsOf($("case-path").value.trim());
  const members = steps.reduce((found, step) => found?.[step], content);
  if (!Array.isArray(members)) throw new Error(`The state has no list at ${$("case-path").value.trim()}. Name the path of the list in it.`);
  const kind = $("case-kind").value, question = $("case-question").value.trim(), outcomes = lines("case-outcomes");
  if (!question || outcomes.length < 2) throw new Error(`Give a question and at least two ${kind === "score" ? "levels" : "options"}, one a line.`);
  const forEach = question.includes("{id}");
  if (forEach && !members.every(member => member?.id !== undefined)) throw new Error("Each member of the list needs an id where the question has {id}.");
  return { model: $("case-model").value, content, steps, members, kind, question, outcomes, forEach };
}

// -- asking

const inOrder = list => list.map((_, i) => i);

// Another order than the given one. Levels are turned around: a scale read from its other end is still a scale.
function reorder(list, turn) {
  const order = inOrder(list);
  if (turn) return order.reverse();
  do {
    for (let i = order.length - 1; i > 0; i--) {
      const j = Math.floor(Math.random() * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
  } while (order.every((place, i) => place === i));
  return order;
}

// An option is `name` or `name: what it means`; a level is the whole line.
function option(line) {
  const [value, ...rest] = line.split(": ");
  return rest.length ? { value, description: rest.join(": ") } : { value };
}

function write(asked, order) {
  const shown = order.outcomes.map(i => asked.outcomes[i]);
  const answers = asked.kind === "score" ? { levels: shown.map(label => ({ label })) } : { choices: shown.map(option) };
  const about = asked.forEach ? asked.members.map(member => String(member.id)) : ["question"];
  const data = withList(asked.content, asked.steps, order.members.map(i => asked.members[i]));
  return {
    model: asked.model,
    input: [{ role: "user", content: [{ type: "input_json", data }] }],
    questions: about.map(name => ({ type: asked.kind, name, instructions: asked.question.replaceAll("{id}", name), ...answers })),
  };
}

// Answers with their probabilities put back into the order of the levels or options as given.
async function answer(asked, order) {
  const found = await ask("/v1/decisions", write(asked, order));
  const answers = found.answers.map(each => {
    if (each.type === "refusal") throw new Error("The state is too long for this model.");
    const shares = order.outcomes.map(() => 0);
    each.probabilities.forEach((p, place) => { shares[order.outcomes[place]] = p.probability; });
    return { shares, level: shares.reduce((sum, p, level) => sum + p * level, 0) };
  });
  return { order, answers };
}

async function request(order, asked, words) {
  for (const id of ["case-ask", "case-shuffle"]) $(id).disabled = true;
  say(words, false, "case-said");
  const began = performance.now();
  try {
    decided.results.push(await answer(asked, order));
    decided.asked = asked;
    say(`Answered in ${fixed((performance.now() - began) / 1000, 1)} s. Press S to shuffle.`, false, "case-said");
    drawDecisions();
  } catch (fault) {
    say(fault.message, true, "case-said");
  } finally {
    for (const id of ["case-ask", "case-shuffle"]) $(id).disabled = false;
  }
}

async function askAsGiven(event) {
  event?.preventDefault();
  if (!$("case-model").options.length) return offer();
  let asked;
  try {
    asked = readForm();
  } catch (fault) {
    return say(fault.message, true, "case-said");
  }
  decided.results = [];
  $("case-stage").hidden = true;
  await request({ members: inOrder(asked.members), outcomes: inOrder(asked.outcomes) }, asked, `Asking ${asked.model} …`);
}

async function askReordered() {
  const { asked } = decided, channel = $("case-channel").value;
  if (!decided.results.length || $("case-shuffle").disabled) return;
  if (asked[channel].length < 2) return say("The list has one member: its order cannot matter.", true, "case-said");
  const order = { ...decided.results[0].order, [channel]: reorder(asked[channel], channel === "outcomes" && asked.kind === "score") };
  const place = $("case-shuffle") === document.activeElement;
  await request(order, asked, `Asking ${asked.model} again …`);
  if (place) $("case-shuffle").focus();  // a button that was disabled has lost it
}

// -- what was decided

const threshold = () => Number($("case-threshold").value) || 0;
const likeliest = shares => shares.indexOf(Math.max(...shares));
const decisionOf = (asked, found) => (asked.kind === "score" ? Number(found.level >= threshold()) : likeliest(found.shares));
const decisionsOf = (asked, result) => result.answers.map(found => decisionOf(asked, found));
const nameOf = (asked, i) => (asked.kind === "score" ? asked.outcomes[i] : option(asked.outcomes[i]).value);

// The decision in words: the kept members, the level and its side of the threshold, or the chosen options.
function verdictOf(asked, result) {
  const decisions = decisionsOf(asked, result);
  if (asked.kind === "score" && asked.forEach) return ["keeps ", letters(decisions.flatMap((kept, i) => (kept ? [i] : [])))];
  if (asked.kind === "score") return [decisions[0] ? "keeps, at level " : "does not keep, at level ", fixed(result.answers[0].level)];
  if (!asked.forEach) return ["chooses ", nameOf(asked, decisions[0])];
  return ["chooses ", decisions.map((chosen, i) => `${letter(i)}: ${nameOf(asked, chosen)}`).join(", ")];
}

function changeOf(asked, result, given) {
  const before = decisionsOf(asked, given), now = decisionsOf(asked, result);
  const differing = now.flatMap((each, i) => (each === before[i] ? [] : [i]));
  if (!differing.length) return { words: "same decision as given", differing };
  return { words: asked.forEach ? `changed: ${letters(differing)}` : `changed: as given it ${verdictOf(asked, given).join("")}`, differing };
}

function drawDecisions() {
  const { asked, results } = decided, [given] = results, last = results[results.length - 1];
  const later = results.slice(1), alike = later.filter(result => !changeOf(asked, result, given).differing.length).length;
  $("case-asked").textContent = asked.question;
  $("case-about").textContent = Object.entries(asked.content).flatMap(([name, value]) => (typeof value === "string" ? [`${name}: ${value}`] : [])).join(" · ");
  $("case-stage").hidden = false;
  $("case-cards").replaceChildren(drawDecision("As given", asked, given, given), later.length ? drawDecision(`Reordered, shuffle ${later.length}`, asked, last, given)
    : make("p", { class: "note" }, "Shuffle to see the same state in another order here."));
  $("case-tally").textContent = later.length ? `${alike} of ${later.length} decided as given` : "";
  $("case-spoken").textContent = later.length ? `Reordered: ${verdictOf(asked, last).join("")}; ${changeOf(asked, last, given).words}` : `As given: ${verdictOf(asked, given).join("")}`;
}

function drawDecision(title, asked, result, given) {
  const change = changeOf(asked, result, given), first = result === given;
  const status = first ? "in the order as given" : change.words;
  const members = result.order.members.map(i => drawMember(asked, result, given, i, change.differing.includes(i)));
  const labels = result.order.outcomes.map((i, place) => `${asked.kind === "score" ? place : letter(place)} ${nameOf(asked, i)}`);
  return make("article", { class: "card", "--own": `var(--${first ? "oc-sft" : "single-order"})`, "aria-label": title },
    make("h3", {}, make("span", { class: "dot", "aria-hidden": "true" }), title),
    make("p", { class: "verdict" }, make("span", {}, verdictOf(asked, result)[0], make("b", {}, verdictOf(asked, result)[1])),
      make("span", { class: change.differing.length ? "changed" : "same" }, status)),
    make("ol", { class: "shown", "aria-label": "The list as the model read it" }, ...members),
    asked.forEach ? make("p", { class: "note" }, `${asked.kind === "score" ? "Levels" : "Options"} as the model read them: ${labels.join(" · ")}`)
      : make("ol", { class: "shown outcomes", "aria-label": "The answers as the model read them" }, ...result.order.outcomes.map(i => drawOutcome(asked, result, given, i))));
}

const bar = share => make("i", { "aria-hidden": "true", "--share": percent(share) });
const signed = (x, places = 2) => `${x < 0 ? "−" : "+"}${fixed(Math.abs(x), places)}`;
const moved = (result, given, words) => (result === given ? [] : [make("span", { class: "moved" }, words)]);

function drawMember(asked, result, given, i, differs) {
  const words = wordsOf(asked.members[i]);
  const parts = [make("span", { class: "letter" }, letter(i)), make("span", { class: "text", title: words }, words)];
  if (!asked.forEach) return make("li", {}, ...parts);
  const found = result.answers[i], before = given.answers[i], decision = decisionOf(asked, found);
  const isScore = asked.kind === "score", kept = decision ? "kept" : "dropped";
  const value = isScore ? fixed(found.level) : `${nameOf(asked, decision)} ${percent(found.shares[decision])}`;
  const change = isScore ? signed(found.level - before.level) : `was ${nameOf(asked, decisionOf(asked, before))}`;
  return make("li", { class: `${isScore ? kept : ""}${differs ? " differs" : ""}` }, ...parts,
    make("span", { class: "value" }, make("span", {}, value), ...moved(result, given, change), bar(isScore ? found.level / (asked.outcomes.length - 1) : found.shares[decision]),
      make("span", { class: "sr" }, `${isScore ? kept : ""}${differs ? ", changed" : ""}`)));
}

function drawOutcome(asked, result, given, i) {
  const share = result.answers[0].shares[i], is = each => likeliest(each.answers[0].shares) === i;
  const chosen = asked.kind === "choice" && is(result), differs = asked.kind === "choice" && is(result) !== is(given);
  return make("li", { class: `${chosen ? "kept" : "dropped"}${differs ? " differs" : ""}` }, make("span", { class: "text" }, asked.outcomes[i]),
    make("span", { class: "value" }, make("span", {}, percent(share)), ...moved(result, given, signed(100 * (share - given.answers[0].shares[i]), 0)), bar(share),
      make("span", { class: "sr" }, chosen ? "chosen" : "")));
}

// -- beginning

function nameFields() {
  const isScore = $("case-kind").value === "score";
  $("case-outcomes-name").textContent = isScore ? "Levels, one a line, the lowest first" : "Options, one a line: name, or name: what it means";
  $("case-channel").options[1].textContent = isScore ? "the levels, turned around" : "the options";
  $("case-threshold-field").hidden = !isScore;
}

function fillCase(example) {
  const { type, instructions, criteria } = example.question;
  $("case-state").value = JSON.stringify(example.state, null, 1);
  $("case-path").value = example.pool;
  $("case-kind").value = type;
  $("case-question").value = instructions;
  $("case-outcomes").value = (Array.isArray(criteria) ? criteria : Object.entries(criteria).map(([name, meaning]) => (meaning ? `${name}: ${meaning}` : name))).join("\n");
  $("case-threshold").value = example.threshold ?? 1.5;
  nameFields();
}

// What the server offers, when the tab is opened first; where it asks for a token, the same button tries again with it.
async function offer() {
  try {
    const [models, examples] = await Promise.all([ask("/v1/models"), ask("/v1/examples/decisions")]);
    $("case-model").replaceChildren(...models.data.map(model => make("option", { value: model.id }, model.id)));
    $("case-example").replaceChildren(...examples.map((e, i) => make("option", { value: String(i) }, e.name)));
    $("case-example").onchange = () => fillCase(examples[Number($("case-example").value)]);
    fillCase(examples[0]);
  } catch (fault) {
    return say(fault.message, true, "case-said");
  }
  await askAsGiven();
}

function openTab(tab) {
  for (const each of document.querySelectorAll("#tabs [role=tab]")) {
    each.setAttribute("aria-selected", String(each === tab));
    each.tabIndex = each === tab ? 0 : -1;
    $(each.getAttribute("aria-controls")).hidden = each !== tab;
  }
  const what = $("deciding").hidden ? "Same query, same documents" : "Same state, same question";
  $("lead").textContent = `${what}, another order. Does the decision stay?`;
  if (!$("deciding").hidden && !$("case-model").options.length) offer();
}

function listenToDecisions() {
  const tabs = [...document.querySelectorAll("#tabs [role=tab]")];
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => openTab(tab));
    tab.addEventListener("keydown", event => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      event.stopPropagation();
      const other = tabs[(i + 1) % tabs.length];
      openTab(other);
      other.focus();
    });
  });
  $("case").addEventListener("submit", askAsGiven);
  $("token-field").addEventListener("submit", event => ($("deciding").hidden ? score : askAsGiven)(event));
  $("case-shuffle").addEventListener("click", askReordered);
  $("case-kind").addEventListener("change", nameFields);
  $("case-threshold").addEventListener("input", () => { if (decided.results.length) drawDecisions(); });
  addEventListener("keydown", event => {
    if ($("deciding").hidden || isTyping(event) || event.key.toLowerCase() !== "s") return;
    event.preventDefault();
    askReordered();
  });
}

listenToDecisions();
