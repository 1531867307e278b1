package telescope

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// breakStream puts a wall between the primary and its standby: the primary
// lets no standby in any more, and ends the stream that there is. What is
// committed from now on the standby never has.
func breakStream(ctx context.Context, env harness.Env) error {
	if err := shutOutStandbys(ctx, env); err != nil {
		return err
	}
	env.Record(harness.Event{Kind: harness.EventFault, Subject: "postgres", Text: "the stream to the standby is broken"})
	return env.Await(ctx, "the stream to the standby ends", patience, func(ctx context.Context) (bool, string, error) {
		rows, err := env.Database().Query(ctx, "select pid, pg_terminate_backend(pid) as told from pg_stat_replication")
		return err == nil && len(rows) == 0, fmt.Sprint(rows), err
	})
}

// shutOutStandbys takes the lines about replication out of the file that says
// who may connect, and waits until the primary goes by the new one: a session
// that begins later was let in by it.
func shutOutStandbys(ctx context.Context, env harness.Env) error {
	rows, err := env.Database().Query(ctx, "select current_setting('hba_file') as path, pg_read_file(current_setting('hba_file')) as lines, pg_conf_load_time()::text as loaded")
	if err != nil {
		return err
	}
	var kept []string
	for line := range strings.Lines(text(rows[0], "lines")) {
		line = strings.Join(strings.Fields(line), " ")
		if line != "" && !strings.HasPrefix(line, "#") && !strings.Contains(line, "replication") {
			kept = append(kept, line)
		}
	}
	path := strings.ReplaceAll(text(rows[0], "path"), "'", "''")
	write := fmt.Sprintf("copy (select unnest(string_to_array('%s', '|'))) to '%s'", strings.ReplaceAll(strings.Join(kept, "|"), "'", "''"), path)
	if _, err := env.Database().Exec(ctx, write); err != nil {
		return err
	}
	if _, err := env.Database().Query(ctx, "select pg_reload_conf() as told"); err != nil {
		return err
	}
	before := text(rows[0], "loaded")
	return env.Await(ctx, "the primary lets no standby in", patience, func(ctx context.Context) (bool, string, error) {
		session, err := env.Database().Session(ctx)
		if err != nil {
			return false, "", err
		}
		rows, err := session.Query(ctx, "select pg_conf_load_time()::text as loaded")
		if err = errors.Join(err, session.End()); err != nil {
			return false, "", err
		}
		return text(rows[0], "loaded") != before, "configuration of " + before, nil
	})
}

// awaitStandbyWaiters waits until a commit waits for the standby. A server
// that waits for none acknowledges bookings instead: some of those do as well,
// for the kill then shows what they are worth.
func awaitStandbyWaiters(ctx context.Context, env harness.Env, people *crowd, c failoverChoice, since time.Duration) (float64, error) {
	waiting := 0.0
	err := env.Await(ctx, "a commit waits for the standby", patience, func(ctx context.Context) (bool, string, error) {
		rows, err := env.Database().Query(ctx, "select count(*) as n from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep'")
		if err == nil {
			waiting, _ = rows[0]["n"].(float64)
		}
		hasty := people.toldSince(since)
		return waiting > 0 || hasty >= c.Kill, fmt.Sprintf("none waits, %d were acknowledged", hasty), err
	})
	return waiting, err
}

// doubtsOfEach is how often each client must have been left in doubt: at the
// first time its commit was given up, at the second its key was asked for.
const doubtsOfEach = 2

// awaitDoubts waits until every client has asked again with its key, and was
// not told a result. A client that is told one books its next slot and is in
// doubt about that. Some that were told one will do as well, as they should not.
func awaitDoubts(ctx context.Context, env harness.Env, people *crowd, c failoverChoice, since time.Duration) (float64, error) {
	return inDoubt(ctx, env, people, c, since, func(context.Context) error { return nil })
}

// cancelWaits is awaitDoubts while every commit that waits for the standby is
// cancelled. It gives how many were.
func cancelWaits(ctx context.Context, env harness.Env, people *crowd, c failoverChoice, since time.Duration) (cancelled float64, err error) {
	_, err = inDoubt(ctx, env, people, c, since, func(ctx context.Context) error {
		rows, err := env.Database().Query(ctx, `select count(pg_cancel_backend(pid)) as n from pg_stat_activity
where datname = current_database() and application_name <> 'overbook' and wait_event = 'SyncRep'`)
		if err == nil {
			n, _ := rows[0]["n"].(float64)
			cancelled += n
		}
		return err
	})
	return cancelled, err
}

func inDoubt(ctx context.Context, env harness.Env, people *crowd, c failoverChoice, since time.Duration, meanwhile func(context.Context) error) (float64, error) {
	people.mu.Lock()
	people.doubts, people.since = map[int]int{}, since
	people.mu.Unlock()
	seen, clients := 0, env.Params().Int(paramClients.Name)
	err := env.Await(ctx, "every client has asked again", clientPatience, func(ctx context.Context) (bool, string, error) {
		err := meanwhile(ctx)
		hasty := people.toldSince(since)
		people.mu.Lock()
		defer people.mu.Unlock()
		seen = 0
		twice := 0
		for _, n := range people.doubts {
			seen += n
			if n >= doubtsOfEach {
				twice++
			}
		}
		return twice == clients || hasty >= c.Kill, fmt.Sprintf("%d of %d clients have, twice", twice, clients), err
	})
	return float64(seen), err
}

// fence starts the former primary again and tries to write to it.
func fence(ctx context.Context, env harness.Env, slotID int64) (harness.Database, error) {
	old, err := env.Pair().StartOld(ctx)
	if err != nil {
		return nil, err
	}
	_, refused := old.Exec(ctx, "update observing_slots set updated_at = updated_at where slot_id = $1", slotID)
	said := writeDone
	if refused != nil {
		said = refused.Error()
	}
	env.Record(harness.Event{Kind: harness.EventNote, Subject: fencedSubject, Text: "a write on the former primary: " + said, Attrs: map[string]string{"said": said}})
	return old, nil
}

// writeDone is said of a write that was not refused.
const writeDone = "it was done"
