import assert from "node:assert/strict";
import test from "node:test";

import { describe, lastKnown, yRange } from "../../widgets/workbench_widgets/monitor/chart.js";
import { csvOf } from "../../widgets/workbench_widgets/monitor/save.js";
import { createState, emptyMemory } from "../../widgets/workbench_widgets/monitor/state.js";
import { heatWords, shade } from "../../widgets/workbench_widgets/monitor/heat.js";
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
	state.memory = { ...emptyMemory(["rank 0"]), x: [0], columns: [[5]] };

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

test("many ranks are a band, and a picked rank is drawn beside it", () => {
	const state = createState();
	const names = [...Array(32).keys()].map((rank) => `rank ${rank}`);
	state.memory = { ...emptyMemory(names), x: [0], columns: names.map((_, rank) => [rank]), band: [[0], [16], [31]] };

	const labels = (picked) => memoryLines(state, picked)[0].map((line) => line.label);

	assert.deepEqual(labels(-1), ["min", "median", "max"]);
	assert.deepEqual(labels(5), ["min", "median", "max", "rank 5"]);
	assert.deepEqual(memoryLines(state, 5)[1], [[0], [0], [16], [31], [5]]);
});

test("few ranks differ by colour and dash", () => {
	const state = createState();
	state.memory = emptyMemory([...Array(16).keys()].map((rank) => `rank ${rank}`));

	const looks = memoryLines(state)[0].map((line) => JSON.stringify([line.color, line.dash]));

	assert.equal(new Set(looks).size, 16);
});

test("a map's shades get darker, and what is not known is see-through", () => {
	const light = (share) => {
		const rgba = shade(share);
		return (rgba & 255) * 0.3 + ((rgba >> 8) & 255) * 0.6 + ((rgba >> 16) & 255) * 0.1;
	};

	for (let share = 0; share < 1; share += 0.05) assert.ok(light(share) > light(share + 0.05));
	assert.equal(shade(Number.NaN), 0);
});

test("a cell of the map is told in words", () => {
	const memory = { ...emptyMemory(["rank 0"]), x: [0.5], columns: [[2048]] };

	assert.equal(heatWords(memory, 0, 0), "rank 0 at 0.5 seconds: 2 KiB");
});

test("a filter keeps the runs that hold every word", () => {
	const rows = [{ name: "alpha", by: "ada" }, { name: "beta", by: "ada" }];

	assert.deepEqual(matching(rows, "ADA alp"), [rows[0]]);
	assert.deepEqual(matching(rows, "  "), rows);
});

test("points are saved as drawn, gaps left out, and no cell is a formula", () => {
	const charts = [
		{ title: "Loss", lines: [{ label: "training" }, { label: "=1+1, \"x\"" }], data: [[1, 2], [5, 4.5], [null, 4]] },
	];

	assert.equal(csvOf(charts), 'chart,line,x,y\nLoss,training,1,5\nLoss,training,2,4.5\nLoss,"\'=1+1, ""x""",2,4\n');
});
