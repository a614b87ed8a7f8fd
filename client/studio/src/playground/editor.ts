// Editor: CodeMirror with the results below their lines. It lives in a shadow root: there its styles are constructable
// style sheets, which the page's Content-Security-Policy allows, where style elements are refused.
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { HighlightStyle, indentService, LRLanguage, syntaxHighlighting } from "@codemirror/language";
import { type Extension, RangeSetBuilder, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, keymap, lineNumbers, WidgetType } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { parser } from "@lezer/python";
import { MOST_CODE } from "./parse";
import type { Note } from "./workspace";

const INDENT = 4;
const MOST_TEXT = 600; // characters of a note below a line; the lists beside the code have all

const setNotes = StateEffect.define<readonly Note[]>();

/** The notes of a line. All text is a text node: a name or a string of the code is never markup. */
class LineNotes extends WidgetType {
  constructor(private readonly notes: readonly Note[]) {
    super();
  }

  override eq(other: LineNotes): boolean {
    return JSON.stringify(other.notes) === JSON.stringify(this.notes);
  }

  toDOM(): HTMLElement {
    const box = document.createElement("div");
    box.className = "notes";
    for (const { kind, name, text } of this.notes) {
      const line = box.appendChild(document.createElement("div"));
      line.className = `note ${kind}`;
      const whole = kind === "value" && name ? `${name} = ${text}` : text;
      line.textContent = whole.length > MOST_TEXT ? `${whole.slice(0, MOST_TEXT)} …` : whole;
    }
    return box;
  }

  override ignoreEvent(): boolean {
    return true;
  }
}

const notesField = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(shown, transaction) {
    let now = shown.map(transaction.changes);
    for (const effect of transaction.effects) {
      if (effect.is(setNotes)) now = decorated(transaction.state.doc, effect.value);
    }
    return now;
  },
  provide: (field) => EditorView.decorations.from(field),
});

const errorLine = Decoration.line({ class: "error-line" });

function decorated(doc: EditorView["state"]["doc"], notes: readonly Note[]): DecorationSet {
  const byLine = new Map<number, Note[]>();
  for (const note of notes) {
    const line = Math.min(Math.max(1, note.line), doc.lines);
    byLine.set(line, [...(byLine.get(line) ?? []), note]);
  }
  const builder = new RangeSetBuilder<Decoration>();
  for (const [number, all] of [...byLine].sort(([one], [other]) => one - other)) {
    const line = doc.line(number);
    if (all.some((each) => each.kind === "error")) builder.add(line.from, line.from, errorLine);
    builder.add(line.to, line.to, Decoration.widget({ widget: new LineNotes(all), block: true, side: 1 }));
  }
  return builder.finish();
}

const theme = EditorView.theme({
  "&": { backgroundColor: "var(--card)", color: "var(--ink)", fontSize: "0.95rem", minHeight: "8rem" },
  "&.cm-focused": { outline: "3px solid var(--accent)", outlineOffset: "-3px" },
  ".cm-scroller": { fontFamily: "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--ink)", paddingBottom: "1rem" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--card)", color: "var(--faint)", border: "none" },
  ".notes": { padding: "0 0.4rem 0.15rem 0.6rem" },
  ".note": {
    whiteSpace: "pre-wrap",
    overflowWrap: "anywhere",
    borderLeft: "3px solid var(--line)",
    paddingLeft: "0.5rem",
    fontSize: "0.86em",
    color: "var(--faint)",
  },
  ".note.printed": { color: "var(--ink)", borderLeftColor: "var(--accent)" },
  ".note.warning": { color: "var(--ink)", borderLeftColor: "#b87503" },
  ".note.error": { color: "var(--bad)", borderLeftColor: "var(--bad)", fontWeight: "600" },
  ".error-line": { textDecoration: "underline wavy var(--bad)", textUnderlineOffset: "3px" },
});

const highlighting = HighlightStyle.define([
  { tag: [tags.keyword, tags.controlKeyword, tags.definitionKeyword, tags.moduleKeyword], color: "var(--accent)" },
  { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--text-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--text-number)" },
]);

/** A new line is indented as the one before, and deeper after a colon. */
const indenting = indentService.of((context, at) => {
  const line = context.state.doc.lineAt(at);
  const before = line.from > 0 && line.from === at ? context.state.doc.line(line.number - 1) : line;
  const spaces = /^ */.exec(before.text)?.[0].length ?? 0;
  return /:\s*(#.*)?$/.test(before.text.slice(0, Math.max(0, at - before.from))) ? spaces + INDENT : spaces;
});

export interface Editor {
  text(): string;
  setText(code: string): void;
  show(notes: readonly Note[]): void;
  focus(): void;
  close(): void;
}

/** Make an editor in an element. `changed` is called after each change by the user; `run` by Ctrl+Enter. */
export function makeEditor(
  place: HTMLElement,
  code: string,
  label: string,
  changed: (code: string) => void,
  run: () => void,
): Editor {
  const root = place.shadowRoot ?? place.attachShadow({ mode: "open" });
  const parent = document.createElement("div");
  root.replaceChildren(parent);
  let quiet = false;
  const extensions: Extension[] = [
    lineNumbers(),
    history(),
    keymap.of([
      {
        key: "Mod-Enter",
        run: () => {
          run();
          return true;
        },
      },
      ...defaultKeymap,
      ...historyKeymap,
    ]),
    LRLanguage.define({ parser }),
    syntaxHighlighting(highlighting),
    indenting,
    notesField,
    theme,
    EditorView.lineWrapping,
    EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false", autocapitalize: "off" }),
    EditorView.updateListener.of((update) => {
      if (update.docChanged && !quiet) changed(update.state.doc.toString());
    }),
  ];
  const view = new EditorView({ doc: code.slice(0, MOST_CODE), extensions, parent, root });
  return {
    text: () => view.state.doc.toString(),
    setText(text) {
      quiet = true;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text.slice(0, MOST_CODE) } });
      quiet = false;
    },
    show: (notes) => view.dispatch({ effects: setNotes.of(notes) }),
    focus: () => view.focus(),
    close: () => view.destroy(),
  };
}
