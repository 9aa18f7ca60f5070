// One run beside another: a table, loss curves on one chart, and texts to unfold.

import { makeChart } from "../monitor/chart.js";
import { align } from "../monitor/state.js";
import { element, keepChildren, setText } from "../shared/dom.js";

const TRAITS = ["sections", "others", "other", "rows", "curves"];

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
	const select = /** @type {HTMLSelectElement} */ (element("select", { "aria-label": "Run to compare with" }));
	const table = element("table", { class: "wb-versus-table" });
	const place = element("div");
	const texts = element("div", { class: "wb-versus-texts" });
	const root = element(
		"section",
		{ class: "wb-root wb-versus", "aria-label": "Compare and details" },
		element("label", { class: "wb-versus-choose" }, "Compare with ", select),
		element("div", { class: "wb-versus-body" }, table, place),
		texts,
	);
	el.append(root);
	const chart = makeChart(place, {
		title: "Loss of both runs",
		unit: "nats per token",
		xLabel: "step",
		wholeX: true,
		format: (value) => String(Number(value.toPrecision(4))),
	});
	const draw = () => {
		keepChildren(select, [["", "no other run"], ...model.get("others")], () => element("option"), (option, [id, name]) => {
			option.setAttribute("value", id);
			setText(option, name);
		});
		select.value = model.get("other");
		const compared = model.get("other") !== "" && model.get("rows").length > 0;
		table.hidden = !compared;
		place.hidden = !compared;
		keepChildren(table, model.get("rows"), makeRow, (row, cells) => {
			[...row.children].forEach((child, at) => {
				setText(child, cells[at]);
			});
		});
		keepChildren(texts, model.get("sections"), makeText, (child, [title, text]) => {
			setText(child.children[0], title);
			setText(child.children[1], text);
		});
		if (compared) chart.update(...curves(model.get("curves")));
	};
	const choose = () => {
		model.set("other", select.value);
		model.save_changes();
	};
	const keep = (/** @type {Event} */ event) => event.stopPropagation();
	const themes = new MutationObserver(() => chart.redraw());
	themes.observe(document.body, { attributes: true });
	select.addEventListener("change", choose);
	root.addEventListener("keydown", keep);
	for (const name of TRAITS) model.on(`change:${name}`, draw);
	draw();
	return () => {
		for (const name of TRAITS) model.off(`change:${name}`, draw);
		themes.disconnect();
		chart.destroy();
		root.remove();
	};
}

function makeRow() {
	return element("tr", {}, element("th", { scope: "row" }), element("td"), element("td"));
}

function makeText() {
	return element("details", {}, element("summary"), element("pre"));
}

/**
 * @param {[string, number[], number[]][]} given
 * @returns {[import("../monitor/chart.js").Line[], (number|null)[][]]}
 */
export function curves(given) {
	const lines = given.map(([label], index) => ({ label, color: `--wb-c${index}`, dash: index ? [6, 3] : [] }));
	return [lines, align(given.map(([, x, y]) => ({ x, y })))];
}

export default { render };
