// What is on screen as files: points as CSV, charts as one PNG.

import { element } from "../shared/dom.js";

/**
 * All drawn points as one table: chart, line, x, y; gaps are left out.
 * @param {{title: string, lines: {label: string}[], data: (number|null)[][]}[]} charts
 * @returns {string}
 */
export function csvOf(charts) {
	const rows = charts.flatMap(({ title, lines, data }) =>
		lines.flatMap((line, index) =>
			data[0].flatMap((x, at) => {
				const y = data[index + 1][at];
				return y === null ? [] : [[title, line.label, x, y].map(csvCell).join(",")];
			}),
		),
	);
	return ["chart,line,x,y", ...rows, ""].join("\n");
}

/**
 * A cell that no spreadsheet takes for a formula and no comma splits.
 * @param {string|number|null} value
 */
function csvCell(value) {
	const text = String(value);
	if (typeof value === "number") return text;
	const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
	return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/**
 * Draw all charts of a monitor, with their titles, on one canvas.
 * @param {HTMLElement} root
 * @returns {HTMLCanvasElement}
 */
export function pictureOf(root) {
	const figures = [...root.querySelectorAll(".wb-chart")].filter((figure) => figure.querySelector("canvas"));
	const scale = window.devicePixelRatio || 1;
	const canvases = figures.map((figure) => /** @type {HTMLCanvasElement} */ (figure.querySelector("canvas")));
	const head = 26 * scale;
	const made = document.createElement("canvas");
	made.width = Math.max(1, ...canvases.map((canvas) => canvas.width));
	made.height = Math.max(1, canvases.reduce((sum, canvas) => sum + canvas.height + head, 0));
	const context = /** @type {CanvasRenderingContext2D} */ (made.getContext("2d"));
	const style = getComputedStyle(root);
	context.fillStyle = style.getPropertyValue("--wb-paper").trim() || "white";
	context.fillRect(0, 0, made.width, made.height);
	context.fillStyle = style.color;
	context.font = `${13 * scale}px system-ui, sans-serif`;
	let y = 0;
	canvases.forEach((canvas, index) => {
		context.fillText(figures[index].querySelector("h3")?.textContent ?? "", 8 * scale, y + 18 * scale);
		context.drawImage(canvas, 0, y + head);
		y += canvas.height + head;
	});
	return made;
}

/**
 * Buttons that save what is on screen.
 * @param {() => string} csv
 * @param {() => HTMLCanvasElement} picture
 */
export function makeSave(csv, picture) {
	const button = (/** @type {string} */ text, /** @type {() => void} */ action) => {
		const made = element("button", { type: "button" }, text);
		made.addEventListener("click", action);
		return made;
	};
	return element(
		"div",
		{ class: "wb-save" },
		button("Save points as CSV", () => saveFile("monitor.csv", new Blob([csv()], { type: "text/csv" }))),
		button("Save charts as PNG", () => picture().toBlob((blob) => blob && saveFile("monitor.png", blob))),
	);
}

/**
 * @param {string} name
 * @param {Blob} blob
 */
function saveFile(name, blob) {
	const link = /** @type {HTMLAnchorElement} */ (element("a", { download: name }));
	link.href = URL.createObjectURL(blob);
	link.click();
	setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
