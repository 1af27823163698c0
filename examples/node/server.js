'use strict'
// The Node example: a directory as the artifact, `node server.js` as the
// command. It listens where usher tells it to, and leaves cleanly on SIGTERM.

const http = require('node:http')
const { version } = require('./package.json')

const where = process.env.SOCKET || process.env.PORT
if (!where) {
  console.error('where to listen is not said: set PORT or SOCKET')
  process.exit(1)
}

const server = http.createServer((request, response) => {
  const { pathname } = new URL(request.url, 'http://app')
  if (pathname === '/echo' && request.method === 'POST') {
    response.setHeader('Content-Type', 'application/octet-stream')
    request.pipe(response)
  } else if (pathname === '/') {
    response.setHeader('Content-Type', 'text/plain; charset=utf-8')
    response.end(`${process.env.GREETING || 'hello'} from node ${version}\n`)
  } else {
    response.statusCode = 404
    response.end('no such page\n')
  }
})

// usher keeps connections for reuse; they must not end at the moment when a
// request is sent on them, so its side is left to close them.
server.keepAliveTimeout = 0

process.on('SIGTERM', () => {
  server.close(() => process.exit(0)) // when the last request is answered
  server.closeIdleConnections()
})

const opened = () => console.log(`node ${version} listens on ${where}`)
if (process.env.SOCKET) server.listen(where, opened)
else server.listen(Number(where), '127.0.0.1', opened)
