import assert from "node:assert/strict";
import test from "node:test";

import { rankWords } from "../../widgets/workbench_widgets/builder/cluster.js";
import { next } from "../../widgets/workbench_widgets/builder/controls.js";
import { placeFront } from "../../widgets/workbench_widgets/builder/suggest.js";
import { coordinates, groupOf, placeTiles, rankAt, ranksText } from "../../widgets/workbench_widgets/builder/grid.js";

const AXES = [
	{ name: "pp", degree: 2 },
	{ name: "dp", degree: 3 },
	{ name: "tp", degree: 4 },
];

test("the innermost axis counts first", () => {
	assert.deepEqual(coordinates(AXES, 0), { pp: 0, dp: 0, tp: 0 });
	assert.deepEqual(coordinates(AXES, 5), { pp: 0, dp: 1, tp: 1 });
	assert.deepEqual(coordinates(AXES, 23), { pp: 1, dp: 2, tp: 3 });
});

test("partners differ on one axis alone", () => {
	assert.deepEqual(groupOf(AXES, 5, "tp"), [4, 5, 6, 7]);
	assert.deepEqual(groupOf(AXES, 5, "dp"), [1, 5, 9]);
	assert.deepEqual(groupOf(AXES, 5, "pp"), [5, 17]);
	assert.deepEqual(groupOf(AXES, 5, "ep"), [5]);
});

test("ranks are written as a person would", () => {
	assert.equal(ranksText([0, 1, 2, 5]), "0-2, 5");
	assert.equal(ranksText([0, 8, 16, 24]), "0-24 by 8");
	assert.equal(ranksText([3]), "3");
});

test("a stepper goes to the next degree that is offered and stays at the ends", () => {
	const axis = { degree: 4, options: [1, 2, 4, 16] };

	assert.equal(next(axis, 1), 16);
	assert.equal(next(axis, -1), 2);
	assert.equal(next({ degree: 16, options: [1, 16] }, 1), 16);
});

for (const [numRanks, perNode, width] of [[1, 8, 300], [8, 8, 700], [64, 8, 500], [1024, 8, 900], [1024, 8, 200]]) {
	test(`${numRanks} tiles lie apart inside ${width} pixels`, () => {
		const placement = placeTiles(numRanks, perNode, width);

		for (let rank = 0; rank < numRanks; rank += 1) {
			const box = placement.place(rank);
			assert.ok(box.x >= 0 && box.x + box.width <= width);
			assert.equal(rankAt(placement, numRanks, box.x + 1, box.y + 1), rank);
		}
	});
}

test("a rank is told in words", () => {
	const picture = {
		axes: AXES,
		ranksPerNode: 8,
		numRanks: 24,
		kinds: [{ text: "1.0 GiB of 2.0 GiB" }],
		kindOf: Array(24).fill(0),
	};

	assert.equal(
		rankWords(picture, 9),
		"Rank 9 on node 1 (pp 0, dp 2, tp 1): 1.0 GiB of 2.0 GiB. " +
			"pp: ranks 9, 21; dp: ranks 1-9 by 4; tp: ranks 8-11",
	);
});

test("layouts of the front are placed faster to the left and smaller below", () => {
	const [fast, slow] = placeFront([
		{ label: "", seconds: 1, bytes: 8e9 },
		{ label: "", seconds: 4, bytes: 1e9 },
	]);

	assert.ok(fast.x < slow.x);
	assert.ok(fast.y < slow.y);
	assert.equal(placeFront([{ label: "", seconds: 1, bytes: 1 }]).length, 1);
});
