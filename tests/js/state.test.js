import assert from "node:assert/strict";
import test from "node:test";

import { addPoint, align, createState, take } from "../../widgets/workbench_widgets/monitor/state.js";

const view = (values, kind) => new DataView(kind.from(values).buffer);

function message(kind, seq, series = {}, memory = null, panels = null) {
	const buffers = Object.values(series).flatMap(([x, y]) => [
		view(x, Float64Array),
		view(y, Float64Array),
	]);
	if (memory) buffers.push(view(memory.x, Float64Array), view(memory.values, Float32Array));
	return [
		{ k: kind, seq, series: Object.keys(series), memory: memory?.names ?? null, panels },
		buffers,
	];
}

test("appended points follow those of the snapshot", () => {
	const state = createState();

	take(state, ...message("snapshot", 3, { loss: [[1, 2], [5, 4]] }));
	take(state, ...message("append", 4, { loss: [[3], [3]] }));

	assert.deepEqual(state.series.loss, { x: [1, 2, 3], y: [5, 4, 3] });
});

test("an append that the snapshot already holds is dropped", () => {
	const state = createState();

	take(state, ...message("snapshot", 3, { loss: [[1], [5]] }));
	const taken = take(state, ...message("append", 3, { loss: [[9], [9]] }));

	assert.equal(taken, false);
	assert.deepEqual(state.series.loss.x, [1]);
});

test("a snapshot replaces what overtook it", () => {
	const state = createState();

	take(state, ...message("append", 1, { loss: [[7], [7]] }));
	take(state, ...message("snapshot", 2, { loss: [[1, 2], [5, 4]] }));

	assert.deepEqual(state.series.loss.x, [1, 2]);
	assert.equal(state.complete, true);
});

test("x stays strictly rising when training goes back to a checkpoint", () => {
	const points = { x: [], y: [] };

	for (const [x, y] of [[1, 1], [2, 2], [3, 3], [2, 20]]) addPoint(points, x, y);

	assert.deepEqual(points, { x: [1, 2], y: [1, 20] });
});

test("memory rows of new ranks begin anew", () => {
	const state = createState();

	take(state, ...message("append", 1, {}, { names: ["rank 0"], x: [0], values: [8] }));
	take(state, ...message("append", 2, {}, { names: ["rank 0", "rank 1"], x: [1], values: [8, 9] }));

	assert.deepEqual(state.memory, { names: ["rank 0", "rank 1"], x: [1], columns: [[8], [9]], band: [] });
});

test("a row of the same moment replaces the one before", () => {
	const state = createState();

	take(state, ...message("append", 1, {}, { names: ["rank 0"], x: [0, 1], values: [1, 2] }));
	take(state, ...message("append", 2, {}, { names: ["rank 0"], x: [1], values: [5] }));

	assert.deepEqual(state.memory.columns, [[1, 5]]);
});

test("hours of points stay bounded and keep the newest", () => {
	const points = { x: [], y: [] };

	for (let step = 0; step < 50_000; step += 1) addPoint(points, step, step);

	assert.ok(points.x.length <= 4000);
	assert.equal(points.x.at(-1), 49_999);
	assert.ok(points.x.every((x, at) => at === 0 || x > points.x[at - 1]));
});

test("listeners hear of what is taken and not of what is dropped", () => {
	const state = createState();
	let heard = 0;
	state.listeners.add(() => {
		heard += 1;
	});

	take(state, ...message("append", 1, { loss: [[1], [1]] }));
	take(state, ...message("append", 1, { loss: [[1], [1]] }));
	take(state, { k: "unknown", seq: 9, series: [], memory: null, panels: null }, []);

	assert.equal(heard, 1);
});

test("series of different steps share one x", () => {
	const data = align([
		{ x: [1, 2, 3], y: [5, 4, 3] },
		{ x: [2], y: [4.5] },
	]);

	assert.deepEqual(data, [[1, 2, 3], [5, 4, 3], [null, 4.5, null]]);
});

test("what is not a number is a gap, not a point", () => {
	assert.deepEqual(align([{ x: [1, 2], y: [Number.NaN, Number.POSITIVE_INFINITY] }])[1], [null, null]);
});

test("of many ranks smallest, middle and largest are kept beside every rank", () => {
	const names = [...Array(32).keys()].map((rank) => `rank ${rank}`);
	const state = createState();

	take(state, ...message("append", 1, {}, { names, x: [0], values: names.map((_, rank) => 31 - rank) }));
	take(state, ...message("append", 2, {}, { names, x: [1], values: names.map((_, rank) => (rank ? rank : Number.NaN)) }));

	assert.deepEqual(state.memory.band, [[0, 1], [16, 16], [31, 31]]);
	assert.equal(state.memory.columns.length, 32);
});
