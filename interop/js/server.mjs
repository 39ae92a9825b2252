// The official server, for our client. Prints its port, and ends with its input.
import { createServer } from "node:http";
import { Server } from "socket.io";

const http = createServer();
const io = new Server(http, { path: "/api/socket.io", pingInterval: Number(process.argv[2] ?? 25000), pingTimeout: 20_000 });

io.use((socket, next) => {
  if (socket.handshake.auth.token === "right") return next();
  const refusal = new Error("not authorised");
  refusal.data = { reason: "unauthenticated" };
  next(refusal);
});

io.on("connection", (socket) => {
  socket.emit("welcome", socket.id);
  socket.conn.on("packet", (packet) => packet.type === "pong" && socket.emit("ponged"));
  socket.on("echo", (...args) => args.pop()(...args));
  socket.on("blob", (blob, ack) => ack(Buffer.from(blob).reverse()));
  socket.on("ask me", async (question, ack) => ack(await socket.timeout(30_000).emitWithAck("ask", question)));
  socket.on("disconnect me", () => socket.disconnect());
  socket.on("cut me", () => socket.conn.close());
  socket.on("rpc", ({ method, payload }, ack) => {
    if (method === "greet") return ack({ text: `hello ${payload.name}` });
    ack({ __rpcError: `no method ${method}`, __rpcApError: { code: "unknown_method" } });
  });
});

http.listen(0, "127.0.0.1", () => console.log(http.address().port));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
