// The form of a pane: its policies, and the answer in an outage.

import { request } from "./server.js";
import { ALGORITHMS } from "./text.js";

/** The pause after the last key stroke, before the settings are sent. */
const PAUSE_MS = 350;

/** The time without a change of its own after which the form shows what another tab has set meanwhile. */
const QUIET_MS = 700;

/** Settings of a policy that is added. */
const ADDED = { name: "day", algorithm: "fixed_window", amount: 100, period_ms: 60000, burst: null, buckets: null, leased: false };

const MAX_POLICIES = 8;

/** Lets the user change the limits of a pane, and shows which field the server refuses. */
export class Settings {
  #form;
  #pane;
  #timer;
  #inForce;
  #isEdited = false;

  constructor(form, pane) {
    this.#form = form;
    this.#pane = pane;
    const outage = this.#field("outage");
    outage.id = `${pane}-outage`;
    outage.previousElementSibling.htmlFor = outage.id;
    form.addEventListener("input", () => this.#changed(PAUSE_MS));
    form.addEventListener("change", () => this.#changed(0));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.querySelector(".add").addEventListener("click", () => this.#add());
  }

  /** Shows the settings in force. While the user edits, the form stays as it is. */
  show(settings) {
    this.#inForce = settings;
    if (!this.#isEdited) {
      this.#render();
    }
  }

  #render() {
    if (JSON.stringify(this.#inForce) !== JSON.stringify(this.#read())) {
      const policies = this.#inForce.policies.map((policy) => this.#policy(policy));
      this.#form.querySelector(".policies").replaceChildren(...policies);
      this.#field("outage").value = this.#inForce.outage;
    }
    this.#number();
    this.#errors([]);
  }

  #add() {
    const names = this.#read().policies.map((policy) => policy.name);
    let name = ADDED.name;
    for (let at = 2; names.includes(name); at += 1) {
      name = `${ADDED.name}-${at}`;
    }
    const policy = this.#policy({ ...ADDED, name });
    this.#form.querySelector(".policies").append(policy);
    this.#number();
    policy.querySelector("select").focus();
    this.#changed(0);
  }

  #policy(policy) {
    const fieldset = document.getElementById("policy-template").content.cloneNode(true).firstElementChild;
    const algorithm = fieldset.querySelector("[data-setting=algorithm]");
    for (const [value, { name }] of Object.entries(ALGORITHMS)) {
      algorithm.append(new Option(name, value));
    }
    algorithm.value = policy.algorithm;
    algorithm.addEventListener("change", () => this.#fit(fieldset));
    const set = (name, value) => { fieldset.querySelector(`[data-setting=${name}]`).value = value; };
    set("name", policy.name);
    set("amount", policy.amount);
    set("period_ms", policy.period_ms / 1000);
    set("burst", policy.burst ?? policy.amount);
    set("buckets", policy.buckets ?? 10);
    fieldset.querySelector("[data-setting=leased]").checked = policy.leased;
    fieldset.querySelector(".remove").addEventListener("click", () => this.#remove(fieldset));
    this.#fit(fieldset);
    return fieldset;
  }

  #remove(fieldset) {
    fieldset.remove();
    this.#number();
    this.#form.querySelector(".add").focus();
    this.#changed(0);
  }

  /** Shows the fields that the algorithm has. */
  #fit(fieldset) {
    const { has } = ALGORITHMS[fieldset.querySelector("[data-setting=algorithm]").value];
    for (const field of fieldset.querySelectorAll("[data-for]")) {
      field.hidden = field.dataset.for !== has;
    }
  }

  /** Numbers the policies, and gives each field an id of its own. */
  #number() {
    const policies = [...this.#form.querySelectorAll(".policy")];
    policies.forEach((policy, at) => {
      policy.querySelector("legend").textContent = `Policy ${at + 1}`;
      const remove = policy.querySelector(".remove");
      remove.hidden = policies.length === 1;
      remove.setAttribute("aria-label", `Remove policy ${at + 1}`);
      for (const input of policy.querySelectorAll("[data-setting]")) {
        input.id = `${this.#pane}-${at}-${input.dataset.setting}`;
        input.dataset.field = `policies[${at}].${input.dataset.setting}`;
        input.previousElementSibling.htmlFor = input.id;
      }
    });
    this.#form.classList.toggle("several", policies.length > 1);
    this.#form.querySelector(".add").disabled = policies.length >= MAX_POLICIES;
  }

  #read() {
    const policies = [...this.#form.querySelectorAll(".policy")].map((policy) => {
      const text = (name) => policy.querySelector(`[data-setting=${name}]`).value;
      const { has } = ALGORITHMS[text("algorithm")];
      const period = number(text("period_ms"));
      return {
        name: text("name"),
        algorithm: text("algorithm"),
        amount: number(text("amount")),
        period_ms: typeof period === "number" ? Math.round(period * 1000) : period,
        burst: has === "burst" ? number(text("burst")) : null,
        buckets: has === "buckets" ? number(text("buckets")) : null,
        leased: policy.querySelector("[data-setting=leased]").checked,
      };
    });
    return { policies, outage: this.#field("outage").value };
  }

  #changed(pause) {
    clearTimeout(this.#timer);
    this.#isEdited = true;
    this.#timer = setTimeout(() => this.#send(), pause);
  }

  async #send() {
    const timer = this.#timer;
    const { ok, errors } = await request("PUT", `/api/panes/${this.#pane}`, this.#read());
    if (timer !== this.#timer) {
      return;
    }
    this.#errors(errors);
    if (ok) {
      this.#timer = setTimeout(() => {
        this.#isEdited = false;
        this.#render();
      }, QUIET_MS);
    }
  }

  #errors(errors) {
    const unknown = showErrors(this.#form, errors);
    const general = this.#form.querySelector("[data-form-error]");
    general.textContent = unknown.map(({ message }) => message).join(" ");
    general.hidden = unknown.length === 0;
  }

  #field(name) {
    return this.#form.querySelector(`[data-setting=${name}]`);
  }
}

/** Shows each error at its field. Returns the errors whose field is not in the form. */
export function showErrors(form, errors) {
  for (const input of form.querySelectorAll("[aria-invalid]")) {
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-describedby");
  }
  for (const text of form.querySelectorAll("[data-error]")) {
    text.remove();
  }
  return errors.filter(({ field, message }) => {
    const input = [...form.querySelectorAll("[data-field]")].find((input) => input.dataset.field === field);
    if (!input) {
      return true;
    }
    const text = document.createElement("p");
    text.className = "error";
    text.dataset.error = "";
    text.id = `${input.id}-error`;
    text.textContent = message;
    text.setAttribute("role", "alert");
    // In a row of fields the error has a line of its own.
    const row = input.closest(".row");
    if (row) {
      row.append(text);
    } else {
      input.after(text);
    }
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", text.id);
    return false;
  });
}

/** Returns a number. Other text stays text, so that the server refuses it and names it. */
export function number(text) {
  return text.trim() === "" || Number.isNaN(Number(text)) ? text : Number(text);
}
