// Loads what zero-cache's processes and the client load, so that Node writes its compile cache when this ends.
// Processes that tests kill never write it. SINGLE_PROCESS keeps the modules from starting anything on import.
import {createRequire} from 'node:module';
import {pathToFileURL} from 'node:url';

const require = createRequire(`${process.env.TEST_NODE_MODULES}/`);
await import(pathToFileURL(require.resolve('@rocicorp/zero')).href);
for (const name of ['main', 'change-streamer', 'replicator', 'syncer', 'reaper']) {
  await import(pathToFileURL(`${process.env.TEST_NODE_MODULES}/@rocicorp/zero/out/zero-cache/src/server/${name}.js`).href);
}
process.exit(0);
