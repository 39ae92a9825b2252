// The service that the comparison calls through a Restate server. Each step is a durable step (ctx.run).
import * as restate from "@restatedev/restate-sdk";

// The SDK needs Promise.withResolvers, which Node 20 does not have.
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
