// The official Zero client over a zero-cache: keeps one query per table materialised and prints what it sees, one JSON line each.
// TEST_CLIENT is JSON {server, userID, tables: {name: {columns: {name: type}, primaryKey, related}}}, where `related` names
// the rows of other tables that come with each row: {name: {column, table, tableColumn}}. When the cache no longer knows
// the client (its state is gone), the page of a real app reloads: here the client is closed and made anew.
import {createRequire} from 'node:module';
import {pathToFileURL} from 'node:url';

const require = createRequire(`${process.env.TEST_NODE_MODULES}/`);
const {Zero, boolean, createBuilder, createSchema, json, number, relationships, string, table} = await import(
  pathToFileURL(require.resolve('@rocicorp/zero')).href
);
const {server, userID, tables} = JSON.parse(process.env.TEST_CLIENT);
const columnTypes = {boolean, json, number, string};

const say = event => process.stdout.write(`${JSON.stringify(event)}\n`);

const declared = Object.fromEntries(
  Object.entries(tables).map(([name, {columns, primaryKey}]) => [
    name,
    table(name)
      .columns(Object.fromEntries(Object.entries(columns).map(([column, type]) => [column, columnTypes[type]().optional()])))
      .primaryKey(...primaryKey),
  ]),
);
const related = Object.entries(tables).filter(([, {related}]) => related);
const schema = createSchema({
  tables: Object.values(declared),
  relationships: related.map(([name, {related}]) =>
    relationships(declared[name], ({many}) =>
      Object.fromEntries(
        Object.entries(related).map(([each, {column, table, tableColumn}]) => [
          each,
          many({sourceField: [column], destField: [tableColumn], destSchema: declared[table]}),
        ]),
      ),
    ),
  ),
  enableLegacyQueries: true,
});
const builder = createBuilder(schema);

function connect() {
  const zero = new Zero({
    server,
    userID,
    schema,
    kvStore: 'mem',
    logLevel: 'error',
    onClientStateNotFound: () => restart('client-state-not-found'),
    onUpdateNeeded: reason => restart(`update-needed: ${reason.type}`),
  });
  zero.connection.state.subscribe(state => say({event: 'connection', state: state.name, reason: state.reason}));
  const views = Object.keys(tables).map(name => {
    const names = Object.keys(tables[name].related ?? {});
    const view = zero.materialize(names.reduce((query, each) => query.related(each), builder[name]));
    view.addListener((rows, result) => say({event: 'rows', table: name, result, rows}));
    return view;
  });
  let restarting = false;
  async function restart(reason) {
    if (restarting) return;
    restarting = true;
    say({event: 'restart', reason});
    views.forEach(view => view.destroy());
    await zero.close();
    connect();
  }
}

process.on('unhandledRejection', error => say({event: 'error', error: String(error)}));
connect();
