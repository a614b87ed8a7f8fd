// Suggestions: the known name that an unknown one probably means, in Python's words.

const MOST_NAME = 40;

/** " Did you mean: 'sigmoid'?", or nothing where no name is near. */
export function suggestion(name: string, known: Iterable<string>): string {
  let best = "";
  let least = name.length < 3 ? 1 : Math.floor(name.length / 3) + 1; // of a short name only the case may differ
  if (name.length > MOST_NAME) return "";
  for (const each of known) {
    if (Math.abs(each.length - name.length) >= least) continue;
    const far = distance(name, each);
    if (far < least) [best, least] = [each, far];
  }
  return best ? ` Did you mean: '${best}'?` : "";
}

/** Levenshtein's distance, with a swap of neighbours as one change and a change of case as half of one. */
export function distance(one: string, other: string): number {
  const cost = (a: string | undefined, b: string | undefined) =>
    a === b ? 0 : a?.toLowerCase() === b?.toLowerCase() ? 0.5 : 1;
  const rows: number[][] = [Array.from({ length: other.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= one.length; i++) {
    const row = [i];
    for (let j = 1; j <= other.length; j++) {
      const [above, left, diagonal] = [rows[i - 1]?.[j] ?? 0, row[j - 1] ?? 0, rows[i - 1]?.[j - 1] ?? 0];
      let least = Math.min(above + 1, left + 1, diagonal + cost(one[i - 1], other[j - 1]));
      if (i > 1 && j > 1 && one[i - 1] === other[j - 2] && one[i - 2] === other[j - 1])
        least = Math.min(least, (rows[i - 2]?.[j - 2] ?? 0) + 1);
      row.push(least);
    }
    rows.push(row);
  }
  return rows.at(-1)?.at(-1) ?? 0;
}
