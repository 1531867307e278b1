-- The ticket shop's records. All times come from the server's clock; nothing
-- here calls now(). Money is in integer minor units. What the automata allow
-- the database enforces, so that no path of the code can revive what is over.

create table shows (
  show_id    bigint primary key,
  on_sale_at timestamptz not null,
  price      bigint not null check (price between 1 and 100000000),
  currency   text not null check (currency ~ '^[A-Z]{3}$'),
  policy     text not null check (policy in ('quarantine', 'release')),
  created_at timestamptz not null
);

-- A hold owns the seat. It is also the order, and the intent at the provider.
-- version is the number of its last audit row; whoever changes anything of the
-- order locks this row first.
create table holds (
  hold_id        uuid primary key,
  show_id        bigint not null references shows,
  seat           text not null,
  login          text not null,
  state          text not null check (state in ('RESERVED', 'CONFIRMED', 'EXPIRED', 'RELEASED')),
  amount         bigint not null check (amount > 0),
  currency       text not null,
  policy         text not null,
  winning_charge uuid unique,  -- the one charge that pays for the seat
  version        int not null default 0,
  overbook_op    text not null default '',
  created_at     timestamptz not null,
  expires_at     timestamptz not null,
  ended_at       timestamptz,
  check ((state = 'CONFIRMED') = (winning_charge is not null)),
  check ((state = 'RESERVED') = (ended_at is null))
);
-- One active checkout a login, whatever the show.
create unique index holds_one_checkout on holds (login) where state = 'RESERVED';
create index holds_running_out on holds (expires_at) where state = 'RESERVED';

-- The seat row is the rule of never overselling: it names the one hold that
-- has it, and is taken by one conditional update.
create table seats (
  show_id    bigint not null references shows,
  seat       text not null,
  rank       int not null,  -- best first
  state      text not null check (state in ('FREE', 'HELD', 'QUARANTINED', 'SOLD')),
  hold_id    uuid references holds,
  changed_at timestamptz not null,
  primary key (show_id, seat),
  check ((state = 'FREE') = (hold_id is null))
);
create index seats_free on seats (show_id, rank) where state = 'FREE';

-- A charge owns the money of one attempt. It is stored before the provider
-- hears of it. payment_id is the provider's id of the attempt and unique; the
-- intent, which several attempts share, only joins.
create table charges (
  charge_id         uuid primary key,
  hold_id           uuid not null references holds,
  intent            text not null,
  payment_id        text unique,
  amount            bigint not null check (amount > 0),
  currency          text not null,
  card              text not null,
  state             text not null check (state in ('CHARGING', 'CAPTURED', 'DECLINED', 'FAILED', 'REFUNDING', 'REFUNDED', 'REFUND_RESOLVED')),
  origin            text not null check (origin in ('request', 'provider')),  -- provider: an attempt of its own
  captured_amount   bigint check (captured_amount > 0),                       -- what the provider says it took
  captured_currency text,
  sent_at           timestamptz not null,
  resolved_at       timestamptz,
  resolved_by       text check (resolved_by in ('answer', 'callback', 'reconciliation', 'hard-timeout')),
  settled_at        timestamptz,          -- of a given-up one: the provider has decided after all
  next_ask_at       timestamptz,          -- null: no question is left
  asked             int not null default 0,
  overbook_op       text not null default '',
  traceparent       text not null default '',
  check ((state = 'CHARGING') = (resolved_at is null)),
  check ((resolved_at is null) = (resolved_by is null)),
  check ((captured_amount is null) = (captured_currency is null)),
  check (state not in ('CAPTURED', 'REFUNDING', 'REFUNDED') or (captured_amount is not null and payment_id is not null))
);
create unique index charges_one_in_flight on charges (hold_id) where state = 'CHARGING';
create index charges_of_intent on charges (intent);
create index charges_to_ask on charges (next_ask_at) where next_ask_at is not null;
alter table holds add foreign key (winning_charge) references charges;

-- Money that goes back: a queue, one row a charge and a payment.
create table refunds (
  refund_id       uuid primary key,
  charge_id       uuid not null unique references charges,
  payment_id      text not null unique,
  amount          bigint not null check (amount > 0),
  currency        text not null,
  reason          text not null,
  state           text not null check (state in ('PENDING', 'DONE')),
  attempts        int not null default 0,
  next_attempt_at timestamptz not null,
  last_error      text,
  parked_at       timestamptz,  -- failed too often: waits for staff
  created_at      timestamptz not null,
  done_at         timestamptz,
  check ((state = 'DONE') = (done_at is not null))
);
create index refunds_due on refunds (next_attempt_at) where state = 'PENDING' and parked_at is null;

-- Callbacks that were taken. The row commits together with what it changed.
create table provider_events (
  event_id    text primary key,
  type        text not null,
  payment_id  text not null,
  intent      text not null,
  result      text not null check (result in ('applied', 'noted')),
  received_at timestamptz not null
);

create table ticket_audit (
  audit_id    bigint generated always as identity primary key,
  hold_id     uuid not null references holds,
  seq         int not null,
  subject     text not null check (subject in ('hold', 'charge', 'refund', 'seat')),
  subject_id  text not null,   -- hold, charge or refund id, or the seat's name
  from_state  text,            -- null: it began
  to_state    text not null,
  reason      text not null,
  actor       text not null,   -- login, staff, "provider", "server"
  overbook_op text not null default '',
  at          timestamptz not null,
  unique (hold_id, seq)
);

-- One event per audit row, with its number.
create table outbox (
  event_id      uuid primary key default gen_random_uuid(),
  hold_id       uuid not null,
  seq           int not null,
  type          text not null,
  payload       jsonb not null,
  created_at    timestamptz not null,
  claimed_until timestamptz,
  delivered_at  timestamptz,
  attempts      int not null default 0,
  last_error    text,
  parked_at     timestamptz,
  unique (hold_id, seq)
);
create index outbox_pending on outbox (created_at, seq) where delivered_at is null and parked_at is null;

-- What the member is told, written by the consumer of the outbox: its marker
-- and its effect are one row.
create table notices (
  event_id uuid primary key,
  hold_id  uuid not null,
  seq      int not null,
  login    text not null,
  type     text not null,
  at       timestamptz not null
);
create index notices_of_order on notices (hold_id, seq);

create function tickets_refuse() returns trigger language plpgsql as $$
begin
  raise exception '% on % is refused: its rows are history', tg_op, tg_table_name using errcode = 'restrict_violation';
end $$;
create trigger append_only before update or delete on ticket_audit for each row execute function tickets_refuse();
create trigger append_only_all before truncate on ticket_audit execute function tickets_refuse();
create trigger append_only before update or delete on provider_events for each row execute function tickets_refuse();
create trigger kept before delete on outbox for each row execute function tickets_refuse();
create trigger kept before delete on holds for each row execute function tickets_refuse();
create trigger kept before delete on charges for each row execute function tickets_refuse();
create trigger kept before delete on refunds for each row execute function tickets_refuse();
create trigger kept before delete on seats for each row execute function tickets_refuse();

-- The arrows of the automata. A row that changes its state must follow one.
create table automata (
  subject    text not null,
  from_state text not null,
  to_state   text not null,
  primary key (subject, from_state, to_state)
);
insert into automata (subject, from_state, to_state) values
  ('holds', 'RESERVED', 'CONFIRMED'), ('holds', 'RESERVED', 'EXPIRED'), ('holds', 'RESERVED', 'RELEASED'),
  ('seats', 'FREE', 'HELD'), ('seats', 'HELD', 'SOLD'), ('seats', 'HELD', 'FREE'), ('seats', 'HELD', 'QUARANTINED'),
  ('seats', 'QUARANTINED', 'SOLD'), ('seats', 'QUARANTINED', 'FREE'),
  ('charges', 'CHARGING', 'CAPTURED'), ('charges', 'CHARGING', 'DECLINED'), ('charges', 'CHARGING', 'FAILED'), ('charges', 'CHARGING', 'REFUND_RESOLVED'),
  ('charges', 'CAPTURED', 'REFUNDING'), ('charges', 'REFUNDING', 'REFUNDED'),
  ('refunds', 'PENDING', 'DONE');

create function tickets_follow_arrows() returns trigger language plpgsql as $$
begin
  if new.state <> old.state and not exists (
    select from automata where subject = tg_table_name and from_state = old.state and to_state = new.state) then
    raise exception '%: no way from % to %', tg_table_name, old.state, new.state using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger arrows before update of state on holds for each row execute function tickets_follow_arrows();
create trigger arrows before update of state on seats for each row execute function tickets_follow_arrows();
create trigger arrows before update of state on charges for each row execute function tickets_follow_arrows();
create trigger arrows before update of state on refunds for each row execute function tickets_follow_arrows();

-- What a hold, a charge and a refund are about never changes, nor does who won.
create function tickets_guard_hold() returns trigger language plpgsql as $$
begin
  if (new.hold_id, new.show_id, new.seat, new.login, new.amount, new.currency, new.policy, new.created_at, new.expires_at)
     is distinct from (old.hold_id, old.show_id, old.seat, old.login, old.amount, old.currency, old.policy, old.created_at, old.expires_at) then
    raise exception 'hold % stays what it is', old.hold_id using errcode = 'restrict_violation';
  end if;
  if old.winning_charge is not null and new.winning_charge is distinct from old.winning_charge then
    raise exception 'hold % was won by charge %', old.hold_id, old.winning_charge using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger guard before update on holds for each row execute function tickets_guard_hold();

create function tickets_guard_charge() returns trigger language plpgsql as $$
begin
  if (new.charge_id, new.hold_id, new.intent, new.amount, new.currency, new.card, new.origin, new.sent_at)
     is distinct from (old.charge_id, old.hold_id, old.intent, old.amount, old.currency, old.card, old.origin, old.sent_at) then
    raise exception 'charge % stays what it is', old.charge_id using errcode = 'restrict_violation';
  end if;
  if (old.payment_id is not null and new.payment_id is distinct from old.payment_id)
     or (old.captured_amount is not null and (new.captured_amount, new.captured_currency) is distinct from (old.captured_amount, old.captured_currency)) then
    raise exception 'charge % keeps its payment and what was captured', old.charge_id using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger guard before update on charges for each row execute function tickets_guard_charge();

create function tickets_guard_refund() returns trigger language plpgsql as $$
begin
  if (new.refund_id, new.charge_id, new.payment_id, new.amount, new.currency)
     is distinct from (old.refund_id, old.charge_id, old.payment_id, old.amount, old.currency) then
    raise exception 'refund % stays what it is', old.refund_id using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger guard before update on refunds for each row execute function tickets_guard_refund();

create function tickets_guard_event() returns trigger language plpgsql as $$
begin
  if (new.event_id, new.hold_id, new.seq, new.type, new.payload, new.created_at)
     is distinct from (old.event_id, old.hold_id, old.seq, old.type, old.payload, old.created_at) then
    raise exception 'event % says what it said', old.event_id using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger guard before update on outbox for each row execute function tickets_guard_event();

---- create above / drop below ----

drop table automata, notices, outbox, ticket_audit, provider_events, refunds, seats cascade;
alter table holds drop constraint holds_winning_charge_fkey;
drop table charges, holds, shows;
drop function tickets_refuse, tickets_follow_arrows, tickets_guard_hold, tickets_guard_charge, tickets_guard_refund, tickets_guard_event;
