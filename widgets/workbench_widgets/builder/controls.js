// What is set by hand: degrees, order, settings; with the mouse, by touch, by keyboard.

import { element, keepChildren, setText } from "../shared/dom.js";

/**
 * @param {(action: object) => void} act
 * @param {(axis: string) => void} take Takes an axis in hand: it colours the tiles.
 */
export function makeAxes(act, take) {
	const list = element("ul", { class: "wb-axes", "aria-label": "Axes, outermost first" });
	/** @type {any} */
	let shown = null;
	/** @type {HTMLElement|null} */
	let dragged = null;
	/** The axis that was moved by keyboard: the focus goes with it. */
	let moved = "";

	const rowOf = (/** @type {Event} */ event) =>
		/** @type {HTMLElement|null} */ (/** @type {HTMLElement} */ (event.target).closest("li[data-axis]"));
	const axisOf = (/** @type {HTMLElement} */ row) =>
		shown.axes.find((/** @type {any} */ axis) => axis.name === row.dataset.axis);
	const move = (/** @type {string} */ name, /** @type {number} */ to) => {
		const order = shown.axes.map((/** @type {any} */ axis) => axis.name);
		const from = order.indexOf(name);
		if (to < 0 || to >= order.length || to === from) return;
		order.splice(to, 0, ...order.splice(from, 1));
		act({ k: "order", order });
	};

	list.addEventListener("click", (event) => {
		const row = rowOf(event);
		if (!row) return;
		const axis = axisOf(row);
		take(axis.name);
		const button = /** @type {HTMLElement} */ (event.target).closest("button");
		if (button?.dataset.step) act({ k: "degree", axis: axis.name, degree: next(axis, Number(button.dataset.step)) });
		if (button?.dataset.fills !== undefined) act({ k: "fill", axis: axis.name });
	});
	list.addEventListener("focusin", (event) => {
		const row = rowOf(event);
		if (row?.dataset.axis) take(row.dataset.axis);
	});
	list.addEventListener("keydown", (event) => {
		const row = rowOf(event);
		if (!row) return;
		const axis = axisOf(row);
		const step = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }[event.key];
		if (!step) return;
		const isSpin = /** @type {HTMLElement} */ (event.target).getAttribute("role") === "spinbutton";
		if (event.altKey && event.key.match(/Up|Down/)) {
			const at = shown.axes.indexOf(axis);
			moved = axis.name;
			move(axis.name, at - step);
		} else if (isSpin) {
			act({ k: "degree", axis: axis.name, degree: next(axis, step) });
		} else {
			return;
		}
		event.preventDefault();
	});
	// Pointer events, not HTML5 drag: they work by touch too.
	list.addEventListener("pointerdown", (event) => {
		if (!(/** @type {HTMLElement} */ (event.target).classList.contains("wb-grip"))) return;
		dragged = rowOf(event);
		dragged?.setAttribute("data-dragged", "");
		list.setPointerCapture(event.pointerId);
		event.preventDefault();
	});
	list.addEventListener("pointerup", (event) => {
		if (!dragged) return;
		const rows = /** @type {HTMLElement[]} */ ([...list.children]);
		const to = rows.findIndex((row) => event.clientY < row.getBoundingClientRect().bottom);
		dragged.removeAttribute("data-dragged");
		move(String(dragged.dataset.axis), to < 0 ? rows.length - 1 : to);
		dragged = null;
	});
	return {
		node: list,
		/** @param {any} picture @param {string} inHand */
		update(picture, inHand) {
			shown = picture;
			keepChildren(list, picture.axes, makeAxisRow, (row, axis) => updateAxisRow(row, axis, inHand));
			const name = moved;
			moved = "";
			if (name) {
				/** @type {HTMLElement|null} */ (list.querySelector(`[data-axis="${name}"] .wb-degree`))?.focus();
			}
		},
	};
}

/**
 * The next offered degree up or down; the same where there is none.
 * @param {{degree: number, options: number[]}} axis
 * @param {number} step
 */
export function next(axis, step) {
	const offered = axis.options.filter((degree) => (step > 0 ? degree > axis.degree : degree < axis.degree));
	if (!offered.length) return axis.degree;
	return step > 0 ? Math.min(...offered) : Math.max(...offered);
}

function makeAxisRow() {
	const button = (/** @type {string} */ text, /** @type {Record<string, string>} */ attributes) =>
		element("button", { type: "button", ...attributes }, text);
	return element(
		"li",
		{},
		element("span", { class: "wb-grip", title: "Drag to change the order", "aria-hidden": "true" }, "\u2630"),
		element("span", { class: "wb-axis-name" }, element("b"), element("small")),
		button("\u2212", { "data-step": "-1", tabindex: "-1" }),
		element("span", { class: "wb-degree", role: "spinbutton", tabindex: "0" }),
		button("+", { "data-step": "1", tabindex: "-1" }),
		button("rest", { "data-fills": "", title: "Let this axis take the ranks that the others leave" }),
	);
}

/**
 * @param {HTMLElement} row
 * @param {any} axis
 * @param {string} inHand
 */
function updateAxisRow(row, axis, inHand) {
	const [, name, less, degree, more, fills] = /** @type {HTMLElement[]} */ ([...row.children]);
	row.dataset.axis = axis.name;
	row.toggleAttribute("data-in-hand", axis.name === inHand);
	setText(name.children[0], axis.name);
	setText(name.children[1], axis.meaning);
	setText(degree, String(axis.degree));
	degree.setAttribute("aria-label", `${axis.name}, ${axis.meaning}; Alt and arrows move it in the order`);
	degree.setAttribute("aria-valuenow", String(axis.degree));
	degree.setAttribute("aria-valuemin", String(Math.min(...axis.options)));
	degree.setAttribute("aria-valuemax", String(Math.max(...axis.options)));
	degree.setAttribute("aria-readonly", String(axis.fills));
	less.setAttribute("aria-label", `less ${axis.name}`);
	more.setAttribute("aria-label", `more ${axis.name}`);
	/** @type {HTMLButtonElement} */ (less).disabled = axis.fills || next(axis, -1) === axis.degree;
	/** @type {HTMLButtonElement} */ (more).disabled = axis.fills || next(axis, 1) === axis.degree;
	fills.setAttribute("aria-pressed", String(axis.fills));
}

/** @param {(action: object) => void} act */
export function makeChoices(act) {
	const list = element("div", { class: "wb-choices" });
	list.addEventListener("change", (event) => {
		const select = /** @type {HTMLSelectElement} */ (event.target);
		act({ k: "choose", name: select.name, value: select.value });
	});
	const make = () => element("label", {}, element("span"), element("select"));
	return {
		node: list,
		/** @param {any} picture */
		update(picture) {
			keepChildren(list, picture.choices, make, (label, choice) => {
				setText(label.children[0], choice.label);
				const select = /** @type {HTMLSelectElement} */ (label.children[1]);
				select.name = choice.name;
				keepChildren(select, choice.choices, () => element("option"), (option, value) => {
					setText(option, value);
					option.setAttribute("value", value);
				});
				select.value = choice.value;
			});
		},
	};
}

/** @param {(action: object) => void} act */
export function makeBar(act) {
	const button = (/** @type {string} */ text, /** @type {object} */ action) => {
		const made = /** @type {HTMLButtonElement} */ (element("button", { type: "button" }, text));
		made.addEventListener("click", () => act(action));
		return made;
	};
	const undo = button("Undo", { k: "undo" });
	const redo = button("Redo", { k: "redo" });
	const pin = button("Pin to compare", { k: "pin" });
	const node = element("div", { class: "wb-bar" }, undo, redo, button("Reset", { k: "reset" }), pin);
	return {
		node,
		/** @param {any} picture */
		update(picture) {
			undo.disabled = !picture.canUndo;
			redo.disabled = !picture.canRedo;
		},
	};
}

/** Layout as code and as TOML, each with a button that copies it. */
export function makeTexts() {
	const part = (/** @type {string} */ name) => {
		const text = element("pre");
		const copy = element("button", { type: "button" }, `Copy ${name}`);
		const said = element("span", { role: "status" });
		copy.addEventListener("click", async () => {
			try {
				await navigator.clipboard.writeText(text.textContent ?? "");
				setText(said, "copied");
			} catch {
				getSelection()?.selectAllChildren(text);
				setText(said, "selected: press Ctrl-C");
			}
		});
		return { node: element("div", { class: "wb-text" }, text, copy, said), text };
	};
	const code = part("code");
	const toml = part("TOML");
	return {
		node: element("details", { class: "wb-texts" }, element("summary", {}, "As code and TOML"), code.node, toml.node),
		/** @param {any} picture */
		update(picture) {
			setText(code.text, picture.code);
			setText(toml.text, picture.toml);
		},
	};
}
