// Drives the official engine (the `@rocicorp/zero` package) over a workload made by workload.py.
//
//   node official.mjs --node-modules DIR --workload DIR --source sqlite|memory [--pipelines a,b] [--repeat N]
//
// One JSON line per pipeline and repeat on standard output. As in zero-cache, what leaves a pipeline is expanded to row
// changes: hydration and every push are followed down all relationships. Operator state is kept in memory (zero-cache
// keeps it in SQLite), the replica is written inside one open transaction: both favour the official side.

import {copyFileSync, mkdtempSync, readFileSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join, resolve} from 'node:path';
import {performance} from 'node:perf_hooks';
import {pathToFileURL} from 'node:url';
import {parseArgs} from 'node:util';

const {values: options} = parseArgs({
  options: {
    'node-modules': {type: 'string'},
    workload: {type: 'string'},
    source: {type: 'string', default: 'sqlite'},
    pipelines: {type: 'string', default: ''},
    repeat: {type: 'string', default: '1'},
  },
});

const zero = resolve(options['node-modules'], '@rocicorp', 'zero');
const load = path => import(pathToFileURL(join(zero, 'out', path)).href);
const {buildPipeline} = await load('zql/src/builder/builder.js');
const {MemorySource} = await load('zql/src/ivm/memory-source.js');
const {MemoryStorage} = await load('zql/src/ivm/memory-storage.js');
const {TableSource} = await load('zqlite/src/table-source.js');
const {Database} = await load('zqlite/src/db.js');
const {createSilentLogContext} = await load('shared/src/logging-test-utils.js');
const {version} = JSON.parse(readFileSync(join(zero, 'package.json'), 'utf8'));

const log = createSilentLogContext();
const logConfig = {format: 'text', level: 'error', ivmSampling: 0, slowHydrateThreshold: 1e9, slowRowThreshold: 1e9};
const NAMES = ['add', 'remove', 'edit'];
const CODES = {add: 0, remove: 1, edit: 2};

const workload = JSON.parse(readFileSync(join(options.workload, 'workload.json'), 'utf8'));

function schemaOf(table) {
  const columns = Object.entries(workload.columns[table]).map(([name, type]) => [name, {type}]);
  return [Object.fromEntries(columns), ['id']];
}

function memorySources() {
  const sources = new Map();
  for (const [table, rows] of Object.entries(workload.rows)) {
    const source = new MemorySource(table, ...schemaOf(table));
    for (const row of rows) for (const _ of source.push([0, row, null]));
    sources.set(table, source);
  }
  return {sources, close() {}};
}

function sqliteSources() {
  const folder = mkdtempSync(join(tmpdir(), 'official-ivm-'));
  const path = join(folder, 'replica.db');
  copyFileSync(join(options.workload, 'replica.db'), path);
  const db = new Database(log, path);
  db.exec('PRAGMA case_sensitive_like = ON');
  db.exec('BEGIN');
  const sources = new Map(
    Object.keys(workload.columns).map(table => [table, new TableSource(log, logConfig, db, table, ...schemaOf(table))]),
  );
  const close = () => {
    db.exec('ROLLBACK');
    db.close();
    rmSync(folder, {recursive: true});
  };
  return {sources, close};
}

// Expands what leaves a pipeline to row changes, counting them by kind.
class RowChanges {
  counts = {add: 0, remove: 0, edit: 0};
  #schema;
  #collected = [];

  constructor(input) {
    this.#schema = input.getSchema();
    input.setOutput(this);
  }

  push(change) {
    this.#collected.push(change);
    return [];
  }

  take() {
    const rows = [];
    for (const change of this.#collected) this.#change(change, this.#schema, rows);
    this.#collected.length = 0;
    return rows;
  }

  node(kind, node, schema, rows) {
    if (node === 'yield') return;
    this.counts[NAMES[kind]]++;
    rows.push({kind, table: schema.tableName, key: node.row.id, row: kind === 1 ? undefined : node.row});
    for (const [name, stream] of Object.entries(node.relationships)) {
      const child = schema.relationships[name];
      for (const inner of stream()) this.node(kind, inner, child, rows);
    }
  }

  #change([kind, node, extra], schema, rows) {
    if (kind === 3) {
      this.#change(extra.change, schema.relationships[extra.relationshipName], rows);
    } else if (kind === 2) {
      this.node(2, {row: node.row, relationships: {}}, schema, rows);
    } else {
      this.node(kind, node, schema, rows);
    }
  }
}

function clock() {
  const {user, system} = process.cpuUsage();
  return {wall: performance.now() / 1000, cpu: (user + system) / 1e6};
}

function hydrate(input, sink) {
  const rows = [];
  for (const node of input.fetch({})) sink.node(0, node, input.getSchema(), rows);
  return rows.length;
}

function advance(sources, sink, changes) {
  for (const {op, table, row, oldRow} of changes) {
    for (const _ of sources.get(table).genPush([CODES[op], row, oldRow ?? null])) sink.take();
    sink.take();
  }
}

function measure(name) {
  const {ast, changes} = workload.pipelines[name];
  const {sources, close} = options.source === 'memory' ? memorySources() : sqliteSources();
  const delegate = {
    enableNotExists: true,
    getSource: table => sources.get(table),
    createStorage: () => new MemoryStorage(),
    decorateInput: input => input,
    decorateFilterInput: input => input,
    decorateSourceInput: input => input,
    addEdge() {},
  };
  const begun = clock();
  const input = buildPipeline(ast, delegate, name);
  const sink = new RowChanges(input);
  const hydrated = hydrate(input, sink);
  const ready = clock();
  sink.counts = {add: 0, remove: 0, edit: 0};
  advance(sources, sink, changes);
  const done = clock();
  close();
  return {
    engine: `@rocicorp/zero ${version}`,
    source: options.source,
    pipeline: name,
    hydrationSeconds: ready.wall - begun.wall,
    hydrationCpuSeconds: ready.cpu - begun.cpu,
    hydratedRows: hydrated,
    changes: changes.length,
    changesPerSecond: changes.length / (done.wall - ready.wall),
    changesPerCpuSecond: changes.length / (done.cpu - ready.cpu),
    rowChanges: sink.counts,
    residentMegabytes: Math.round(process.memoryUsage().rss / 2 ** 20),
  };
}

const wanted = options.pipelines ? options.pipelines.split(',') : Object.keys(workload.pipelines);
for (const name of wanted) {
  for (let round = 0; round < Number(options.repeat); round++) {
    process.stdout.write(JSON.stringify(measure(name)) + '\n');
  }
}
