// One line chart over uPlot: themed, resizing, described in words.

import { element } from "../shared/dom.js";

/**
 * @typedef {{label: string, color: string, dash?: number[], band?: boolean,
 *   points?: boolean, width?: number}} Line
 * @typedef {{title: string, unit: string, xLabel: string, format: (value: number) => string,
 *   ticks?: (low: number, high: number, count: number) => number[], fromZero?: boolean, wholeX?: boolean}} ChartLook
 */

const HEIGHT = 190;
/** Distances of ticks on an axis of whole numbers. */
const WHOLE = [1, 2, 5].flatMap((digit) => [...Array(9).keys()].map((power) => digit * 10 ** power)).sort((a, b) => a - b);

/**
 * Make a chart inside `parent`; it draws once `update` brings at least one point.
 * @param {HTMLElement} parent
 * @param {ChartLook} look
 */
export function makeChart(parent, look) {
	const canvas = element("div", { class: "wb-chart-canvas", role: "img" });
	const empty = element("p", { class: "wb-empty" }, "not measured yet");
	const figure = element(
		"section",
		{ class: "wb-panel wb-chart", "aria-label": look.title },
		element("h3", {}, look.title, element("small", {}, ` ${look.unit}`)),
		empty,
		canvas,
	);
	parent.append(figure);
	/** @type {any} */
	let plot = null;
	let shape = "";
	const resize = new ResizeObserver(() => {
		const width = canvas.clientWidth;
		if (plot && width && width !== plot.width) plot.setSize({ width, height: HEIGHT });
	});
	resize.observe(canvas);

	return {
		figure,
		/** @param {Line[]} lines @param {(number|null)[][]} data x, then one per line. */
		update(lines, data) {
			const drawn = data[0].length > 0 && canvas.clientWidth > 0;
			empty.hidden = data[0].length > 0;
			canvas.hidden = !empty.hidden;
			if (!drawn && !(data[0].length > 0)) return;
			const newShape = JSON.stringify(lines);
			if (plot && shape === newShape) {
				plot.setData(data);
				showNewest(plot);
			} else {
				plot?.destroy();
				shape = newShape;
				plot = new uPlot(options(look, lines, canvas), data, canvas);
				showNewest(plot);
			}
			canvas.setAttribute("aria-label", describe(look, lines, data));
		},
		/** Draw again with the colours of a new theme. */
		redraw() {
			plot?.redraw(false, true);
		},
		destroy() {
			resize.disconnect();
			plot?.destroy();
		},
	};
}

/**
 * While no cursor is over the plot, the legend tells the newest value of each line.
 * @param {any} plot
 */
function showNewest(plot) {
	// uPlot sets its own legend in a microtask: come after it.
	queueMicrotask(() => {
		if (plot.cursor.left >= 0) return;
		plot.setLegend({ idx: plot.data[0].length - 1 }, false);
	});
}

/**
 * @param {ChartLook} look
 * @param {any} plot
 * @param {number|null} value At the cursor.
 * @param {number} index Of the line.
 */
function legendText(look, plot, value, index) {
	const column = plot.data[index];
	const shown = value === null && plot.cursor.left < 0 ? column[lastKnown(column)] : value;
	return shown === null || shown === undefined ? "--" : look.format(shown);
}

/**
 * The newest value of each line, in words.
 * @param {ChartLook} look
 * @param {Line[]} lines
 * @param {(number|null)[][]} data
 * @returns {string}
 */
export function describe(look, lines, data) {
	const parts = lines.map((line, index) => {
		const at = lastKnown(data[index + 1]);
		if (at < 0) return `${line.label} not measured`;
		return `${line.label} ${look.format(Number(data[index + 1][at]))}`;
	});
	const x = data[0][data[0].length - 1];
	return `${look.title} at ${look.xLabel} ${x}: ${parts.join(", ")}`;
}

/** @param {(number|null)[]} values */
export function lastKnown(values) {
	let at = values.length - 1;
	while (at >= 0 && values[at] === null) at -= 1;
	return at;
}

/**
 * @param {ChartLook} look
 * @param {Line[]} lines
 * @param {HTMLElement} canvas
 */
function options(look, lines, canvas) {
	const color = (/** @type {string} */ name) => () => cssColor(canvas, name);
	const axis = {
		stroke: color("--wb-ink-soft"),
		grid: { stroke: color("--wb-grid"), width: 1 },
		ticks: { stroke: color("--wb-grid"), width: 1, size: 4 },
		font: "11px system-ui, sans-serif",
	};
	return {
		width: canvas.clientWidth || 320,
		height: HEIGHT,
		cursor: { points: { size: 6 }, drag: { x: true, y: false } },
		legend: { live: true, markers: { width: 2 } },
		hooks: { setCursor: [showNewest] },
		scales: {
			x: { time: false },
			y: { range: (_, low, high) => yRange(low, high, look.fromZero === true) },
		},
		axes: [
			{ ...axis, size: 26, label: look.xLabel, labelSize: 14, labelFont: axis.font, labelGap: -2, ...(look.wholeX ? { incrs: WHOLE } : {}) },
			{
				...axis,
				size: 62,
				values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map(look.format),
				...(look.ticks
					? {
							splits: (/** @type {any} */ _u, /** @type {number} */ _i, /** @type {number} */ low, /** @type {number} */ high) =>
								look.ticks?.(low, high, 5),
						}
					: {}),
			},
		],
		bands: lines.some((line) => line.band)
			? [{ series: [3, 1], fill: color("--wb-band") }]
			: undefined,
		series: [
			{ label: look.xLabel },
			...lines.map((line) => ({
				label: line.label,
				stroke: color(line.color),
				width: line.width ?? 1.5,
				dash: line.dash,
				spanGaps: true,
				points: {
					// A lone point has no line to be seen by.
					show: (/** @type {any} */ plot) => line.points || plot.data[0].length === 1,
					size: 6,
					fill: color(line.color),
				},
				value: (/** @type {any} */ plot, /** @type {number|null} */ value, /** @type {number} */ index) =>
					legendText(look, plot, value ?? null, index),
			})),
		],
	};
}

/**
 * @param {number|null} low
 * @param {number|null} high
 * @param {boolean} fromZero
 * @returns {[number, number]}
 */
export function yRange(low, high, fromZero) {
	if (low === null || high === null) return [0, 1];
	const bottom = fromZero ? Math.min(low, 0) : low;
	const margin = (high - bottom || Math.abs(high) || 1) * 0.08;
	return [fromZero && low >= 0 ? 0 : bottom - margin, high + margin];
}

/**
 * @param {HTMLElement} target
 * @param {string} name
 */
function cssColor(target, name) {
	return getComputedStyle(target).getPropertyValue(name).trim() || "gray";
}

