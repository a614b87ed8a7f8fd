{
  "$schema": "https://typedoc.org/schema.json",
  "entryPoints": ["src/index.ts", "src/node.ts", "src/web.ts"],
  "out": "docs",
  "excludeInternal": true,
  "excludePrivate": true
}
