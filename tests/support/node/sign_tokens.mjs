// Tokens signed by jose, the library the official cache verifies with: one per algorithm named on the command line.
import {createRequire} from 'node:module';
import {pathToFileURL} from 'node:url';

const require = createRequire(`${process.env.TEST_NODE_MODULES}/`);
const {SignJWT, exportJWK, generateKeyPair} = await import(pathToFileURL(require.resolve('jose')).href);

for (const alg of process.argv.slice(2)) {
  const {publicKey, privateKey} = await generateKeyPair(alg, {extractable: true});
  const token = await new SignJWT({role: 'admin'}).setProtectedHeader({alg, kid: alg}).setSubject('ann').sign(privateKey);
  console.log(JSON.stringify({alg, token, key: {...(await exportJWK(publicKey)), kid: alg}}));
}
