// Queries over the rows a client holds: the same query the cache runs, evaluated again over the optimistic rows.
//
// A query is an AST as it travels (table, where, related, orderBy, limit). Pure: rows in, rows out.

const compare = (a, b) => (a === b ? 0 : a === null ? -1 : b === null ? 1 : a < b ? -1 : 1);

function like(pattern, flags) {
  const source = pattern.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/%/g, ".*").replace(/_/g, ".");
  return new RegExp(`^${source}$`, `s${flags}`);
}

const operators = {
  "=": (a, b) => a !== null && a === b,
  "!=": (a, b) => a !== null && b !== null && a !== b,
  "IS": (a, b) => a === b,
  "IS NOT": (a, b) => a !== b,
  "<": (a, b) => a !== null && b !== null && a < b,
  ">": (a, b) => a !== null && b !== null && a > b,
  "<=": (a, b) => a !== null && b !== null && a <= b,
  ">=": (a, b) => a !== null && b !== null && a >= b,
  "LIKE": (a, b) => a !== null && like(b, "").test(a),
  "NOT LIKE": (a, b) => a !== null && !like(b, "").test(a),
  "ILIKE": (a, b) => a !== null && like(b, "i").test(a),
  "IN": (a, b) => a !== null && b.includes(a),
  "NOT IN": (a, b) => a !== null && !b.includes(a),
};

export const OPERATORS = Object.keys(operators);

function holds(condition, row, tables, schema) {
  switch (condition.type) {
    case "and":
      return condition.conditions.every((each) => holds(each, row, tables, schema));
    case "or":
      return condition.conditions.some((each) => holds(each, row, tables, schema));
    case "correlatedSubquery":
      return children(condition.related, row, tables, schema).length > 0;
    default:
      return operators[condition.op](row[condition.left.name] ?? null, condition.right.value);
  }
}

function children(related, parent, tables, schema) {
  const { parentField, childField } = related.correlation;
  const belongs = (row) => parentField.every((field, i) => row[childField[i]] === parent[field]);
  return evaluate(related.subquery, tables, schema, belongs);
}

// The rows of a query in its order, each with its related rows under their names.
export function evaluate(ast, tables, schema, belongs = () => true) {
  const order = [...(ast.orderBy ?? []), ...schema.tables[ast.table].primaryKey.map((column) => [column, "asc"])];
  const found = [...(tables.get(ast.table)?.values() ?? [])]
    .filter((row) => belongs(row) && (!ast.where || holds(ast.where, row, tables, schema)))
    .sort((a, b) => {
      for (const [column, direction] of order) {
        const sign = compare(a[column], b[column]);
        if (sign) return direction === "desc" ? -sign : sign;
      }
      return 0;
    })
    .slice(0, ast.limit ?? Infinity);
  if (!ast.related) return found;
  return found.map((row) => ({
    ...row,
    ...Object.fromEntries(ast.related.map((each) => [each.subquery.alias, children(each, row, tables, schema)])),
  }));
}
