import { useConnectionState, useQuery, useZero } from "@rocicorp/zero/react";
import { useState } from "react";

import { mutators, queries } from "./zero.js";

export function App() {
  const zero = useZero();
  const [todos, { type }] = useQuery(queries.todos());
  const { name: state } = useConnectionState();
  const [title, setTitle] = useState("");
  const [refusal, setRefusal] = useState("");
  const [waiting, setWaiting] = useState(0);

  // The list shows the change at once; the server's word comes later, and a refusal takes the change back.
  const ask = async (mutation) => {
    setRefusal("");
    setWaiting((count) => count + 1);
    const answer = await zero.mutate(mutation).server;
    setWaiting((count) => count - 1);
    if (answer.type === "error") setRefusal(answer.error.message);
  };

  const add = (event) => {
    event.preventDefault();
    setTitle("");
    void ask(mutators.todo.add({ id: crypto.randomUUID(), title, created: Date.now() }));
  };

  return (
    <main>
      <h1>To do</h1>
      <form onSubmit={add}>
        <input id="title" aria-label="What is to be done" value={title} onChange={(e) => setTitle(e.target.value)} />
        <button>Add</button>
      </form>
      <p id="refusal" role="alert">{refusal}</p>
      <ul id="todos">
        {todos.map(({ id, title, done }) => (
          <li key={id}>
            <label>
              <input
                type="checkbox"
                checked={done}
                onChange={(e) => void ask(mutators.todo.setDone({ id, done: e.target.checked }))}
              />
              {title}
            </label>
          </li>
        ))}
      </ul>
      <p id="state" data-state={state} data-result={type} data-waiting={waiting}>
        {state}{waiting > 0 && `, ${waiting} to be confirmed`}
      </p>
    </main>
  );
}
