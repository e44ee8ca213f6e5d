// Runs mutations through the official push processor against a Postgres database, as an application's server would.
// TEST_PUSH holds {url, clientGroupID, clientID, mutations: [{id, name, args}]}; the response is printed as JSON.
import {createRequire} from 'node:module';
import {pathToFileURL} from 'node:url';

const require = createRequire(`${process.env.TEST_NODE_MODULES}/`);
const load = name => import(pathToFileURL(require.resolve(name)).href);
const {createSchema, number, table} = await load('@rocicorp/zero');
const {PushProcessor, ApplicationError} = await load('@rocicorp/zero/server');
const {zeroPostgresJS} = await load('@rocicorp/zero/server/adapters/postgresjs');
const {default: postgres} = await load('postgres');

const asked = JSON.parse(process.env.TEST_PUSH);
const counter = table('counter').columns({id: number(), n: number()}).primaryKey('id');
const schema = createSchema({tables: [counter]});
const sql = postgres(asked.url, {onnotice: () => {}});
const mutators = {
  counter: {
    set: (tx, {id, n}) => tx.mutate.counter.upsert({id, n}),
    refuse: () => Promise.reject(new ApplicationError('refused', {details: {code: 7}})),
  },
};
const body = {
  clientGroupID: asked.clientGroupID,
  pushVersion: 1,
  requestID: 'request',
  timestamp: Date.now(),
  mutations: asked.mutations.map(({id, name, args}) => ({
    type: 'custom', id, clientID: asked.clientID, name, args: [args], timestamp: Date.now(),
  })),
};
const processor = new PushProcessor(zeroPostgresJS(schema, sql), undefined, 'error');
console.log(JSON.stringify(await processor.process(mutators, {schema: 'zero_0', appID: 'zero'}, body)));
await sql.end();
