// Numbers as a person reads them, on axes and in labels.

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/**
 * Bytes with a binary prefix: 1536 -> "1.5 KiB".
 * @param {number} bytes
 * @returns {string}
 */
export function bytesText(bytes) {
	let value = bytes;
	let prefix = 0;
	while (Math.abs(value) >= 1024 && prefix < BINARY.length - 1) {
		value /= 1024;
		prefix += 1;
	}
	return `${prefix === 0 || Number.isInteger(value) ? value : value.toFixed(1)} ${BINARY[prefix]}`;
}

/**
 * A number with a decimal prefix and at most three digits: 12345 -> "12.3 K".
 * @param {number} value
 * @returns {string}
 */
export function countText(value) {
	for (const [size, name] of /** @type {[number, string][]} */ ([
		[1e12, "T"],
		[1e9, "G"],
		[1e6, "M"],
		[1e3, "K"],
	])) {
		if (Math.abs(value) >= size) return `${short(value / size)} ${name}`;
	}
	return short(value);
}

/**
 * Ticks of bytes at whole multiples of a power of two, at most `count` of them.
 * @param {number} low
 * @param {number} high
 * @param {number} count
 * @returns {number[]}
 */
export function byteTicks(low, high, count) {
	const rough = Math.max((high - low) / Math.max(count, 1), 1);
	const step = 2 ** Math.ceil(Math.log2(rough));
	const ticks = [];
	for (let at = Math.ceil(low / step) * step; at <= high; at += step) ticks.push(at);
	return ticks;
}

/** @param {number} value */
function short(value) {
	return String(Number(value.toPrecision(3)));
}
