// A list of runs: filter by text, choose with a click or with the keyboard.

import { element, keepChildren, setText } from "../shared/dom.js";

/** @typedef {{id: string, name: string, status: string, tone: string, started: string,
 *   time: string, ranks: string, layout: string, loss: string, by: string}} RunRow */

const COLUMNS = ["run", "status", "loss", "ranks", "layout", "started", "time", "by"];

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
	const filter = /** @type {HTMLInputElement} */ (
		element("input", {
			class: "wb-filter",
			type: "search",
			placeholder: "filter",
			"aria-label": "Filter runs by any word",
		})
	);
	const body = element("tbody");
	const none = element("p", { class: "wb-empty" });
	const table = element(
		"table",
		{ class: "wb-run-table" },
		element("thead", {}, element("tr", {}, ...COLUMNS.map((name) => element("th", { scope: "col" }, name)))),
		body,
	);
	const root = element(
		"section",
		{ class: "wb-root wb-runs", "aria-label": "Runs" },
		filter,
		element("div", { class: "wb-run-scroll", tabindex: "0", role: "group", "aria-label": "List of runs" }, table),
		none,
	);
	el.append(root);

	const choose = (/** @type {Event} */ event) => {
		const target = /** @type {HTMLElement} */ (event.target);
		const row = /** @type {HTMLElement|null} */ (target.closest("tr[data-run]"));
		if (!row) return;
		model.set("selected", row.dataset.run);
		model.save_changes();
	};
	const draw = () => {
		const rows = matching(model.get("rows"), filter.value);
		keepChildren(body, rows, makeRow, (row, run) => updateRow(row, run, model.get("selected")));
		table.hidden = rows.length === 0;
		none.hidden = rows.length > 0;
		setText(none, filter.value ? "no run matches" : model.get("message"));
	};
	// Keys typed here are not Jupyter's shortcuts.
	const keep = (/** @type {Event} */ event) => event.stopPropagation();
	body.addEventListener("click", choose);
	root.addEventListener("keydown", keep);
	filter.addEventListener("input", draw);
	for (const name of ["rows", "selected", "message"]) model.on(`change:${name}`, draw);
	draw();
	return () => {
		for (const name of ["rows", "selected", "message"]) model.off(`change:${name}`, draw);
		root.remove();
	};
}

/**
 * Runs in which every word of the filter occurs.
 * @param {RunRow[]} rows
 * @param {string} filter
 * @returns {RunRow[]}
 */
export function matching(rows, filter) {
	const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
	return rows.filter((row) => {
		const text = Object.values(row).join(" ").toLowerCase();
		return words.every((word) => text.includes(word));
	});
}

function makeRow() {
	const name = element("button", { type: "button", class: "wb-run-name" });
	const status = element("span", { class: "wb-status" });
	const cells = COLUMNS.slice(2).map(() => element("td"));
	return element("tr", {}, element("td", {}, name), element("td", {}, status), ...cells);
}

/**
 * @param {HTMLElement} row
 * @param {RunRow} run
 * @param {string} selected
 */
function updateRow(row, run, selected) {
	row.dataset.run = run.id;
	const [name, status, ...rest] = [...row.children];
	const button = /** @type {HTMLElement} */ (name.children[0]);
	setText(button, run.name || run.id);
	button.title = run.id;
	button.setAttribute("aria-pressed", String(run.id === selected));
	row.toggleAttribute("data-selected", run.id === selected);
	setText(status.children[0], run.status);
	/** @type {HTMLElement} */ (status.children[0]).dataset.tone = run.tone;
	const texts = [run.loss, run.ranks, run.layout, run.started, run.time, run.by];
	texts.forEach((text, index) => {
		setText(rest[index], text);
	});
}

export default { render };
