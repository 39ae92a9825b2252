// Writes src/api/schema.ts: the shapes of the app's answers and requests, from docs/openapi.json. Only those that
// src/api/types.ts names, and what they are made of: the description holds ten times as much, which this page never
// sees. With --check it fails when the file differs.
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
  if (schemas[name] || !all[name]) return; // a name that is none fails in the compiler, where it is used
  const { allOf, examples, ...schema } = all[name];
  // The payload of each type of event would be all of history; examples are for people who write requests.
  schemas[name] = allOf && !name.endsWith("Event") ? { allOf, ...schema } : schema;
  for (const [, ref] of JSON.stringify(schemas[name]).matchAll(/"#\/components\/schemas\/(\w+)"/g)) gather(ref);
};
for (const [, name] of named) gather(name);
const sorted = Object.fromEntries(Object.entries(schemas).sort(([a], [b]) => (a < b ? -1 : 1)));

// Members of any value, as in objects without a schema of their own. The library writes "unknown" where nothing at all is said.
const text = JSON.stringify(sorted).replaceAll('"additionalProperties":{}', '"additionalProperties":{"description":""}');

const json = ts.factory.createTypeReferenceNode("Json");
const nodes = await openapi(
  { openapi: document.openapi, info: document.info, paths: {}, components: { schemas: JSON.parse(text) } },
  { postTransform: (type) => (type.kind === ts.SyntaxKind.UnknownKeyword ? json : undefined), inject: 'import type { Json } from "../lib/json";\n' },
);
const written = `// Written by npm run types from docs/openapi.json. Do not edit.\n${astToString(nodes)}`;

const file = here("src/api/schema.ts");
if (existsSync(file) && readFileSync(file, "utf8") === written) process.exit(0); // what is written anew makes the dashboard be built anew
if (!process.argv.includes("--check")) writeFileSync(file, written);
else {
  console.error("src/api/schema.ts is not what docs/openapi.json says; run: npm --prefix web run types");
  process.exit(1);
}
