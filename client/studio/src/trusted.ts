// Trusted: the one policy of Trusted Types. It lets the page start workers from files of its own origin.

interface Policy {
  createScriptURL(url: string): string;
}
const types = (globalThis as { trustedTypes?: { createPolicy(name: string, rules: Policy): Policy } }).trustedTypes;
const rules: Policy = {
  createScriptURL(url) {
    if (new URL(url, location.href).origin !== location.origin) throw new TypeError("a script of another origin");
    return url;
  },
};
const policy = types ? types.createPolicy("studio", rules) : rules;

/** A worker from a file of this origin. */
export function startWorker(url: string): Worker {
  return new Worker(policy.createScriptURL(url), { type: "module" });
}
