// The service that the comparison calls through a Restate server: each step is a recorded one.
import * as restate from "@restatedev/restate-sdk";

// Its SDK asks for it, and Node 20 does not have it yet.
Promise.withResolvers ??= () => {
  const all = {};
  all.promise = new Promise((resolve, reject) => Object.assign(all, { resolve, reject }));
  return all;
};

const work = (steps) => async (ctx, input) => {
  let out = input;
  for (let i = 0; i < steps; i++) out = await ctx.run("echo", async () => out);
  return out;
};

restate
  .endpoint()
  .bind(restate.service({ name: "compare", handlers: { five: work(5), one: work(1) } }))
  .listen(Number(process.env.PORT));
