// What a monitor knows: filled by messages from the kernel, read by any number of views.

/**
 * @typedef {{x: number[], y: number[]}} Points
 * @typedef {{names: string[], x: number[], columns: number[][], band: number[][]}} Memory
 * @typedef {{label: string, value: string, note: string, tone: string}} Tile
 * @typedef {{label: string, measured: number|null, planned: number|null,
 *   measuredText: string, plannedText: string, difference: string, tone: string,
 *   parts: {name: string, bytes: number}[], plannedParts: {name: string, bytes: number}[]}} Bar
 * @typedef {{status: string, statusText: string, tone: string, title: string,
 *   detail: string, alert: string, tiles: Tile[], memory: Bar[], comm: Bar[],
 *   phases: {name: string, seconds: number, text: string}[], notes: string[],
 *   plannedPeakBytes: number|null, plannedTokensPerS: number|null}} Panels
 * @typedef {{seq: number, complete: boolean, series: Record<string, Points>,
 *   memory: Memory, panels: Panels|null, listeners: Set<() => void>}} State
 */

/** Above so many ranks, smallest, middle and largest are drawn in place of every rank. */
export const MAX_LINES = 16;

/**
 * @param {string[]} names
 * @returns {Memory}
 */
export function emptyMemory(names = []) {
	const band = names.length > MAX_LINES ? [[], [], []] : [];
	return { names, x: [], columns: names.map(() => []), band };
}

/** @returns {State} */
export function createState() {
	return {
		seq: -1,
		complete: false,
		series: {},
		memory: emptyMemory(),
		panels: null,
		listeners: new Set(),
	};
}

/**
 * Take in one message. A snapshot replaces everything; an append that is not newer than
 * what is known is dropped, so that the two may overtake each other.
 * @param {State} state
 * @param {{k: string, seq: number, series: string[], memory: string[]|null,
 *   panels: Panels|null}} message
 * @param {DataView[]} buffers x and y of each series (float64), then x (float64) and
 *   values (float32, row by row) of memory.
 * @returns {boolean} Whether there is something new to draw.
 */
export function take(state, message, buffers) {
	const isSnapshot = message.k === "snapshot";
	if (!isSnapshot && (message.k !== "append" || message.seq <= state.seq)) return false;
	if (isSnapshot) {
		state.series = {};
		state.memory = emptyMemory();
		state.complete = true;
	}
	state.seq = message.seq;
	if (message.panels) state.panels = message.panels;
	message.series.forEach((name, index) => {
		state.series[name] ??= { x: [], y: [] };
		const y = float64(buffers[2 * index + 1]);
		float64(buffers[2 * index]).forEach((x, at) => {
			addPoint(state.series[name], x, y[at]);
		});
	});
	if (message.memory) {
		const first = 2 * message.series.length;
		addRows(state, message.memory, float64(buffers[first]), float32(buffers[first + 1]));
	}
	for (const listener of state.listeners) listener();
	return true;
}

/**
 * Add a point so that x stays strictly rising: it replaces what was at or after it.
 * @param {Points} points
 * @param {number} x
 * @param {number} y
 */
export function addPoint(points, x, y) {
	while (points.x.length && points.x[points.x.length - 1] >= x) {
		points.x.pop();
		points.y.pop();
	}
	points.x.push(x);
	points.y.push(y);
	thin(points.x, [points.y], 4000);
}

/**
 * Put series of different x on one x, with null where a series has no point.
 * @param {Points[]} series
 * @returns {(number|null)[][]} x, then one column per series: what uPlot draws.
 */
export function align(series) {
	const x = [...new Set(series.flatMap((points) => points.x))].sort((a, b) => a - b);
	const place = new Map(x.map((value, index) => [value, index]));
	const columns = series.map((points) => {
		/** @type {(number|null)[]} */
		const column = new Array(x.length).fill(null);
		points.x.forEach((value, index) => {
			const y = points.y[index];
			column[/** @type {number} */ (place.get(value))] = Number.isFinite(y) ? y : null;
		});
		return column;
	});
	return [x, ...columns];
}

/**
 * @param {State} state
 * @param {string[]} names
 * @param {Float64Array} x
 * @param {Float32Array} values
 */
function addRows(state, names, x, values) {
	if (names.join("\n") !== state.memory.names.join("\n")) state.memory = emptyMemory(names);
	const { memory } = state;
	x.forEach((at, row) => {
		const cells = values.subarray(row * names.length, (row + 1) * names.length);
		while (memory.x.length && memory.x[memory.x.length - 1] >= at) {
			memory.x.pop();
			for (const column of [...memory.columns, ...memory.band]) column.pop();
		}
		memory.x.push(at);
		memory.columns.forEach((column, index) => {
			column.push(cells[index]);
		});
		if (memory.band.length) {
			spread(cells).forEach((value, index) => {
				memory.band[index].push(value);
			});
		}
	});
	thin(memory.x, [...memory.columns, ...memory.band], 1200);
}

/**
 * Smallest, middle and largest of the known values; not a number without any.
 * @param {Float32Array} cells
 * @returns {number[]}
 */
export function spread(cells) {
	const known = cells.filter((value) => !Number.isNaN(value)).sort();
	if (!known.length) return [Number.NaN, Number.NaN, Number.NaN];
	return [known[0], known[known.length >> 1], known[known.length - 1]];
}

/**
 * Give up every second point beyond a limit, never the newest.
 * @param {number[]} x
 * @param {number[][]} columns
 * @param {number} limit
 */
function thin(x, columns, limit) {
	if (x.length <= limit) return;
	const keep = (/** @type {number[]} */ values) => {
		const odd = (values.length - 1) % 2;
		const kept = values.filter((_, index) => index % 2 === odd);
		values.splice(0, values.length, ...kept);
	};
	for (const values of [x, ...columns]) keep(values);
}

/** @param {DataView} view */
function float64(view) {
	return new Float64Array(copy(view));
}

/** @param {DataView} view */
function float32(view) {
	return new Float32Array(copy(view));
}

/** @param {DataView} view */
function copy(view) {
	return view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
}
