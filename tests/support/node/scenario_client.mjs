// Official Zero clients that do what they are told: one JSON command per line in, one JSON event per line out.
// Every text frame of every socket is an event too, so that what two caches say can be compared.
// TEST_CLIENT is JSON {server}. Commands: open, query, drop, mutate, connect, close.
import {createRequire} from 'node:module';
import {createInterface} from 'node:readline';
import {pathToFileURL} from 'node:url';

const require = createRequire(`${process.env.TEST_NODE_MODULES}/`);
const {
  Zero, boolean, createBuilder, createSchema, defineMutator, defineMutators, defineQueries, defineQuery, number,
  relationships, string, table,
} = await import(pathToFileURL(require.resolve('@rocicorp/zero')).href);
const {server} = JSON.parse(process.env.TEST_CLIENT);
const say = event => process.stdout.write(`${JSON.stringify(event)}\n`);

const OfficialSocket = globalThis.WebSocket;
globalThis.WebSocket = class extends OfficialSocket {
  constructor(url, protocols) {
    super(url, protocols);
    const clientID = new URL(url).searchParams.get('clientID');
    const cookie = new URL(url).searchParams.get('baseCookie');
    say({event: 'socket', clientID, cookie});
    this.addEventListener('message', ({data}) => say({event: 'frame', clientID, message: JSON.parse(data)}));
    this.addEventListener('close', ({code}) => say({event: 'socket-closed', clientID, code}));
  }
};

const users = table('users').columns({id: string(), name: string()}).primaryKey('id');
const issues = table('issues')
  .columns({id: string(), title: string(), open: boolean(), owner: string().from('owner_id'), modified: number()})
  .primaryKey('id');
const comments = table('comments')
  .columns({id: string(), issue_id: string(), author_id: string(), body: string()})
  .primaryKey('id');
const labels = table('labels').columns({id: string(), name: string()}).primaryKey('id');
const issueLabels = table('issue_labels').columns({issue_id: string(), label_id: string()}).primaryKey('issue_id', 'label_id');
const misfit = table('labels').columns({id: string(), colour: string()}).primaryKey('id');

const relations = [
  relationships(issues, ({many, one}) => ({
    comments: many({sourceField: ['id'], destField: ['issue_id'], destSchema: comments}),
    owner_user: one({sourceField: ['owner'], destField: ['id'], destSchema: users}),
    labels: many(
      {sourceField: ['id'], destField: ['issue_id'], destSchema: issueLabels},
      {sourceField: ['label_id'], destField: ['id'], destSchema: labels},
    ),
  })),
  relationships(comments, ({one}) => ({
    author: one({sourceField: ['author_id'], destField: ['id'], destSchema: users}),
  })),
  relationships(users, ({many}) => ({
    issues: many({sourceField: ['id'], destField: ['owner'], destSchema: issues}),
  })),
];
const schemas = {
  fitting: createSchema({tables: [users, issues, comments, labels, issueLabels], relationships: relations, enableLegacyQueries: true}),
  misfit: createSchema({tables: [misfit], enableLegacyQueries: true}),
};
const q = createBuilder(schemas.fitting);

const named = defineQueries({
  openByOwner: defineQuery(({args: {owner}}) => q.issues.where('open', true).where('owner', owner)),
  unusedLabels: defineQuery(() => q.labels),
  nobodyKnows: defineQuery(() => q.labels),
});
const queries = {
  open: () => q.issues.where('open', true),
  deep: () => q.issues.related('comments', c => c.related('author', a => a.related('issues'))),
  discussed: () => q.issues.whereExists('comments', c => c.where('body', 'LIKE', '%bug%')),
  either: () => q.issues.where(({cmp, or}) => or(cmp('open', true), cmp('owner', 'u2'), cmp('title', 'ILIKE', 'ISSUE 1%'))),
  labelled: () => q.issues.related('labels'),
  newest: () => q.issues.orderBy('modified', 'desc').limit(3),
  following: ({row}) => q.issues.orderBy('modified', 'asc').start(row).limit(3),
  single: () => q.issues.where('id', 'i3').one(),
  people: () => q.users,
  colours: () => createBuilder(schemas.misfit).labels,
  openByOwner: args => named.openByOwner(args),
  unusedLabels: () => named.unusedLabels(),
  nobodyKnows: () => named.nobodyKnows(),
  misused: () => named.openByOwner({owner: 7}),
};
const mutators = defineMutators({
  issue: {
    setTitle: defineMutator(({tx, args: {id, title}}) => tx.mutate.issues.update({id, title})),
    nobodyKnows: defineMutator(({tx, args: {id, title}}) => tx.mutate.issues.update({id, title})),
  },
});

const clients = new Map();
const commands = {
  async open({client, schema = 'fitting', ...options}) {
    const zero = new Zero({
      server, schema: schemas[schema], mutators, kvStore: 'mem', logLevel: 'error', ...options,
      onClientStateNotFound: () => say({event: 'state-not-found', client}),
      onUpdateNeeded: reason => say({event: 'update-needed', client, reason: reason.type}),
    });
    zero.connection.state.subscribe(({name, reason}) => say({event: 'connection', client, state: name, reason}));
    clients.set(client, {zero, views: new Map()});
    say({event: 'opened', client, clientID: zero.clientID, groupID: await zero.clientGroupID});
  },
  query({client, query, args, ttl}) {
    const {zero, views} = clients.get(client);
    const view = zero.materialize(queries[query](args), ttl === undefined ? undefined : {ttl});
    views.set(query, view);
    view.addListener((rows, result) => say({event: 'rows', client, query, result, rows: rows ?? null}));
  },
  drop({client, query}) {
    const {views} = clients.get(client);
    views.get(query).destroy();
    views.delete(query);
  },
  mutate({client, id, title, number, mutator = 'setTitle'}) {
    const {zero} = clients.get(client);
    const result = zero.mutate(mutators.issue[mutator]({id, title}));
    const tell = side => outcome => say({event: 'mutated', client, number, side, outcome});
    result.client.then(tell('client'));
    result.server.then(tell('server'));
  },
  connect({client, auth}) {
    void clients.get(client).zero.connection.connect(auth === undefined ? undefined : {auth});
  },
  async close({client}) {
    await clients.get(client).zero.close();
    clients.delete(client);
  },
};

process.on('unhandledRejection', error => say({event: 'error', error: String(error?.stack ?? error)}));
for await (const line of createInterface({input: process.stdin})) {
  const {do: what, ...command} = JSON.parse(line);
  try {
    await commands[what](command);
  } catch (error) {
    say({event: 'error', error: String(error?.stack ?? error)});
  }
}
process.exit(0);
