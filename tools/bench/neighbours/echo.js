// TCP echo on Node's libuv.
"use strict";
const net = require("node:net");
const server = net.createServer({ noDelay: true }, (socket) => {
  socket.on("data", (data) => socket.write(data));
  socket.on("error", () => socket.destroy());
});
server.listen({ port: 0, host: "127.0.0.1", backlog: 4096 }, () =>
  console.log(JSON.stringify({ loop: "Node", address: String(server.address().port) })));
