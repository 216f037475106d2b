"use strict";

// Lends a published RouterOS API client to test_npm_client.py, one JSON value a line each way.
//
// in:   first {client, host, port, user, password, certificate?}; the password comes here because arguments show in ps
//       then  {write: [word, ...]} | {together: [[word, ...], ...]} | {stream: [word, ...], rows: n}
// out:  for each line {rows} (of `together`: {answers: [{rows}, ...]}) or {error: {name, message, errno}}
//       {uncaught: {...}} and exit code 70 when the client throws where no one can catch it

const readline = require("node:readline");

const TIMEOUT_S = 30;

const described = (error) => ({ name: error.name, message: error.message, errno: error.errno ?? error.code });
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
const settle = (promise) => promise.then((rows) => ({ rows }), (error) => ({ error: described(error) }));

process.on("uncaughtException", (error) => {
  process.stdout.write(`${JSON.stringify({ uncaught: described(error) })}\n`, () => process.exit(70));
});

const clients = {
  "node-routeros": async ({ host, port, user, password, certificate }) => {
    const { RouterOSAPI } = require("node-routeros");
    // Only this very certificate is trusted, so the name in it does not matter.
    const tls = certificate && { ca: certificate, checkServerIdentity: () => undefined };
    const api = new RouterOSAPI({ host, port, user, password, tls, timeout: TIMEOUT_S });
    // After `!fatal` this client says "close" and leaves the command without an answer for ever.
    const closed = new Promise((_, reject) => api.once("close", () => reject(new Error("closed by the switch"))));
    closed.catch(() => {});
    await api.connect();
    api.on("error", () => {});
    return {
      write: (words) => Promise.race([api.write(words), closed]),
      stream: (words, count) =>
        new Promise((resolve, reject) => {
          const rows = [];
          const stream = api.stream(words, (error, row) => {
            if (error) return reject(error);
            rows.push(row);
            if (rows.length === count) stream.stop().then(() => resolve(rows), reject);
          });
        }),
      close: () => api.close(),
    };
  },

  "mikro-routeros": async ({ host, port, user, password }) => {
    const { RouterOSClient } = require("mikro-routeros");
    const api = new RouterOSClient(host, port, TIMEOUT_S * 1000);
    await api.connect();
    if (user) await api.login(user, password);
    // It takes names and values, and puts `=` or `?` before them by itself.
    const pair = (word) => [word.slice(1).split("=", 1)[0], word.slice(word.indexOf("=", 1) + 1)];
    return {
      write: ([command, ...words]) => api.runQuery(command, Object.fromEntries(words.map(pair))),
      close: () => api.close(),
    };
  },

  "ros-client": async ({ host, port, user, password, certificate }) => {
    const RouterOSClient = require("ros-client");
    const timeout = TIMEOUT_S * 1000;
    // With TLS it accepts every certificate, and has no option for that.
    const api = new RouterOSClient({ host, port, username: user, password, tls: Boolean(certificate), timeout });
    api.on("error", () => {});
    await api.connect();
    return { write: (words) => api.send(words), close: () => api.close() };
  },
};

async function answer(api, { write, together, stream, rows }) {
  if (together) return { answers: await Promise.all(together.map((words) => settle(api.write(words)))) };
  return settle(stream ? api.stream(stream, rows) : api.write(write));
}

async function main() {
  let api;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    if (api) {
      say(await answer(api, request));
      continue;
    }
    try {
      api = await clients[request.client](request);
      say({ rows: [] });
    } catch (error) {
      say({ error: described(error) });
      return;
    }
  }
  await api?.close();
}

main().then(() => process.exit(0));
