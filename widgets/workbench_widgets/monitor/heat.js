// Memory of many ranks over time as a map: one row a rank, darker is fuller.

import { element, setText } from "../shared/dom.js";
import { bytesText } from "../shared/format.js";

/** @typedef {import("./state.js").Memory} Memory */

/**
 * @param {(rank: number) => void} pick Called with the rank that is clicked on.
 */
export function makeHeat(pick) {
	const canvas = /** @type {HTMLCanvasElement} */ (
		element("canvas", { class: "wb-heat", role: "img", tabindex: "0" })
	);
	const words = element("p", { class: "wb-legend", "aria-live": "polite" });
	const node = element(
		"section",
		{ class: "wb-panel", "aria-label": "Memory of every rank" },
		element("h3", {}, "Memory of every rank", element("small", {}, " over time; click draws a rank above")),
		canvas,
		words,
	);
	/** @type {Memory|null} */
	let shown = null;
	let limit = 1;
	let looked = 0;
	const place = (/** @type {PointerEvent} */ event) => {
		const box = canvas.getBoundingClientRect();
		return {
			rank: cell(event.clientY - box.top, box.height, shown?.names.length ?? 0),
			at: cell(event.clientX - box.left, box.width, shown?.x.length ?? 0),
		};
	};
	canvas.addEventListener("pointermove", (event) => {
		const { rank, at } = place(event);
		if (shown) setText(words, heatWords(shown, rank, at));
	});
	canvas.addEventListener("click", (event) => {
		looked = place(/** @type {PointerEvent} */ (event)).rank;
		pick(looked);
	});
	canvas.addEventListener("keydown", (event) => {
		const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
		if (!step || !shown) return;
		event.preventDefault();
		event.stopPropagation();
		looked = Math.max(0, Math.min(shown.names.length - 1, looked + step));
		setText(words, heatWords(shown, looked, shown.x.length - 1));
		pick(looked);
	});
	return {
		node,
		/** @param {Memory} memory @param {number|null} planned */
		update(memory, planned) {
			shown = memory;
			node.hidden = memory.band.length === 0 || memory.x.length === 0;
			if (node.hidden) return;
			const largest = memory.band[2].reduce((a, b) => (b > a ? b : a), 1);
			limit = Math.max(largest, planned ?? 0);
			paint(canvas, memory, limit);
			canvas.setAttribute(
				"aria-label",
				`Memory of ${memory.names.length} ranks, from 0 to ${bytesText(limit)}; arrows choose a rank`,
			);
			if (!words.textContent) setText(words, `dark is ${bytesText(limit)}, light is nothing`);
		},
	};
}

/**
 * @param {number} offset
 * @param {number} size
 * @param {number} count
 */
function cell(offset, size, count) {
	return Math.max(0, Math.min(count - 1, Math.floor((offset / Math.max(size, 1)) * count)));
}

/**
 * @param {Memory} memory
 * @param {number} rank
 * @param {number} at
 * @returns {string}
 */
export function heatWords(memory, rank, at) {
	const value = memory.columns[rank]?.[at];
	const said = value === undefined || Number.isNaN(value) ? "not measured" : bytesText(value);
	return `${memory.names[rank]} at ${Number(memory.x[at].toFixed(1))} seconds: ${said}`;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Memory} memory
 * @param {number} limit
 */
function paint(canvas, memory, limit) {
	const columns = memory.x.length;
	const rows = memory.names.length;
	canvas.width = columns;
	canvas.height = rows;
	canvas.style.height = `${Math.max(120, Math.min(2 * rows, 320))}px`;
	const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
	const image = context.createImageData(columns, rows);
	const pixels = new Uint32Array(image.data.buffer);
	for (let rank = 0; rank < rows; rank += 1) {
		const values = memory.columns[rank];
		for (let at = 0; at < columns; at += 1) {
			pixels[rank * columns + at] = shade(values[at] / limit);
		}
	}
	context.putImageData(image, 0, 0);
}

/**
 * A shade from pale yellow over green to dark blue, that greys keep in order.
 * @param {number} share
 * @returns {number} Little-endian RGBA; see-through where nothing is known.
 */
export function shade(share) {
	if (Number.isNaN(share)) return 0;
	const part = Math.max(0, Math.min(1, share));
	const red = Math.round(253 - 240 * part ** 0.8);
	const green = Math.round(244 - 195 * part ** 1.2);
	const blue = Math.round(196 - 80 * part + 10 * Math.sin(part * 3.14) * part);
	return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
