// The rank grid as arithmetic: coordinates, partners, and where each tile is drawn.

/** @typedef {{name: string, degree: number}} AxisDegree */

/**
 * Where a rank lies on every axis.
 * @param {AxisDegree[]} axes Outermost first.
 * @param {number} rank
 * @returns {Record<string, number>}
 */
export function coordinates(axes, rank) {
	/** @type {Record<string, number>} */
	const place = {};
	let rest = rank;
	for (const axis of [...axes].reverse()) {
		place[axis.name] = rest % axis.degree;
		rest = Math.floor(rest / axis.degree);
	}
	return place;
}

/**
 * The ranks that differ from `rank` on one axis alone, itself included.
 * @param {AxisDegree[]} axes Outermost first.
 * @param {number} rank
 * @param {string} name
 * @returns {number[]}
 */
export function groupOf(axes, rank, name) {
	const at = axes.findIndex((axis) => axis.name === name);
	if (at < 0) return [rank];
	const stride = axes.slice(at + 1).reduce((product, axis) => product * axis.degree, 1);
	const first = rank - coordinates(axes, rank)[name] * stride;
	return Array.from({ length: axes[at].degree }, (_, step) => first + step * stride);
}

/**
 * Ranks as a person writes them: [0, 1, 2, 5] -> "0-2, 5"; [0, 8, 16] -> "0-16 by 8".
 * @param {number[]} ranks Rising.
 * @returns {string}
 */
export function ranksText(ranks) {
	const stride = ranks[1] - ranks[0];
	if (ranks.length > 2 && stride > 1 && ranks.every((rank, at) => rank === ranks[0] + at * stride)) {
		return `${ranks[0]}-${ranks.at(-1)} by ${stride}`;
	}
	/** @type {string[]} */
	const parts = [];
	for (let at = 0; at < ranks.length; ) {
		let end = at;
		while (end + 1 < ranks.length && ranks[end + 1] === ranks[end] + 1) end += 1;
		parts.push(end > at ? `${ranks[at]}-${ranks[end]}` : String(ranks[at]));
		at = end + 1;
	}
	return parts.length > 6 ? `${parts.slice(0, 5).join(", ")}, ... ${parts.at(-1)}` : parts.join(", ");
}

/**
 * @typedef {{x: number, y: number, width: number, height: number}} Box
 * @typedef {{tile: number, tileHeight: number, perRow: number, columns: number,
 *   nodes: Box[], place: (rank: number) => Box, height: number}} Placement
 */

/**
 * Place nodes as boxes and their devices as tiles into a width, as large as they fit.
 * @param {number} numRanks
 * @param {number} ranksPerNode
 * @param {number} width
 * @returns {Placement}
 */
export function placeTiles(numRanks, ranksPerNode, width) {
	const perNode = Math.min(ranksPerNode, numRanks);
	const numNodes = Math.ceil(numRanks / perNode);
	const perRow = perNode <= 4 ? perNode : Math.ceil(perNode / 2);
	const rows = Math.ceil(perNode / perRow);
	const pad = 5;
	const gap = 8;
	for (let tile = 64; ; tile -= 2) {
		const tileHeight = Math.round(tile * 1.15);
		const nodeWidth = perRow * tile + (perRow - 1) * 2 + 2 * pad;
		const header = tile >= 26 ? 15 : 0;
		const nodeHeight = rows * tileHeight + (rows - 1) * 2 + 2 * pad + header;
		const columns = Math.max(1, Math.min(numNodes, Math.floor((width + gap) / (nodeWidth + gap))));
		const height = Math.ceil(numNodes / columns) * (nodeHeight + gap) - gap;
		if ((height > 520 || nodeWidth > width) && tile > 8) continue;
		const nodes = Array.from({ length: numNodes }, (_, node) => ({
			x: (node % columns) * (nodeWidth + gap),
			y: Math.floor(node / columns) * (nodeHeight + gap),
			width: nodeWidth,
			height: nodeHeight,
		}));
		const place = (/** @type {number} */ rank) => {
			const node = nodes[Math.floor(rank / perNode)];
			const inside = rank % perNode;
			return {
				x: node.x + pad + (inside % perRow) * (tile + 2),
				y: node.y + pad + header + Math.floor(inside / perRow) * (tileHeight + 2),
				width: tile,
				height: tileHeight,
			};
		};
		return { tile, tileHeight, perRow, columns, nodes, place, height };
	}
}

/**
 * The rank under a point, or -1.
 * @param {Placement} placement
 * @param {number} numRanks
 * @param {number} x
 * @param {number} y
 * @returns {number}
 */
export function rankAt(placement, numRanks, x, y) {
	for (let rank = 0; rank < numRanks; rank += 1) {
		const box = placement.place(rank);
		if (x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height) return rank;
	}
	return -1;
}

/**
 * The colour of a place on an axis: neighbours differ, in both themes.
 * @param {number} place
 * @param {number} degree
 * @param {boolean} dark
 * @returns {string}
 */
export function placeColor(place, degree, dark) {
	const hue = degree <= 8 ? (place * 360) / degree + 210 : place * 137.5 + 210;
	return `hsl(${hue % 360} 60% ${dark ? 62 : 46}%)`;
}
