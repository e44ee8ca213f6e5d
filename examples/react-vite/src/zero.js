// What the client knows of the application: its table, its named queries, and mutators as they are applied at once.
// server.py has the same names, and the last word.

import {
  boolean, createBuilder, createSchema, defineMutator, defineMutators, defineQueries, defineQuery, number, string, table,
} from "@rocicorp/zero";

const todo = table("todo")
  .columns({ id: string(), title: string(), done: boolean(), created: number() })
  .primaryKey("id");

export const schema = createSchema({ tables: [todo] });
const q = createBuilder(schema);

export const queries = defineQueries({
  todos: defineQuery(() => q.todo.orderBy("created", "asc")),
});

export const mutators = defineMutators({
  todo: {
    add: defineMutator(({ tx, args }) => tx.mutate.todo.insert({ ...args, done: false })),
    setDone: defineMutator(({ tx, args: { id, done } }) => tx.mutate.todo.update({ id, done })),
  },
});
