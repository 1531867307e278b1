// Does with node-postgres what reservation servers do, and says what it saw.
const { Client, Pool } = require("pg");

const url = process.argv[2];
const saw = [];

async function main() {
  const client = new Client({ connectionString: url });
  await client.connect();

  saw.push(["simple", (await client.query("select 1 as one")).rows[0].one]);
  await client.query("insert into bookings (slot, member) values ($1, $2)", [1, "node"]);
  for (let slot = 2; slot <= 4; slot++) {
    await client.query({ name: "book", text: "insert into bookings (slot, member) values ($1, $2) returning slot", values: [slot, "node"] });
  }
  try {
    await client.query({ name: "book", text: "insert into bookings (slot, member) values ($1, $2) returning slot", values: [4, "node"] });
  } catch (e) {
    saw.push(["twice", e.code]);
  }
  saw.push(["several", (await client.query("select 1; select 2")).length]);

  let heard;
  const news = new Promise((resolve) => (heard = resolve));
  client.on("notification", (n) => heard(n.payload));
  await client.query("listen news");
  await client.query("notify news, 'hello'");
  saw.push(["notification", await news]);

  // The commit of this one is held until the test lets it go.
  await client.query("begin");
  await client.query("insert into payments (note) values ($1)", ["held"]);
  await client.query("commit");
  saw.push(["held", "committed"]);

  // This one is told to try again, and does.
  for (let attempt = 1; ; attempt++) {
    try {
      await client.query("begin isolation level serializable");
      await client.query("insert into payments (note) values ($1)", ["again"]);
      await client.query("commit");
      saw.push(["attempts", attempt]);
      break;
    } catch (e) {
      saw.push(["failed", e.code]);
      await client.query("rollback");
    }
  }
  await client.end();

  const pool = new Pool({ connectionString: url, max: 4 });
  const rows = await Promise.all(Array.from({ length: 20 }, (_, i) => pool.query("select $1::int as i", [i])));
  saw.push(["pool", rows.reduce((sum, r) => sum + r.rows[0].i, 0)]);
  await pool.end();
  process.stdout.write(JSON.stringify(saw) + "\n");
}

main().catch((e) => {
  process.stderr.write(`${e.stack}\nafter ${JSON.stringify(saw)}\n`);
  process.exitCode = 1;
});
