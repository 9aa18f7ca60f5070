// The live monitor of a run. State belongs to the model, so that messages which arrive
// before a view is drawn are kept, and several views show the same.

import { element, onFrame } from "../shared/dom.js";
import { byteTicks, bytesText, countText } from "../shared/format.js";
import { lastKnown, makeChart } from "./chart.js";
import { makeHeat } from "./heat.js";
import { makeBars, makeHead, makeNotes, makePhases, makeTable } from "./panels.js";
import { csvOf, makeSave, pictureOf } from "./save.js";
import { align, createState, take } from "./state.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {import("./chart.js").Line} Line */

const COLORS = 8;
/** Dashes tell ranks apart where colours repeat or cannot be seen. */
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];

/**
 * The widget of one model: anywidget calls this once per model, so that the state is
 * there before the first view and is the same for all views.
 */
function monitor() {
	const state = createState();
	return {
		initialize: (/** @type {{model: any}} */ { model }) => listen(state, model),
		render: (/** @type {{model: any, el: HTMLElement}} */ { model, el }) => show(state, model, el),
	};
}

/**
 * @param {State} state
 * @param {any} model
 */
function listen(state, model) {
	state.panels = model.get("start");
	const onMessage = (/** @type {any} */ message, /** @type {DataView[]} */ buffers) => {
		take(state, message, buffers ?? []);
	};
	model.on("msg:custom", onMessage);
	model.send({ k: "hello" });
	return () => model.off("msg:custom", onMessage);
}

/**
 * @param {State} state
 * @param {any} model
 * @param {HTMLElement} el
 */
function show(state, model, el) {
	const view = build(state, model.get("can_stop") ? () => model.send({ k: "stop" }) : null);
	el.append(view.root);
	// For tests: what is drawn, as data.
	Object.assign(view.root, { wbState: state });
	const frame = onFrame(view.root, view.draw);
	state.listeners.add(frame.request);
	const themes = new MutationObserver(() => view.redraw());
	themes.observe(document.body, {
		attributes: true,
		attributeFilter: ["data-jp-theme-name", "data-jp-theme-light", "class"],
	});
	frame.request();
	return () => {
		themes.disconnect();
		frame.stop();
		state.listeners.delete(frame.request);
		view.destroy();
		view.root.remove();
	};
}

/**
 * @param {State} state
 * @param {(() => void)|null} stop
 */
function build(state, stop) {
	const head = makeHead(stop);
	const notes = makeNotes();
	const charts = element("div", { class: "wb-grid" });
	const loss = makeChart(charts, { ...LOOKS.loss });
	const speed = makeChart(charts, { ...LOOKS.speed });
	const memory = makeChart(charts, { ...LOOKS.memory });
	const memoryBars = makeBars("Peak memory per rank", "not measured yet");
	const commBars = makeBars("Bytes sent per rank and step", "no collective yet");
	const phases = makePhases();
	let picked = -1;
	const heat = makeHeat((rank) => {
		picked = rank;
		memory.update(...memoryLines(state, picked));
	});
	charts.append(phases.node, memoryBars.node, commBars.node, heat.node);
	const table = makeTable(() => rows(state));
	const root = element(
		"div",
		{ class: "wb-root wb-monitor" },
		...head.nodes,
		notes.node,
		charts,
		table.node,
		makeSave(
			() => csvOf(drawn(state, picked)),
			() => pictureOf(root),
		),
	);
	const draw = () => {
		if (state.panels) {
			head.update(state.panels);
			notes.update(state.panels.notes);
			memoryBars.update(state.panels.memory);
			commBars.update(state.panels.comm);
			phases.update(state.panels.phases);
		}
		loss.update(...lossLines(state));
		speed.update(...speedLines(state));
		memory.update(...memoryLines(state, picked));
		heat.update(state.memory, state.panels?.plannedPeakBytes ?? null);
		table.update();
	};
	return {
		root,
		draw,
		redraw: () => [loss, speed, memory].forEach((chart) => chart.redraw()),
		destroy: () => [loss, speed, memory].forEach((chart) => chart.destroy()),
	};
}

const LOOKS = {
	loss: {
		title: "Loss",
		unit: "nats per token",
		xLabel: "step",
		wholeX: true,
		format: (/** @type {number} */ value) => String(Number(value.toPrecision(4))),
	},
	speed: {
		title: "Throughput",
		unit: "tokens per second",
		xLabel: "step",
		wholeX: true,
		format: countText,
		fromZero: true,
	},
	memory: {
		title: "Memory in use",
		unit: "per rank",
		xLabel: "seconds",
		format: bytesText,
		ticks: byteTicks,
		fromZero: true,
	},
};

const NOTHING = { x: [], y: [] };

/** @param {State} state @returns {[Line[], (number|null)[][]]} */
export function lossLines(state) {
	const lines = [{ label: "training", color: "--wb-c0" }];
	const series = [state.series.loss ?? NOTHING];
	if (state.series.val_loss) {
		lines.push(Object.assign({ label: "validation", color: "--wb-c1" }, { points: true, dash: [6, 3] }));
		series.push(state.series.val_loss);
	}
	return [lines, align(series)];
}

/** @param {State} state @returns {[Line[], (number|null)[][]]} */
export function speedLines(state) {
	const data = align([state.series.tokens_per_s ?? NOTHING]);
	/** @type {Line[]} */
	const lines = [{ label: "measured", color: "--wb-c2" }];
	return withPlanned(lines, data, state.panels?.plannedTokensPerS ?? null, "planned");
}

/**
 * Every rank as a line; of many ranks a band, and the one that was picked.
 * @param {State} state
 * @param {number} [picked]
 * @returns {[Line[], (number|null)[][]]}
 */
export function memoryLines(state, picked = -1) {
	const { names, x, columns, band } = state.memory;
	const drawn = band.length ? [...band, ...columns.slice(picked, picked + 1)] : columns;
	const lines = band.length ? bandLines(names[picked]) : names.map(rankLine);
	const clean = drawn.map((column) => column.map((value) => (Number.isFinite(value) ? value : null)));
	return withPlanned(lines, [x, ...clean], state.panels?.plannedPeakBytes ?? null, "planned peak");
}

/** @param {string} label @param {number} index @returns {Line} */
function rankLine(label, index) {
	const dash = DASHES[Math.floor(index / COLORS + index) % DASHES.length];
	return { label, color: `--wb-c${index % COLORS}`, dash };
}

/** @param {string|undefined} picked @returns {Line[]} */
function bandLines(picked) {
	const edge = { color: "--wb-c0", dash: [3, 3], width: 1.5, band: true };
	/** @type {Line[]} */
	const lines = [
		{ ...edge, label: "min" },
		{ ...edge, label: "median", dash: [], width: 2 },
		{ ...edge, label: "max" },
	];
	return picked === undefined ? lines : [...lines, { label: picked, color: "--wb-c1", width: 1.5 }];
}

/**
 * @param {Line[]} lines
 * @param {(number|null)[][]} data
 * @param {number|null} planned
 * @param {string} label
 * @returns {[Line[], (number|null)[][]]}
 */
function withPlanned(lines, data, planned, label) {
	if (planned === null) return [lines, data];
	return [
		[...lines, { label, color: "--wb-planned", dash: [10, 5], width: 2 }],
		[...data, data[0].map(() => planned)],
	];
}

/**
 * What the charts show: their look, lines and points.
 * @param {State} state
 * @param {number} [picked]
 */
function drawn(state, picked = -1) {
	const shown = /** @type {[import("./chart.js").ChartLook, [Line[], (number|null)[][]]][]} */ ([
		[LOOKS.loss, lossLines(state)],
		[LOOKS.speed, speedLines(state)],
		[LOOKS.memory, memoryLines(state, picked)],
	]);
	return shown.map(([look, [lines, data]]) => ({ look, title: look.title, lines, data }));
}

/** @param {State} state */
function rows(state) {
	const body = drawn(state).flatMap(({ look, lines, data }) =>
		lines.map((line, index) => row(look, line, data[0], data[index + 1])),
	);
	return [["figure", "newest", "at", "smallest", "largest"], ...body];
}

/**
 * @param {import("./chart.js").ChartLook} look
 * @param {Line} line
 * @param {(number|null)[]} x
 * @param {(number|null)[]} y
 */
function row(look, line, x, y) {
	const name = `${look.title}: ${line.label}`;
	const known = /** @type {number[]} */ (y.filter((value) => value !== null));
	if (!known.length) return [name, "not measured", "", "", ""];
	const at = lastKnown(y);
	const low = known.reduce((a, b) => Math.min(a, b));
	const high = known.reduce((a, b) => Math.max(a, b));
	return [name, look.format(Number(y[at])), `${look.xLabel} ${x[at]}`, look.format(low), look.format(high)];
}

export default monitor;
