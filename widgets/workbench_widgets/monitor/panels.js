// The parts of a monitor that are words and bars: header, tiles, planned beside measured.

import { element, keepChildren, setText } from "../shared/dom.js";

/** @typedef {import("./state.js").Bar} Bar */
/** @typedef {import("./state.js").Panels} Panels */

/**
 * Header, alert and tiles.
 * @param {(() => void)|null} stop What the Stop button does; null: there is none.
 */
export function makeHead(stop) {
	const title = element("h2", { class: "wb-title" });
	const badge = element("span", { class: "wb-badge", role: "status" });
	const detail = element("span", { class: "wb-detail" });
	const alert = element("p", { class: "wb-alert", role: "alert" });
	const tiles = element("div", { class: "wb-tiles" });
	const button = element("button", { type: "button", class: "wb-stop" }, "Stop the cell");
	button.addEventListener("click", () => stop?.());
	const head = element("header", { class: "wb-head" }, title, badge, detail, button);
	return {
		nodes: [head, alert, tiles],
		/** @param {Panels} panels */
		update(panels) {
			setText(title, panels.title);
			setText(badge, panels.statusText);
			badge.dataset.tone = panels.tone;
			setText(detail, panels.detail);
			button.hidden = stop === null || panels.status !== "running";
			setText(alert, panels.alert);
			alert.hidden = panels.alert === "";
			keepChildren(tiles, panels.tiles, makeTile, updateTile);
		},
	};
}

function makeTile() {
	return element(
		"div",
		{ class: "wb-tile" },
		element("div", { class: "wb-label" }),
		element("div", { class: "wb-value" }),
		element("div", { class: "wb-note" }),
	);
}

/**
 * @param {HTMLElement} tile
 * @param {import("./state.js").Tile} item
 */
function updateTile(tile, item) {
	setText(tile.children[0], item.label);
	setText(tile.children[1], item.value);
	setText(tile.children[2], item.note);
	tile.dataset.tone = item.tone;
}

/**
 * A list of pairs of bars: measured above, planned (hatched) below, difference in words.
 * @param {string} title
 * @param {string} empty What is said when there is nothing.
 */
export function makeBars(title, empty) {
	const list = element("ul", { class: "wb-bars" });
	const none = element("p", { class: "wb-empty" }, empty);
	const legend = element("p", { class: "wb-legend" });
	const node = element(
		"section",
		{ class: "wb-panel", "aria-label": title },
		element("h3", {}, title),
		none,
		list,
		legend,
	);
	return {
		node,
		/** @param {Bar[]} bars */
		update(bars) {
			none.hidden = bars.length > 0;
			const largest = Math.max(1, ...bars.flatMap((bar) => [bar.measured ?? 0, bar.planned ?? 0]));
			keepChildren(list, bars, makeBar, (child, bar) => updateBar(child, bar, largest));
			const names = [...new Set(bars.flatMap((bar) => [...bar.parts, ...bar.plannedParts].map((part) => part.name)))];
			keepChildren(legend, names, () => element("span"), (child, name) => {
				setText(child, name);
				child.dataset.part = name;
			});
		},
	};
}

function makeBar() {
	const line = (/** @type {string} */ kind) =>
		element(
			"div",
			{ class: `wb-bar-line wb-${kind}` },
			element("span", { class: "wb-bar-name" }, kind),
			element("span", { class: "wb-bar-track" }),
			element("span", { class: "wb-bar-text" }),
		);
	return element(
		"li",
		{},
		element("div", { class: "wb-bar-head" }, element("span"), element("span", { class: "wb-difference" })),
		line("measured"),
		line("planned"),
	);
}

/**
 * @param {HTMLElement} item
 * @param {Bar} bar
 * @param {number} largest
 */
function updateBar(item, bar, largest) {
	const [head, measured, planned] = /** @type {HTMLElement[]} */ ([...item.children]);
	setText(head.children[0], bar.label);
	setText(head.children[1], bar.difference);
	head.dataset.tone = bar.tone;
	fillLine(measured, bar.measured, bar.parts, bar.measuredText, largest);
	fillLine(planned, bar.planned, bar.plannedParts, bar.plannedText, largest);
}

/**
 * @param {HTMLElement} line
 * @param {number|null} value
 * @param {{name: string, bytes: number}[]} parts
 * @param {string} text
 * @param {number} largest
 */
function fillLine(line, value, parts, text, largest) {
	const track = /** @type {HTMLElement} */ (line.children[1]);
	const shown = value === null ? [] : parts.length ? parts : [{ name: "", bytes: value }];
	keepChildren(track, shown, () => element("i"), (child, part) => {
		child.style.width = `${(100 * part.bytes) / largest}%`;
		child.dataset.part = part.name;
		child.title = part.name && `${part.name}`;
	});
	setText(line.children[2], text);
}

/** Shares of a step by phase, as one bar with words. */
export function makePhases() {
	const track = element("div", { class: "wb-phases" });
	const words = element("ul", { class: "wb-phase-words" });
	const none = element("p", { class: "wb-empty" }, "not measured yet");
	const node = element(
		"section",
		{ class: "wb-panel", "aria-label": "Where a step's time goes" },
		element("h3", {}, "Where a step's time goes"),
		none,
		track,
		words,
	);
	return {
		node,
		/** @param {{name: string, seconds: number, text: string}[]} phases */
		update(phases) {
			none.hidden = phases.length > 0;
			const total = phases.reduce((sum, phase) => sum + phase.seconds, 0) || 1;
			keepChildren(track, phases, () => element("i"), (child, phase) => {
				child.style.width = `${(100 * phase.seconds) / total}%`;
				child.dataset.phase = phase.name;
			});
			keepChildren(words, phases, () => element("li"), (child, phase) => {
				setText(child, phase.text);
				child.dataset.phase = phase.name;
			});
		},
	};
}

/** Hints in words: what usually causes a difference. */
export function makeNotes() {
	const list = element("ul", { class: "wb-notes", "aria-label": "Hints" });
	return {
		node: list,
		/** @param {string[]} notes */
		update(notes) {
			list.hidden = notes.length === 0;
			keepChildren(list, notes, () => element("li"), setText);
		},
	};
}

/**
 * The charts' newest values as a table, for those who cannot see them.
 * @param {() => string[][]} rows Header row first; asked for only while it is open.
 */
export function makeTable(rows) {
	const table = element("table");
	const node = /** @type {HTMLDetailsElement} */ (
		element("details", { class: "wb-table" }, element("summary", {}, "Values as a table"), table)
	);
	const update = () => {
		if (!node.open) return;
		const [head, ...body] = rows();
		const row = (/** @type {string[]} */ cells, /** @type {string} */ tag) =>
			element("tr", {}, ...cells.map((cell) => element(tag, {}, cell)));
		table.replaceChildren(row(head, "th"), ...body.map((cells) => row(cells, "td")));
	};
	node.addEventListener("toggle", update);
	return { node, update };
}
