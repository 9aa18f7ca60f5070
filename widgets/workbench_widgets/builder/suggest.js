// Suggestions: the best layouts of a search, and the ones that none beats, as a scatter.

import { element, keepChildren, setText } from "../shared/dom.js";
import { bytesText } from "../shared/format.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 150;
const EDGE = { left: 8, right: 8, top: 10, bottom: 10 };

/** @param {(action: object) => void} act */
export function makeSuggest(act) {
	const button = /** @type {HTMLButtonElement} */ (element("button", { type: "button" }, "Suggest layouts"));
	const said = element("p", { class: "wb-found-text", role: "status" });
	const list = element("ol", { class: "wb-found", "aria-label": "Best layouts, fastest first" });
	const plot = document.createElementNS(SVG, "svg");
	const caption = element("p", { class: "wb-found-text" }, "Layouts that none beats in both: faster to the left, smaller below");
	plot.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
	plot.setAttribute("class", "wb-front");
	plot.setAttribute("role", "img");
	button.addEventListener("click", () => act({ k: "suggest" }));
	list.addEventListener("click", (event) => {
		const item = /** @type {HTMLElement} */ (event.target).closest("button");
		if (item) act({ k: "take", index: Number(item.dataset.index) });
	});
	return {
		node: element("section", { class: "wb-panel wb-suggest", "aria-label": "Suggestions" }, button, said, list, element("div", { class: "wb-front-box" }, plot, caption)),
		/** @param {any} picture */
		update(picture) {
			button.disabled = picture.searching;
			setText(button, picture.searching ? "Searching ..." : "Suggest layouts");
			setText(said, picture.foundText);
			keepChildren(list, picture.found, makeItem, (item, line) => {
				const choose = /** @type {HTMLElement} */ (item.children[0]);
				choose.dataset.index = String(picture.found.indexOf(line));
				setText(choose.children[0], line.label);
				setText(choose.children[1], line.text);
				setText(choose.children[2], line.note);
			});
			drawFront(plot, picture.front, picture.capacity);
			plot.toggleAttribute("hidden", picture.front.length < 2);
			caption.hidden = picture.front.length < 2;
		},
	};
}

function makeItem() {
	return element("li", {}, element("button", { type: "button" }, element("b"), element("span"), element("small")));
}

/**
 * @param {SVGElement} plot
 * @param {{label: string, seconds: number, bytes: number}[]} front
 * @param {number} capacity
 */
function drawFront(plot, front, capacity) {
	const words = front.slice(0, 5).map((point) => point.label);
	plot.setAttribute("aria-label", `Time against memory of ${front.length} layouts, at most ${bytesText(capacity)}. ${words.join("; ")}`);
	const points = placeFront(front);
	plot.replaceChildren(
		...points.map((point, index) => {
			const mark = document.createElementNS(SVG, "circle");
			mark.setAttribute("cx", String(point.x));
			mark.setAttribute("cy", String(point.y));
			mark.setAttribute("r", "4");
			const title = document.createElementNS(SVG, "title");
			title.textContent = front[index].label;
			mark.append(title);
			return mark;
		}),
	);
}

/**
 * Place points by the logarithms of time and memory.
 * @param {{seconds: number, bytes: number}[]} front
 * @returns {{x: number, y: number}[]}
 */
export function placeFront(front) {
	const scale = (/** @type {number[]} */ values, /** @type {number} */ from, /** @type {number} */ to) => {
		const logs = values.map((value) => Math.log(Math.max(value, 1e-12)));
		const low = Math.min(...logs);
		const span = Math.max(...logs) - low || 1;
		return logs.map((log) => from + ((log - low) / span) * (to - from));
	};
	const x = scale(front.map((point) => point.seconds), EDGE.left, WIDTH - EDGE.right);
	const y = scale(front.map((point) => point.bytes), HEIGHT - EDGE.bottom, EDGE.top);
	return x.map((at, index) => ({ x: at, y: y[index] }));
}
