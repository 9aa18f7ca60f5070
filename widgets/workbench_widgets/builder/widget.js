// The layout builder: controls, the cluster, and what the plan says of them.

import { element, keepChildren, setText } from "../shared/dom.js";
import { makeCluster } from "./cluster.js";
import { makeAxes, makeBar, makeChoices, makeTexts } from "./controls.js";
import { makeSuggest } from "./suggest.js";

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
	const picture = () => model.get("picture");
	let inHand = "";
	const act = (/** @type {object} */ action) => model.send(action);
	const take = (/** @type {string} */ axis) => {
		if (axis === inHand) return;
		inHand = axis;
		draw();
	};
	const head = makeVerdict();
	const bar = makeBar(act);
	const axes = makeAxes(act, take);
	const choices = makeChoices(act);
	const cluster = makeCluster(picture, () => inHand);
	const side = makeSide();
	const texts = makeTexts();
	const suggest = makeSuggest(act);
	const root = element(
		"section",
		{ class: "wb-root wb-builder", "aria-label": "Layout builder" },
		head.node,
		element(
			"div",
			{ class: "wb-builder-body" },
			element("div", { class: "wb-panel wb-left" }, element("h3", {}, "Axes", element("small", {}, " outermost first")), axes.node, choices.node, bar.node),
			element("div", { class: "wb-panel wb-middle" }, element("h3", {}, "Memory of each rank"), cluster.node, side.stages),
			element("div", { class: "wb-panel wb-right" }, ...side.nodes),
		),
		suggest.node,
		texts.node,
	);
	const draw = () => {
		const shown = picture();
		for (const part of [head, bar, choices, side, texts, suggest]) part.update(shown);
		axes.update(shown, inHand);
		cluster.update();
	};
	const onPicture = () => {
		// An axis that cuts nothing any more colours nothing: take one that does.
		const cuts = picture().axes.some((/** @type {any} */ axis) => axis.name === inHand && axis.degree > 1);
		if (!cuts) inHand = innermost(picture());
		draw();
	};
	// Keys pressed here are not Jupyter's shortcuts.
	root.addEventListener("keydown", (event) => event.stopPropagation());
	const themes = new MutationObserver(() => cluster.update());
	themes.observe(document.body, { attributes: true });
	model.on("change:picture", onPicture);
	el.append(root);
	onPicture();
	return () => {
		model.off("change:picture", onPicture);
		themes.disconnect();
		cluster.stop();
		root.remove();
	};
}

/** @param {any} picture The innermost axis that cuts something. */
function innermost(picture) {
	const cutting = picture.axes.filter((/** @type {any} */ axis) => axis.degree > 1);
	return (cutting.at(-1) ?? picture.axes.at(-1)).name;
}

function makeVerdict() {
	const title = element("h2", { class: "wb-title" });
	const verdict = element("span", { class: "wb-badge", role: "status" });
	const reasons = element("ul", { class: "wb-reasons" });
	const error = element("p", { class: "wb-alert", role: "alert" });
	const node = element("div", {}, element("header", { class: "wb-head" }, title, verdict), error, reasons);
	return {
		node,
		/** @param {any} picture */
		update(picture) {
			setText(title, picture.title);
			setText(verdict, picture.verdict);
			verdict.dataset.tone = picture.fits ? "good" : "bad";
			setText(error, picture.error);
			error.hidden = picture.error === "";
			keepChildren(reasons, picture.reasons, () => element("li"), setText);
		},
	};
}

function makeSide() {
	const tiles = element("div", { class: "wb-tiles" });
	const pinned = element("p", { class: "wb-pinned" });
	const track = element("div", { class: "wb-phases", role: "img" });
	const words = element("ul", { class: "wb-phase-words" });
	const comm = element("table", { class: "wb-comm" });
	const stages = element("ol", { class: "wb-stages", "aria-label": "Pipeline stages" });
	const makeTile = () =>
		element("div", { class: "wb-tile" }, element("div", { class: "wb-label" }), element("div", { class: "wb-value" }), element("div", { class: "wb-note" }));
	const makeLine = () => element("tr", {}, element("th", { scope: "row" }), element("td"), element("td"));
	return {
		nodes: [tiles, pinned, element("h3", {}, "A step"), track, words, element("h3", {}, "Sent per rank and step"), comm],
		stages,
		/** @param {any} picture */
		update(picture) {
			keepChildren(tiles, picture.tiles, makeTile, (tile, item) => {
				[item.label, item.value, item.note].forEach((text, at) => {
					setText(tile.children[at], text);
				});
			});
			setText(pinned, picture.pinned);
			pinned.hidden = picture.pinned === "";
			const total = picture.step.reduce((/** @type {number} */ sum, /** @type {any} */ part) => sum + part.seconds, 0) || 1;
			track.setAttribute("aria-label", picture.step.map((/** @type {any} */ part) => part.text).join(", "));
			keepChildren(track, picture.step, () => element("i"), (child, part) => {
				child.style.width = `${(100 * part.seconds) / total}%`;
				child.dataset.phase = part.name;
			});
			keepChildren(words, picture.step, () => element("li"), (child, part) => {
				setText(child, part.text);
				child.dataset.phase = part.name;
			});
			keepChildren(comm, picture.comm, makeLine, (line, item) => {
				[item.label, item.text, item.note].forEach((text, at) => {
					setText(line.children[at], text);
				});
			});
			stages.hidden = picture.stages.length < 2;
			keepChildren(stages, picture.stages, () => element("li"), (child, stage) => {
				setText(child, stage.text);
				child.style.flexGrow = String(stage.layers);
			});
		},
	};
}

export default { render };
