// Answers SQL over zero-cache's replica, which only its own SQLite build can open (journal mode wal2).
// One JSON line in ({path, sql, parameters}), one JSON line out ({rows} or {error}). Values carry their storage class as the
// first letter, since JSON knows neither 64-bit integers nor blobs.
import {createRequire} from 'node:module';
import {createInterface} from 'node:readline';

const require = createRequire(`${process.env.TEST_NODE_MODULES}/`);
const Database = require('@rocicorp/zero-sqlite3');

function tagged(value) {
  if (value === null) return null;
  if (typeof value === 'bigint') return `i${value}`;
  if (typeof value === 'number') return `r${Object.is(value, -0) ? '-0' : value}`;
  if (typeof value === 'string') return `s${value}`;
  return `b${Buffer.from(value).toString('hex')}`;
}

function answer({path, sql, parameters}) {
  const db = new Database(path, {readonly: true, fileMustExist: true});
  try {
    return {rows: db.prepare(sql).raw(true).safeIntegers(true).all(...parameters).map(row => row.map(tagged))};
  } finally {
    db.close();
  }
}

for await (const line of createInterface({input: process.stdin})) {
  let reply;
  try {
    reply = answer(JSON.parse(line));
  } catch (e) {
    reply = {error: String(e)};
  }
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}
