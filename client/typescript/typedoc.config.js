/** How TypeDoc makes the API's pages. */

import { OptionDefaults } from "typedoc";

export default {
  entryPoints: ["src/index.ts", "src/node.ts", "src/web.ts"],
  out: "docs",
  excludeInternal: true,
  excludePrivate: true,
  blockTags: [...OptionDefaults.blockTags, "@generated"], // of the generated messages
  validation: { notExported: false }, // options of ops and messages are described where they are used
  treatWarningsAsErrors: true,
};
