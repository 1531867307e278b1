-- The telescope's records. All times come from the server's clock; nothing
-- here calls now(). What the application promises about history (append-only,
-- results that never change) the database enforces.

-- One row per thirty-minute slot. Whoever changes what a slot is or who has it
-- locks this row first. version is the number of the slot's last audit row.
create table observing_slots (
  slot_id    bigint primary key,
  starts_at  timestamptz not null,
  state      text not null check (state in ('open', 'closed')),
  version    int not null check (version >= 1),
  updated_at timestamptz not null
);
create index observing_slots_by_start on observing_slots (starts_at);

-- Current ownership. The primary key is the rule: one active reservation a slot.
create table active_reservations (
  slot_id     bigint primary key references observing_slots,
  booking_id  uuid not null unique,
  member      text not null,
  month       text not null check (month ~ '^\d{4}-\d{2}$'), -- of the slot, in the observatory's time zone
  created_at  timestamptz not null,
  flagged_at  timestamptz,                                    -- the slot was closed under it
  flag_state  text check (flag_state in ('open', 'kept')),    -- waits for staff | staff lets it stand
  check ((flagged_at is null) = (flag_state is null))
);
create index active_reservations_by_member on active_reservations (member, month);
create index active_reservations_flagged on active_reservations (flagged_at) where flagged_at is not null;

-- Serialises the bookings of one member in one month. It holds no count: the
-- count is taken from active_reservations while this row is locked.
create table member_quotas (
  member text not null,
  month  text not null,
  primary key (member, month)
);

-- Scoped idempotency keys and their results. A row commits together with what
-- it tells, so it is never seen without a result.
create table booking_operations (
  principal    text not null,  -- member or staff
  type         text not null check (type in ('book', 'cancel', 'close', 'reopen', 'import', 'resolve')),
  key          text not null check (length(key) between 1 and 128),
  fingerprint  text not null,  -- of the normalised request
  status       int,
  content_type text,
  body         bytea,          -- of the answer, byte for byte
  slot_id      bigint,
  booking_id   uuid,
  overbook_op  text not null default '',  -- the request that did it
  created_at   timestamptz not null,
  completed_at timestamptz,
  primary key (principal, type, key),
  check ((completed_at is null) = (status is null) and (status is null) = (body is null) and (status is null) = (content_type is null))
);
create index booking_operations_by_age on booking_operations (created_at);

create table audit_history (
  audit_id    bigint generated always as identity primary key,
  slot_id     bigint not null references observing_slots,
  seq         int not null,
  event       text not null check (event in ('CREATED', 'BOOKED', 'CANCELLED', 'CLOSED', 'REOPENED', 'FLAGGED', 'KEPT')),
  booking_id  uuid,
  member      text,            -- whose booking it is
  actor       text not null,   -- who did it
  overbook_op text not null default '',
  at          timestamptz not null,
  unique (slot_id, seq),
  check ((event in ('BOOKED', 'CANCELLED', 'FLAGGED', 'KEPT')) = (booking_id is not null)),
  check ((booking_id is null) = (member is null))
);
create index audit_history_by_member on audit_history (member, audit_id) where member is not null;
-- A booking is made once; by it a cancellation finds slot and member, whatever became of it since.
create unique index audit_history_booked on audit_history (booking_id) where event = 'BOOKED';

-- One event per audit row, with its number.
create table outbox (
  event_id      uuid primary key default gen_random_uuid(),
  slot_id       bigint not null,
  seq           int not null,
  type          text not null,
  payload       jsonb not null,
  created_at    timestamptz not null,
  claimed_until timestamptz,
  delivered_at  timestamptz,
  attempts      int not null default 0,
  last_error    text,
  parked_at     timestamptz,
  unique (slot_id, seq)
);
create index outbox_pending on outbox (created_at, seq) where delivered_at is null and parked_at is null;

-- What the email worker knows to have been taken by the provider.
create table email_deliveries (
  event_id   uuid primary key,
  message_id text not null,
  sent_at    timestamptz not null
);

-- The public day schedule: a projection, at most five seconds old in healthy operation.
create table slot_schedule (
  slot_id   bigint primary key,
  starts_at timestamptz not null,
  state     text not null check (state in ('free', 'taken', 'closed'))
);
create index slot_schedule_by_start on slot_schedule (starts_at);
create table schedule_refreshes (
  one          boolean primary key default true check (one),
  refreshed_at timestamptz not null  -- the schedule shows everything that was committed before this
);

create function telescope_refuse() returns trigger language plpgsql as $$
begin
  raise exception '% on % is refused: its rows are history', tg_op, tg_table_name using errcode = 'restrict_violation';
end $$;
create trigger append_only before update or delete on audit_history for each row execute function telescope_refuse();
create trigger append_only_all before truncate on audit_history execute function telescope_refuse();
create trigger kept before delete on outbox for each row execute function telescope_refuse();
create trigger kept_all before truncate on outbox execute function telescope_refuse();
create trigger kept before delete on observing_slots for each row execute function telescope_refuse();

create function telescope_guard_event() returns trigger language plpgsql as $$
begin
  if (new.event_id, new.slot_id, new.seq, new.type, new.payload, new.created_at)
     is distinct from (old.event_id, old.slot_id, old.seq, old.type, old.payload, old.created_at) then
    raise exception 'event % says what it said', old.event_id using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger guard before update on outbox for each row execute function telescope_guard_event();

create function telescope_guard_result() returns trigger language plpgsql as $$
begin
  if old.completed_at is not null then
    raise exception 'operation %/%/% has its result and keeps it', old.principal, old.type, old.key using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger guard before update on booking_operations for each row execute function telescope_guard_result();

create function telescope_guard_slot() returns trigger language plpgsql as $$
begin
  if new.slot_id <> old.slot_id or new.starts_at <> old.starts_at then
    raise exception 'slot % stays where it is', old.slot_id using errcode = 'restrict_violation';
  end if;
  if new.version < old.version then
    raise exception 'slot %: version % after %', old.slot_id, new.version, old.version using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger guard before update on observing_slots for each row execute function telescope_guard_slot();

---- create above / drop below ----

drop table schedule_refreshes, slot_schedule, email_deliveries, outbox, audit_history, booking_operations, member_quotas,
  active_reservations, observing_slots;
drop function telescope_refuse, telescope_guard_event, telescope_guard_result, telescope_guard_slot;
