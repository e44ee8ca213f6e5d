// Records what the official engine (the `@rocicorp/zero` package) announces for random cases.
//
//   python -m tests.reference_cache.zql.engine.official.cases FIRST_SEED COUNT > cases.jsonl
//   node record.mjs --node-modules DIR cases.jsonl | gzip -9n > recordings.jsonl.gz
//
// Each case is one query over a random world and a few transactions. Rows live in the in-memory source; what leaves the
// pipeline is expanded to row changes after each connection, as zero-cache does. After every transaction the query is
// hydrated afresh on the same sources: the recording ends where the running reference counts differ from that
// (`drifts`), or where the engine throws (`throws`).

import {readFileSync} from 'node:fs';
import {join, resolve} from 'node:path';
import {pathToFileURL} from 'node:url';
import {parseArgs} from 'node:util';

const {values: options, positionals} = parseArgs({options: {'node-modules': {type: 'string'}}, allowPositionals: true});
const zero = resolve(options['node-modules'], '@rocicorp', 'zero');
const load = path => import(pathToFileURL(join(zero, 'out', path)).href);
const {buildPipeline} = await load('zql/src/builder/builder.js');
const {MemorySource} = await load('zql/src/ivm/memory-source.js');
const {MemoryStorage} = await load('zql/src/ivm/memory-storage.js');

const NAMES = ['add', 'remove', 'edit'];
const CODES = {add: 0, remove: 1, edit: 2};

function openSources({schema, rows}) {
  const sources = new Map();
  for (const {name, columns, primaryKey} of Object.values(schema.tables)) {
    const source = new MemorySource(name, columns, primaryKey);
    for (const row of rows[name]) for (const _ of source.push([0, row, null]));
    sources.set(name, source);
  }
  return sources;
}

// A query's pipeline on the sources, and the row changes that have left it.
class Announcer {
  emitted = [];
  #waiting = [];

  constructor(ast, sources) {
    this.input = buildPipeline(ast, {
      enableNotExists: true,
      getSource: table => sources.get(table),
      createStorage: () => new MemoryStorage(),
      decorateInput: input => input,
      decorateFilterInput: input => input,
      decorateSourceInput: input => input,
      addEdge() {},
    }, 'query');
    this.input.setOutput({push: change => (this.#waiting.push(change), [])});
    for (const node of this.input.fetch({})) this.#node(0, node, this.input.getSchema());
  }

  expand() {
    for (const change of this.#waiting.splice(0)) this.#change(change, this.input.getSchema());
  }

  take() {
    return this.emitted.splice(0);
  }

  #change([kind, node, extra], schema) {
    if (schema.system === 'permissions') return;
    if (kind === 3) this.#change(extra.change, schema.relationships[extra.relationshipName]);
    else this.#node(kind, kind === 2 ? {row: node.row, relationships: {}} : node, schema);
  }

  #node(kind, node, schema) {
    if (node === 'yield' || schema.system === 'permissions') return;
    const key = Object.fromEntries(schema.primaryKey.map(column => [column, node.row[column]]));
    this.emitted.push([NAMES[kind], schema.tableName, kind === 1 ? key : node.row, JSON.stringify(key)]);
    for (const [name, children] of Object.entries(node.relationships)) {
      for (const child of children()) this.#node(kind, child, schema.relationships[name]);
    }
  }
}

function count(counts, emitted) {
  for (const [op, table, , key] of emitted) {
    const name = table + key;
    counts.set(name, (counts.get(name) ?? 0) + (op === 'add' ? 1 : op === 'remove' ? -1 : 0));
    if (counts.get(name) === 0) counts.delete(name);
  }
  return counts;
}

function sameCounts(left, right) {
  return left.size === right.size && [...left].every(([name, times]) => right.get(name) === times);
}

const plain = emitted => emitted.map(([op, table, row]) => [op, table, row]);

function record(sample) {
  const sources = openSources(sample);
  const announcer = new Announcer(sample.ast, sources);
  const initial = announcer.take();
  const counts = count(new Map(), initial);
  const steps = [];
  try {
    for (const step of sample.steps) {
      for (const {op, table, row, oldRow} of step) {
        for (const _ of sources.get(table).genPush([CODES[op], row, oldRow ?? null])) announcer.expand();
        announcer.expand();
      }
      const emitted = announcer.take();
      count(counts, emitted);
      const fresh = new Announcer(sample.ast, sources);
      fresh.input.destroy();
      if (!sameCounts(counts, count(new Map(), fresh.take()))) return {initial: plain(initial), steps, drifts: true};
      steps.push(plain(emitted));
    }
  } catch (error) {
    return {initial: plain(initial), steps, throws: String(error.message)};
  }
  return {initial: plain(initial), steps};
}

for (const line of readFileSync(positionals[0], 'utf8').split('\n').filter(Boolean)) {
  const sample = JSON.parse(line);
  process.stdout.write(JSON.stringify({...sample, official: record(sample)}) + '\n');
}
