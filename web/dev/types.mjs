// Generates src/api/schema.ts, the types of the app's requests and responses, from docs/openapi.json. It contains only the
// types that src/api/types.ts uses and the types they consist of. With --check it fails if the file is outdated.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import openapi, { astToString } from "openapi-typescript";
import ts from "typescript";

const here = (path) => new URL(`../${path}`, import.meta.url);
const document = JSON.parse(readFileSync(here("../docs/openapi.json"), "utf8"));
const named = readFileSync(here("src/api/types.ts"), "utf8").matchAll(/\bSchemas\["(\w+)"\]/g);

const all = { ...document.components.schemas };
for (const operation of Object.values(document.paths).flatMap(Object.values)) {
  const body = operation.requestBody?.content["application/json"]?.schema;
  if (body) all[operation.operationId] = body;
}
const schemas = {};
const gather = (name) => {
  if (schemas[name] || !all[name]) return; // an unknown name fails in the compiler, where it is used
  const { allOf, examples, ...schema } = all[name];
  // Payload types of events would add all of history. Examples are for authors of requests.
  schemas[name] = allOf && !name.endsWith("Event") ? { allOf, ...schema } : schema;
  for (const [, ref] of JSON.stringify(schemas[name]).matchAll(/"#\/components\/schemas\/(\w+)"/g)) gather(ref);
};
for (const [, name] of named) gather(name);
const sorted = Object.fromEntries(Object.entries(schemas).sort(([a], [b]) => (a < b ? -1 : 1)));

// Members of any type, as in objects without a schema. The library writes "unknown" for an empty schema.
const text = JSON.stringify(sorted).replaceAll('"additionalProperties":{}', '"additionalProperties":{"description":""}');

const json = ts.factory.createTypeReferenceNode("Json");
const nodes = await openapi(
  { openapi: document.openapi, info: document.info, paths: {}, components: { schemas: JSON.parse(text) } },
  { postTransform: (type) => (type.kind === ts.SyntaxKind.UnknownKeyword ? json : undefined), inject: 'import type { Json } from "../lib/json";\n' },
);
const written = `// Written by npm run types from docs/openapi.json. Do not edit.\n${astToString(nodes)}`;

const file = here("src/api/schema.ts");
if (existsSync(file) && readFileSync(file, "utf8") === written) process.exit(0); // a rewritten file would cause a rebuild of the dashboard
if (!process.argv.includes("--check")) writeFileSync(file, written);
else {
  console.error("src/api/schema.ts is outdated (docs/openapi.json changed); run: npm --prefix web run types");
  process.exit(1);
}
