-- The library's records. All times come from the server's clock; nothing here
-- calls now(). What the application promises about history (append-only,
-- terminal for good, allowed transitions only) the database enforces.

create table library_actions (
  action_id    uuid primary key,
  student      text not null,
  kind         text not null check (kind in ('reserve', 'wait')),
  seat         text,
  state        text not null check (state in ('PREPARED', 'CONFIRMED')),
  prepared_at  timestamptz not null,
  expires_at   timestamptz not null,
  confirmed_at timestamptz,
  check (kind = 'wait' or seat is not null),
  check ((state = 'CONFIRMED') = (confirmed_at is not null))
);

create table action_audit (
  audit_id  bigint generated always as identity primary key,
  action_id uuid not null references library_actions,
  student   text not null,
  event     text not null check (event in ('PREPARED', 'CONFIRMED')),
  detail    jsonb not null default '{}',
  at        timestamptz not null,
  unique (action_id, event)
);

-- One row per seat: whoever claims or ends an attempt on the seat locks it.
create table library_seats (
  seat            text primary key,
  last_outcome    text check (last_outcome in ('SUCCEEDED', 'FAILED_RACE', 'FAILED_AUTH', 'FAILED_UPSTREAM')),
  last_intent_id  uuid,
  last_attempt_at timestamptz
);

create table library_reservation_intents (
  intent_id       uuid primary key,
  action_id       uuid not null unique references library_actions,
  path            text not null check (path in ('direct', 'intent')),
  kind            text not null check (kind in ('immediate', 'wait')),
  student         text not null,
  seat            text,
  wanted          text[],
  state           text not null check (state in
    ('REQUESTED', 'WAITING_FOR_SEAT', 'RESERVING', 'SUCCEEDED', 'FAILED_RACE', 'FAILED_AUTH', 'FAILED_UPSTREAM')),
  seq             int not null,
  attempts        int not null default 0,
  looks           int not null default 0,
  locked_by       text,
  locked_until    timestamptz,
  fence           bigint not null default 0,
  next_attempt_at timestamptz,
  charge_id       text,
  failure         text,
  traceparent     text not null default '',
  overbook_op     text not null default '',
  created_at      timestamptz not null,
  updated_at      timestamptz not null,
  terminal_at     timestamptz,
  check (kind = 'wait' or seat is not null),
  check (state <> 'RESERVING' or seat is not null),
  check ((state = 'RESERVING') = (locked_by is not null and locked_until is not null)),
  check ((state = 'SUCCEEDED') = (charge_id is not null)),
  check ((state in ('SUCCEEDED', 'FAILED_RACE', 'FAILED_AUTH', 'FAILED_UPSTREAM')) = (terminal_at is not null))
);

-- The direct path is the baseline without this protection.
create unique index library_one_reserving_per_seat on library_reservation_intents (seat)
  where state = 'RESERVING' and path = 'intent';
create unique index library_one_intent_per_charge on library_reservation_intents (charge_id)
  where charge_id is not null;
create index library_requested on library_reservation_intents (seat, created_at)
  where state = 'REQUESTED' and kind = 'immediate';
create index library_waiting on library_reservation_intents (next_attempt_at)
  where kind = 'wait' and state in ('REQUESTED', 'WAITING_FOR_SEAT');
create index library_leases on library_reservation_intents (locked_until)
  where state = 'RESERVING';

create table library_transitions (
  transition_id bigint generated always as identity primary key,
  intent_id     uuid not null references library_reservation_intents,
  seq           int not null,
  from_state    text,
  to_state      text not null,
  replica       text not null,
  reason        text not null,
  at            timestamptz not null,
  unique (intent_id, seq),
  check ((seq = 1) = (from_state is null))
);

create table library_reservation_outbox (
  event_id     uuid primary key default gen_random_uuid(),
  intent_id    uuid not null,
  seq          int not null,
  type         text not null,
  payload      jsonb not null,
  created_at   timestamptz not null,
  claimed_until timestamptz,
  delivered_at timestamptz,
  attempts     int not null default 0,
  last_error   text,
  parked_at    timestamptz,
  unique (intent_id, seq)
);
create index library_outbox_pending on library_reservation_outbox (created_at, seq)
  where delivered_at is null and parked_at is null;

create table library_notifications (
  event_id    uuid primary key,
  intent_id   uuid not null,
  seq         int not null,
  type        text not null,
  received_at timestamptz not null
);

create function library_refuse() returns trigger language plpgsql as $$
begin
  raise exception '% on % is refused: its rows are history', tg_op, tg_table_name using errcode = 'restrict_violation';
end $$;

create trigger append_only before update or delete on action_audit for each row execute function library_refuse();
create trigger append_only_all before truncate on action_audit execute function library_refuse();
create trigger append_only before update or delete on library_transitions for each row execute function library_refuse();
create trigger append_only_all before truncate on library_transitions execute function library_refuse();
create trigger kept before delete on library_reservation_outbox for each row execute function library_refuse();
create trigger kept_all before truncate on library_reservation_outbox execute function library_refuse();
create trigger kept before delete on library_reservation_intents for each row execute function library_refuse();
create trigger kept before delete on library_actions for each row execute function library_refuse();

create function library_guard_action() returns trigger language plpgsql as $$
begin
  if old.state = 'CONFIRMED' then
    raise exception 'action % is consumed and stays so', old.action_id using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger guard before update on library_actions for each row execute function library_guard_action();

create function library_guard_event() returns trigger language plpgsql as $$
begin
  if (new.event_id, new.intent_id, new.seq, new.type, new.payload, new.created_at)
     is distinct from (old.event_id, old.intent_id, old.seq, old.type, old.payload, old.created_at) then
    raise exception 'event % says what it said', old.event_id using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger guard before update on library_reservation_outbox for each row execute function library_guard_event();

create function library_guard_new_intent() returns trigger language plpgsql as $$
begin
  if not (new.state = 'REQUESTED' or (new.state = 'RESERVING' and new.path = 'direct')) then
    raise exception 'an intent does not begin as %', new.state using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger guard_new before insert on library_reservation_intents for each row execute function library_guard_new_intent();

create function library_guard_intent() returns trigger language plpgsql as $$
declare allowed boolean;
begin
  if old.terminal_at is not null then
    raise exception 'intent % is % and stays so', old.intent_id, old.state using errcode = 'restrict_violation';
  end if;
  if new.fence < old.fence then
    raise exception 'intent %: fence % after %', old.intent_id, new.fence, old.fence using errcode = 'restrict_violation';
  end if;
  if new.state = old.state then
    if new.seq <> old.seq then
      raise exception 'intent %: a transition without a change of state', old.intent_id using errcode = 'restrict_violation';
    end if;
    return new;
  end if;
  if new.seq <> old.seq + 1 then
    raise exception 'intent %: transition % after %', old.intent_id, new.seq, old.seq using errcode = 'restrict_violation';
  end if;
  allowed := case old.state
    when 'REQUESTED' then
      case old.kind when 'wait' then new.state = 'WAITING_FOR_SEAT' else new.state in ('RESERVING', 'FAILED_RACE') end
    when 'WAITING_FOR_SEAT' then new.state = 'RESERVING'
    when 'RESERVING' then
      new.state in ('SUCCEEDED', 'FAILED_RACE', 'FAILED_AUTH', 'FAILED_UPSTREAM')
      or (new.state = 'WAITING_FOR_SEAT' and old.kind = 'wait')
    else false end;
  if not allowed then
    raise exception 'intent %: no way from % to %', old.intent_id, old.state, new.state using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger guard before update on library_reservation_intents for each row execute function library_guard_intent();

---- create above / drop below ----

drop table library_notifications, library_reservation_outbox, library_transitions, library_reservation_intents,
  library_seats, action_audit, library_actions;
drop function library_refuse, library_guard_action, library_guard_event, library_guard_new_intent, library_guard_intent;
