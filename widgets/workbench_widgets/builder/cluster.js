// The cluster as a canvas: nodes as boxes, devices as tiles with their memory.

import { element, onFrame, setText } from "../shared/dom.js";
import { coordinates, groupOf, placeColor, placeTiles, rankAt, ranksText } from "./grid.js";

/** @typedef {any} Picture */

const PART_COLORS = {
	weights: "--wb-c0",
	gradients: "--wb-c1",
	optimizer: "--wb-c2",
	activations: "--wb-c3",
	buffers: "--wb-c5",
	workspace: "--wb-c6",
};

/**
 * @param {() => Picture} picture What to show now.
 * @param {() => string} axisInHand The axis that colours the tiles.
 */
export function makeCluster(picture, axisInHand) {
	const canvas = /** @type {HTMLCanvasElement} */ (
		element("canvas", { class: "wb-cluster", tabindex: "0", role: "application" })
	);
	const words = element("p", { class: "wb-rank-words", "aria-live": "polite" });
	const legend = element("p", { class: "wb-legend" });
	const node = element("div", { class: "wb-cluster-box" }, canvas, words, legend);
	let looked = 0;
	let hovered = -1;
	/** @type {ReturnType<typeof placeTiles>|null} */
	let placement = null;
	const frame = onFrame(node, () => {
		placement = draw(canvas, picture(), axisInHand(), hovered >= 0 ? hovered : looked);
		setText(words, rankWords(picture(), hovered >= 0 ? hovered : looked));
		canvas.setAttribute("aria-label", `Ranks on the cluster. ${words.textContent}`);
	});
	const resize = new ResizeObserver(() => frame.request());
	resize.observe(node);
	canvas.addEventListener("pointermove", (event) => {
		const at = placement ? rankAt(placement, picture().numRanks, event.offsetX, event.offsetY) : -1;
		if (at !== hovered) {
			hovered = at;
			frame.request();
		}
	});
	canvas.addEventListener("pointerleave", () => {
		hovered = -1;
		frame.request();
	});
	canvas.addEventListener("pointerdown", () => {
		if (hovered >= 0) looked = hovered;
	});
	canvas.addEventListener("keydown", (event) => {
		const moved = moveBy(event.key, placement, picture());
		if (moved === 0) return;
		event.preventDefault();
		looked = Math.max(0, Math.min(picture().numRanks - 1, looked + moved));
		hovered = -1;
		frame.request();
	});
	return {
		node,
		update() {
			looked = Math.min(looked, picture().numRanks - 1);
			const names = Object.keys(PART_COLORS).filter((name) =>
				picture().kinds.some((/** @type {any} */ kind) => kind.parts.some((/** @type {any} */ part) => part.name === name)),
			);
			legend.replaceChildren(...names.map((name) => element("span", { "data-part": name }, name)));
			frame.request();
		},
		stop() {
			resize.disconnect();
			frame.stop();
		},
	};
}

/**
 * How many ranks an arrow key moves on.
 * @param {string} key
 * @param {ReturnType<typeof placeTiles>|null} placement
 * @param {Picture} picture
 */
function moveBy(key, placement, picture) {
	const row = placement?.perRow ?? 1;
	const steps = /** @type {Record<string, number>} */ ({
		ArrowRight: 1,
		ArrowLeft: -1,
		ArrowDown: row,
		ArrowUp: -row,
		PageDown: picture.ranksPerNode,
		PageUp: -picture.ranksPerNode,
	});
	return steps[key] ?? 0;
}

/**
 * A rank in words: where it lies, what it holds, whom it talks to.
 * @param {Picture} picture
 * @param {number} rank
 * @returns {string}
 */
export function rankWords(picture, rank) {
	const axes = picture.axes.filter((/** @type {any} */ axis) => axis.degree > 1);
	const place = coordinates(axes, rank);
	const where = axes.map((/** @type {any} */ axis) => `${axis.name} ${place[axis.name]}`).join(", ");
	const kind = picture.kinds[picture.kindOf[rank]];
	const partners = axes
		.map((/** @type {any} */ axis) => `${axis.name}: ranks ${ranksText(groupOf(axes, rank, axis.name))}`)
		.join("; ");
	const node = Math.floor(rank / picture.ranksPerNode);
	return `Rank ${rank} on node ${node}${where && ` (${where})`}: ${kind.text}. ${partners}`;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Picture} picture
 * @param {string} axisName
 * @param {number} rank The one whose partners light up.
 */
function draw(canvas, picture, axisName, rank) {
	const box = /** @type {HTMLElement} */ (canvas.parentElement);
	const style = getComputedStyle(canvas);
	const color = (/** @type {string} */ name) => style.getPropertyValue(name).trim() || "gray";
	const width = Math.max(box.clientWidth, 120);
	const placement = placeTiles(picture.numRanks, picture.ranksPerNode, width);
	const scale = window.devicePixelRatio || 1;
	canvas.width = width * scale;
	canvas.height = placement.height * scale;
	canvas.style.height = `${placement.height}px`;
	const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
	context.scale(scale, scale);
	const ink = color("--wb-ink-soft");
	const dark = isDark(ink);
	drawNodes(context, placement, color("--wb-line"), ink);
	const axes = picture.axes.filter((/** @type {any} */ axis) => axis.degree > 1);
	const inHand = axes.find((/** @type {any} */ axis) => axis.name === axisName);
	const partners = new Set(axes.flatMap((/** @type {any} */ axis) => groupOf(axes, rank, axis.name)));
	const parts = Object.fromEntries(Object.entries(PART_COLORS).map(([name, css]) => [name, color(css)]));
	const paints = { paper: color("--wb-paper-2"), bad: color("--wb-bad"), ink: color("--wb-ink"), label: dark ? "#111" : "#fff", parts };
	for (let at = 0; at < picture.numRanks; at += 1) {
		const place = inHand ? coordinates(axes, at)[axisName] : 0;
		drawTile(context, placement.place(at), picture.kinds[picture.kindOf[at]], picture.capacity, paints, {
			strip: inHand ? placeColor(place, inHand.degree, dark) : "",
			label: inHand ? String(place) : "",
			frame: at === rank ? 3 : partners.has(at) ? 1.5 : 0,
		});
	}
	return placement;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {ReturnType<typeof placeTiles>} placement
 * @param {string} line
 * @param {string} ink
 */
function drawNodes(context, placement, line, ink) {
	context.strokeStyle = line;
	context.fillStyle = ink;
	context.font = "11px system-ui, sans-serif";
	placement.nodes.forEach((node, index) => {
		context.strokeRect(node.x + 0.5, node.y + 0.5, node.width - 1, node.height - 1);
		if (placement.tile >= 26) context.fillText(`node ${index}`, node.x + 6, node.y + 14);
	});
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {import("./grid.js").Box} box
 * @param {any} kind
 * @param {number} capacity
 * @param {{paper: string, bad: string, ink: string, label: string, parts: Record<string, string>}} paints
 * @param {{strip: string, label: string, frame: number}} look
 */
function drawTile(context, box, kind, capacity, paints, look) {
	context.fillStyle = paints.paper;
	context.fillRect(box.x, box.y, box.width, box.height);
	const strip = look.strip ? Math.max(4, Math.min(16, box.height * 0.26)) : 0;
	const room = box.height - strip;
	let bottom = box.y + box.height;
	for (const part of kind.parts) {
		const height = Math.min((part.bytes / capacity) * room, bottom - (box.y + strip));
		context.fillStyle = paints.parts[part.name] ?? paints.ink;
		context.fillRect(box.x, bottom - height, box.width, height);
		bottom -= height;
	}
	if (strip) {
		context.fillStyle = look.strip;
		context.fillRect(box.x, box.y, box.width, strip);
		if (box.width >= 24) {
			context.fillStyle = paints.label;
			context.font = "bold 11px system-ui, sans-serif";
			context.textAlign = "center";
			context.fillText(look.label, box.x + box.width / 2, box.y + strip - 4);
			context.textAlign = "start";
		}
	}
	if (!kind.fits) hatch(context, { ...box, y: box.y + strip, height: room }, paints.bad);
	if (look.frame) {
		context.strokeStyle = paints.ink;
		context.lineWidth = look.frame;
		const half = look.frame / 2;
		context.strokeRect(box.x + half, box.y + half, box.width - look.frame, box.height - look.frame);
		context.lineWidth = 1;
	}
}

/**
 * Red lines across a tile that holds too much.
 * @param {CanvasRenderingContext2D} context
 * @param {import("./grid.js").Box} box
 * @param {string} color
 */
function hatch(context, box, color) {
	context.save();
	context.beginPath();
	context.rect(box.x, box.y, box.width, box.height);
	context.clip();
	context.strokeStyle = color;
	context.lineWidth = 2;
	const step = Math.max(5, box.width / 5);
	context.beginPath();
	for (let x = -box.height; x < box.width; x += step) {
		context.moveTo(box.x + x, box.y + box.height);
		context.lineTo(box.x + x + box.height, box.y);
	}
	context.stroke();
	context.strokeRect(box.x + 1, box.y + 1, box.width - 2, box.height - 2);
	context.restore();
}

/** @param {string} ink */
function isDark(ink) {
	const numbers = ink.startsWith("#")
		? [1, 3, 5].map((at) => Number.parseInt(ink.slice(at, at + 2), 16))
		: (ink.match(/[\d.]+/g) ?? ["0"]).slice(0, 3).map(Number);
	return numbers.reduce((sum, value) => sum + value, 0) / numbers.length > 128;
}
