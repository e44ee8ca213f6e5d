// Queries as one writes them, issue.where('status', 'open').limit(10), made into ASTs as they travel.
//
// Pure. A mistake throws a QueryError that says what was expected and where.

import { OPERATORS } from "./query.js";

export class QueryError extends Error {}

const TOKENS = /\s*(?:(=>)|([A-Za-z_]\w*)|(-?\d+(?:\.\d+)?)|'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([.,()[\]]))/y;

function tokens(text) {
  const found = [];
  TOKENS.lastIndex = 0;
  while (text.slice(TOKENS.lastIndex).trim()) {
    const at = TOKENS.lastIndex;
    const match = TOKENS.exec(text);
    if (!match) throw new QueryError(`cannot read “${text.slice(at).trim().slice(0, 12)}”`);
    const [, arrow, name, number, single, double, mark] = match;
    if (name !== undefined) found.push({ kind: "name", value: name });
    else if (number !== undefined) found.push({ kind: "value", value: Number(number) });
    else if (single !== undefined || double !== undefined) {
      found.push({ kind: "value", value: (single ?? double).replace(/\\(.)/g, "$1") });
    } else found.push({ kind: "mark", value: arrow ?? mark });
  }
  return found;
}

const WORDS = { true: true, false: false, null: null };

class Parser {
  constructor(text, schema) {
    this.tokens = tokens(text);
    this.at = 0;
    this.schema = schema;
  }

  peek() {
    return this.tokens[this.at] ?? { kind: "end", value: "the end" };
  }

  take(kind, value) {
    const token = this.peek();
    if (token.kind !== kind || (value !== undefined && token.value !== value)) {
      throw new QueryError(`expected ${value ? `“${value}”` : `a ${kind}`} instead of “${token.value}”`);
    }
    this.at += 1;
    return token.value;
  }

  skip(value) {
    const found = this.peek().kind === "mark" && this.peek().value === value;
    if (found) this.at += 1;
    return found;
  }

  whole() {
    const table = this.take("name");
    if (!this.schema.tables[table]) {
      throw new QueryError(`no table “${table}”; there are ${Object.keys(this.schema.tables).join(" and ")}`);
    }
    const ast = this.chain({ table });
    if (this.peek().kind !== "end") throw new QueryError(`expected “.” instead of “${this.peek().value}”`);
    return ast;
  }

  chain(ast) {
    while (this.skip(".")) {
      const method = this.take("name");
      if (!METHODS[method]) throw new QueryError(`no method “${method}”; there are ${Object.keys(METHODS).join(", ")}`);
      this.take("mark", "(");
      METHODS[method](this, ast);
      this.take("mark", ")");
    }
    return ast;
  }

  value() {
    if (this.skip("[")) {
      const list = [];
      while (!this.skip("]")) {
        list.push(this.value());
        this.skip(",");
      }
      return list;
    }
    const token = this.peek();
    if (token.kind === "name" && token.value in WORDS) {
      this.at += 1;
      return WORDS[token.value];
    }
    return this.take("value");
  }

  column(ast) {
    const column = this.value();
    const known = Object.keys(this.schema.tables[ast.table].columns);
    if (!known.includes(column)) throw new QueryError(`no column “${column}”; ${ast.table} has ${known.join(", ")}`);
    return column;
  }

  // A relationship by name, narrowed by `name => name.…` where that follows.
  related(ast, alias) {
    const name = this.value();
    const found = this.schema.relationships[ast.table]?.[name];
    if (!found) throw new QueryError(`“${ast.table}” is not related to “${name}”`);
    const subquery = { table: found.table, alias: alias + name };
    if (this.skip(",")) {
      const given = this.take("name");
      this.take("mark", "=>");
      this.take("name", given);
      this.chain(subquery);
    }
    return { system: "client", correlation: { parentField: found.from, childField: found.to }, subquery };
  }
}

function narrow(ast, condition) {
  if (!ast.where) ast.where = condition;
  else if (ast.where.type === "and") ast.where.conditions.push(condition);
  else ast.where = { type: "and", conditions: [ast.where, condition] };
}

const METHODS = {
  where(parser, ast) {
    const name = parser.column(ast);
    parser.take("mark", ",");
    let [op, value] = ["=", parser.value()];
    if (parser.skip(",")) {
      [op, value] = [String(value).toUpperCase(), parser.value()];
      if (!OPERATORS.includes(op)) throw new QueryError(`no operator “${op}”; there are ${OPERATORS.join("  ")}`);
    }
    narrow(ast, { type: "simple", op, left: { type: "column", name }, right: { type: "literal", value } });
  },
  whereExists(parser, ast) {
    narrow(ast, { type: "correlatedSubquery", op: "EXISTS", related: parser.related(ast, "zsubq_") });
  },
  related(parser, ast) {
    ast.related = [...(ast.related ?? []), parser.related(ast, "")];
  },
  orderBy(parser, ast) {
    const column = parser.column(ast);
    const direction = parser.skip(",") ? parser.value() : "asc";
    if (!["asc", "desc"].includes(direction)) throw new QueryError(`order “${direction}” is neither asc nor desc`);
    ast.orderBy = [...(ast.orderBy ?? []), [column, direction]];
  },
  limit(parser, ast) {
    ast.limit = parser.value();
    if (!Number.isInteger(ast.limit) || ast.limit < 1) throw new QueryError("limit wants a whole number above 0");
  },
};

// The AST of a query's text; throws QueryError.
export const parseQuery = (text, schema) => new Parser(text, schema).whole();
