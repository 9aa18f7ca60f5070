import assert from "node:assert/strict";
import test from "node:test";

import { describe, lastKnown, yRange } from "../../widgets/workbench_widgets/monitor/chart.js";
import { createState } from "../../widgets/workbench_widgets/monitor/state.js";
import { lossLines, memoryLines, speedLines } from "../../widgets/workbench_widgets/monitor/widget.js";
import { matching } from "../../widgets/workbench_widgets/runs/widget.js";
import { byteTicks, bytesText, countText } from "../../widgets/workbench_widgets/shared/format.js";

test("bytes and counts read as a person writes them", () => {
	assert.deepEqual([0, 512, 1536, 2 ** 30].map(bytesText), ["0 B", "512 B", "1.5 KiB", "1 GiB"]);
	assert.deepEqual([0, 999, 12345, 2.5e6].map(countText), ["0", "999", "12.3 K", "2.5 M"]);
});

test("ticks of bytes are powers of two apart", () => {
	assert.deepEqual(byteTicks(0, 100 * 2 ** 20, 5), [0, 32, 64, 96].map((mib) => mib * 2 ** 20));
});

test("the range of nothing, of one value and of many has a height", () => {
	for (const [low, high] of [[null, null], [3, 3], [0, 0], [1, 2]]) {
		const [bottom, top] = yRange(low, high, false);
		assert.ok(top > bottom);
	}
	assert.equal(yRange(1, 2, true)[0], 0);
});

test("a chart says its newest values in words", () => {
	const look = { title: "Loss", unit: "", xLabel: "step", format: String };

	const words = describe(look, [{ label: "training" }, { label: "validation" }], [
		[1, 2],
		[5, 4],
		[null, null],
	]);

	assert.equal(words, "Loss at step 2: training 4, validation not measured");
});

test("the last known value skips gaps", () => {
	assert.equal(lastKnown([1, 2, null]), 1);
	assert.equal(lastKnown([null]), -1);
});

test("the plan is drawn as one more line", () => {
	const state = createState();
	state.panels = { plannedTokensPerS: 10, plannedPeakBytes: 99 };
	state.series.tokens_per_s = { x: [1, 2], y: [8, 9] };
	state.memory = { names: ["rank 0"], x: [0], columns: [[5]] };

	const [speed, speedData] = speedLines(state);
	const [memory, memoryData] = memoryLines(state);

	assert.deepEqual(speed.map((line) => line.label), ["measured", "planned"]);
	assert.deepEqual(speedData[2], [10, 10]);
	assert.deepEqual(memory.map((line) => line.label), ["rank 0", "planned peak"]);
	assert.deepEqual(memoryData[2], [99]);
});

test("validation is drawn once it is there", () => {
	const state = createState();
	state.series.loss = { x: [1], y: [5] };
	assert.equal(lossLines(state)[0].length, 1);

	state.series.val_loss = { x: [1], y: [5] };
	assert.equal(lossLines(state)[0].length, 2);
});

test("many ranks are a band, few ranks differ by colour and dash", () => {
	const state = createState();
	state.memory = { names: ["min", "median", "max"], x: [0], columns: [[1], [2], [3]] };
	assert.ok(memoryLines(state)[0].every((line) => line.band));

	state.memory = { names: [...Array(16).keys()].map((rank) => `rank ${rank}`), x: [], columns: [...Array(16)].map(() => []) };
	const looks = memoryLines(state)[0].map((line) => JSON.stringify([line.color, line.dash]));
	assert.equal(new Set(looks).size, 16);
});

test("a filter keeps the runs that hold every word", () => {
	const rows = [{ name: "alpha", by: "ada" }, { name: "beta", by: "ada" }];

	assert.deepEqual(matching(rows, "ADA alp"), [rows[0]]);
	assert.deepEqual(matching(rows, "  "), rows);
});
