// Usage: node client.js ADDRESS HOST
//
// Sends messages over a WebSocket of the package `ws`, one after the other, and
// expects each back. Prints "echo N" for each, and at the end "closed CODE".
'use strict';
const WebSocket = require('ws');
const [address, host] = process.argv.slice(2);

const ws = new WebSocket(`ws://${address}/ws`, { headers: { Host: host } });
const sizes = [1, 125, 126, 4000, 65535, 65536, 100000];
let n = 0;
let message;

function next() {
  n++;
  message = `${n}:`.padEnd(sizes[n % sizes.length] + 10, 'x');
  ws.send(message);
}

ws.on('open', next);
ws.on('message', (data) => {
  if (data.toString() !== message) {
    console.log(`message ${n} came back as ${data.length} bytes`);
    process.exit(1);
  }
  console.log(`echo ${n}`);
  setTimeout(() => { if (ws.readyState === WebSocket.OPEN) next(); }, 20);
});
ws.on('error', (err) => console.log(`error ${err.message}`));
ws.on('close', (code) => console.log(`closed ${code}`));
