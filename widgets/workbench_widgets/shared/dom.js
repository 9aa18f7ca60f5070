// Small helpers to build elements. Text only ever goes in as text, never as markup.

/**
 * Make an element.
 * @param {string} tag
 * @param {Record<string, string>} [attributes]
 * @param {...(Node|string)} children
 * @returns {HTMLElement}
 */
export function element(tag, attributes = {}, ...children) {
	const made = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes)) {
		made.setAttribute(name, value);
	}
	made.append(...children);
	return made;
}

/**
 * Set an element's text if it differs, so that unchanged parts cost no layout.
 * @param {Element} target
 * @param {string} text
 */
export function setText(target, text) {
	if (target.textContent !== text) target.textContent = text;
}

/**
 * Keep as many children as there are items, made once and updated in place.
 * @template T
 * @param {HTMLElement} parent
 * @param {T[]} items
 * @param {() => HTMLElement} make
 * @param {(child: HTMLElement, item: T) => void} update
 */
export function keepChildren(parent, items, make, update) {
	while (parent.children.length > items.length) parent.lastElementChild?.remove();
	while (parent.children.length < items.length) parent.append(make());
	items.forEach((item, index) => {
		update(/** @type {HTMLElement} */ (parent.children[index]), item);
	});
}

/**
 * Call `draw` at most once per frame, and only while the element is on screen.
 * @param {HTMLElement} target
 * @param {() => void} draw
 * @returns {{request: () => void, stop: () => void}}
 */
export function onFrame(target, draw) {
	let wanted = false;
	let visible = true;
	let frame = 0;
	const run = () => {
		frame = 0;
		if (!wanted || !visible) return;
		wanted = false;
		draw();
	};
	const schedule = () => {
		if (!frame && wanted && visible) frame = requestAnimationFrame(run);
	};
	const observer = new IntersectionObserver((entries) => {
		visible = entries[entries.length - 1].isIntersecting;
		schedule();
	});
	observer.observe(target);
	return {
		request() {
			wanted = true;
			schedule();
		},
		stop() {
			observer.disconnect();
			if (frame) cancelAnimationFrame(frame);
			wanted = false;
		},
	};
}
