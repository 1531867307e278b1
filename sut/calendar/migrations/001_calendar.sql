-- The calendar's records. All times come from the server's clock; nothing here
-- calls now(). That no two appointments of a resource overlap is a constraint
-- of the database, not a habit of the code.

create extension if not exists btree_gist; -- resource_id with = in a GiST index

-- A consultant, a room. Writers of one resource lock this row first, so that
-- they queue; the exclusion constraint does not rely on it.
create table resources (
  resource_id       bigint primary key,
  calendar          text not null unique,  -- its name at the provider
  state             text not null check (state in ('INACTIVE', 'ACTIVATING', 'ACTIVE')),
  provider_contract text check (provider_contract in ('atomic-hold', 'check-then-create')),
  conflict_policy   text check (conflict_policy in ('reject', 'keep-and-flag')),
  conflict_limit    int check (conflict_limit between 0 and 1000000),
  activation        uuid,                  -- who is activating it, and until when at most
  activating_until  timestamptz,
  activated_at      timestamptz,
  overbook_op       text not null default '',
  created_at        timestamptz not null,
  check (state <> 'ACTIVE' or (provider_contract is not null and conflict_policy is not null and conflict_limit is not null and activated_at is not null)),
  check ((state = 'ACTIVATING') = (activation is not null) and (activation is null) = (activating_until is null))
);
-- One activation at a time.
create unique index resources_one_activation on resources ((true)) where state = 'ACTIVATING';

-- What we may do at the provider, one row a resource. Refresh tokens rotate:
-- whoever refreshes holds the lease, and repeats under the same key.
create table accounts (
  resource_id      bigint primary key references resources,
  state            text not null check (state in ('OK', 'FAILED_AUTH')),
  access_token     text not null default '',
  refresh_token    text not null,
  generation       int not null default 0,  -- counts the refreshes
  refresh_key      uuid,                    -- of the refresh under way
  refreshing_until timestamptz,
  quiet_until      timestamptz,             -- the provider wants no calls before
  changed_at       timestamptz not null,
  check ((refresh_key is null) = (refreshing_until is null))
);

create table appointments (
  appointment_id uuid primary key,
  resource_id    bigint not null references resources,
  member         text not null,
  during         tstzrange not null check (lower_inc(during) and not upper_inc(during) and not isempty(during)),
  time_zone      text not null,
  state          text not null check (state in ('BOOKED', 'CREATED', 'REJECTED', 'CANCELLED')),
  event_id       text not null unique,  -- at the provider, chosen here, once
  series_id      uuid,
  series_no      int check (series_no >= 0),
  version        int not null default 0,  -- number of its last audit row
  overbook_op    text not null default '',
  created_at     timestamptz not null,
  ended_at       timestamptz,
  check ((state in ('REJECTED', 'CANCELLED')) = (ended_at is not null)),
  check ((series_id is null) = (series_no is null)),
  unique (series_id, series_no),
  -- The rule. Half-open ranges: who follows back to back does not overlap.
  -- Deferrable, so that a swap is judged when both have moved.
  constraint appointments_no_overlap exclude using gist (resource_id with =, during with &&)
    where (state in ('BOOKED', 'CREATED')) deferrable initially immediate
);
create index appointments_of_member on appointments (member, created_at);

create table appointment_audit (
  audit_id       bigint generated always as identity primary key,
  appointment_id uuid not null references appointments,
  seq            int not null,
  event          text not null check (event in ('BOOKED', 'MOVED', 'CREATED', 'REJECTED', 'CANCELLED', 'RESTORED')),
  during         tstzrange not null,  -- after it
  reason         text not null default '',
  actor          text not null,       -- member, staff, or "server"
  overbook_op    text not null default '',
  at             timestamptz not null,
  unique (appointment_id, seq)
);

-- What the provider has to hear of, with the number of its audit row, which is
-- the event's version there.
create table outbox (
  event_id       uuid primary key default gen_random_uuid(),
  appointment_id uuid not null references appointments,
  seq            int not null,
  type           text not null check (type in ('appointment.booked', 'appointment.moved', 'appointment.restored', 'appointment.cancelled', 'appointment.rejected')),
  payload        jsonb not null,
  created_at     timestamptz not null,
  done_at        timestamptz,
  result         text check (result in ('created', 'updated', 'deleted', 'refused', 'not-needed')),
  unique (appointment_id, seq),
  check ((done_at is null) = (result is null))
);
create index outbox_pending on outbox (appointment_id, seq) where done_at is null;

-- The work on an appointment with pending events. Whoever has the claim does
-- it; whoever lost the claim writes nothing more.
create table syncs (
  appointment_id uuid primary key references appointments,
  due_at         timestamptz,   -- null: nothing to do
  claim          uuid,
  claimed_until  timestamptz,
  touched_at     timestamptz,   -- first claimed: from then on the provider may know of it
  attempts       int not null default 0,  -- failed ones since it last went well
  last_error     text,
  parked_at      timestamptz,   -- failed too often: waits for staff
  synced_at      timestamptz,   -- last went well
  check ((claim is null) = (claimed_until is null))
);
create index syncs_due on syncs (due_at) where due_at is not null and parked_at is null;

-- What the provider could not exclude: listed until it is resolved.
create table conflicts (
  conflict_id    uuid primary key,
  resource_id    bigint not null references resources,
  appointment_id uuid not null references appointments,
  kind           text not null check (kind in ('overlap', 'missing')),
  external_event text not null,  -- the other's event id; of "missing": ours
  found_at       timestamptz not null,
  found_by       text not null check (found_by in ('check', 'look', 'reconciliation')),
  resolved_at    timestamptz,
  resolution     text check (resolution in ('rejected', 'kept', 'cancelled', 'vanished', 'ended')),
  resolved_by    text,           -- staff, member, or "server"
  check ((resolved_at is null) = (resolution is null) and (resolution is null) = (resolved_by is null))
);
create unique index conflicts_once on conflicts (appointment_id, kind, external_event) where resolved_at is null;
create index conflicts_unresolved on conflicts (resource_id) where resolved_at is null;

-- What the last look at a calendar saw of others.
create table external_events (
  resource_id bigint not null references resources,
  event_id    text not null,
  during      tstzrange not null,
  primary key (resource_id, event_id)
);
create table looks (
  resource_id bigint primary key references resources,
  due_at      timestamptz not null,
  looked_at   timestamptz   -- as of when external_events is
);

-- Scoped idempotency keys and their results.
create table appointment_operations (
  principal    text not null,
  type         text not null check (type in ('book', 'move', 'move-series', 'reschedule', 'cancel', 'resolve')),
  key          text not null check (length(key) between 1 and 128),
  fingerprint  text not null,
  status       int,
  content_type text,
  body         bytea,
  overbook_op  text not null default '',
  created_at   timestamptz not null,
  completed_at timestamptz,
  primary key (principal, type, key),
  check ((completed_at is null) = (status is null) and (status is null) = (body is null) and (status is null) = (content_type is null))
);
create index appointment_operations_by_age on appointment_operations (created_at);

create function calendar_refuse() returns trigger language plpgsql as $$
begin
  raise exception '% on % is refused: its rows are history', tg_op, tg_table_name using errcode = 'restrict_violation';
end $$;
create trigger append_only before update or delete on appointment_audit for each row execute function calendar_refuse();
create trigger append_only_all before truncate on appointment_audit execute function calendar_refuse();
create trigger kept before delete on outbox for each row execute function calendar_refuse();
create trigger kept before delete on appointments for each row execute function calendar_refuse();
create trigger kept before delete on conflicts for each row execute function calendar_refuse();

-- The arrows of the automaton; what an appointment is of never changes; what is
-- over does not move.
create function calendar_guard_appointment() returns trigger language plpgsql as $$
begin
  if (new.appointment_id, new.resource_id, new.member, new.event_id, new.series_id, new.series_no, new.created_at)
     is distinct from (old.appointment_id, old.resource_id, old.member, old.event_id, old.series_id, old.series_no, old.created_at) then
    raise exception 'appointment % stays whose it is', old.appointment_id using errcode = 'restrict_violation';
  end if;
  if new.state <> old.state and (old.state, new.state) not in
     (('BOOKED', 'CREATED'), ('BOOKED', 'REJECTED'), ('BOOKED', 'CANCELLED'), ('CREATED', 'REJECTED'), ('CREATED', 'CANCELLED')) then
    raise exception 'appointment %: no way from % to %', old.appointment_id, old.state, new.state using errcode = 'restrict_violation';
  end if;
  if old.ended_at is not null and new.during <> old.during then
    raise exception 'appointment % is over and stays when it was', old.appointment_id using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger guard before update on appointments for each row execute function calendar_guard_appointment();

create function calendar_guard_event() returns trigger language plpgsql as $$
begin
  if (new.event_id, new.appointment_id, new.seq, new.type, new.payload, new.created_at)
     is distinct from (old.event_id, old.appointment_id, old.seq, old.type, old.payload, old.created_at) or old.done_at is not null then
    raise exception 'event % says what it said', old.event_id using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger guard before update on outbox for each row execute function calendar_guard_event();

create function calendar_guard_conflict() returns trigger language plpgsql as $$
begin
  if (new.conflict_id, new.resource_id, new.appointment_id, new.kind, new.external_event, new.found_at, new.found_by)
     is distinct from (old.conflict_id, old.resource_id, old.appointment_id, old.kind, old.external_event, old.found_at, old.found_by)
     or old.resolved_at is not null then
    raise exception 'conflict % stays what it is, and is resolved once', old.conflict_id using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger guard before update on conflicts for each row execute function calendar_guard_conflict();

create function calendar_guard_result() returns trigger language plpgsql as $$
begin
  if old.completed_at is not null then
    raise exception 'operation %/%/% has its result and keeps it', old.principal, old.type, old.key using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger guard before update on appointment_operations for each row execute function calendar_guard_result();

---- create above / drop below ----

drop table appointment_operations, looks, external_events, conflicts, syncs, outbox, appointment_audit, appointments, accounts, resources;
drop function calendar_refuse, calendar_guard_appointment, calendar_guard_event, calendar_guard_conflict, calendar_guard_result;
