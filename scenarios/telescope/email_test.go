package telescope

import (
	"context"
	"maps"
	"testing"

	"github.com/overbook/overbook/harness"
)

// mailed is a record of one slot's BOOKED and FLAGGED, both mailed, and its CLOSED.
func mailed() harness.Record {
	rec := emptyRecord()
	event := func(id, kind string, seq float64) harness.Row {
		return harness.Row{
			"event_id": id, "slot_id": 7.0, "seq": seq, "type": "x", "delivered_at": "2026-01-01", "parked_at": nil,
			"payload": map[string]any{"event": kind, "member": "member-1", "booking_id": "b-1"},
		}
	}
	entry := func(id, kind, message string) harness.Row {
		return harness.Row{"event_id": id, "kind": kind, "to": "member-1", "slot_id": 7.0, "booking_id": "b-1", "deliveries": 1.0, "message_id": message}
	}
	tableOf(rec, "table:outbox", event("e-1", "BOOKED", 2), event("e-2", "CLOSED", 3), event("e-3", "FLAGGED", 4))
	tableOf(rec, "table:email_deliveries", harness.Row{"event_id": "e-1", "message_id": "m-1"}, harness.Row{"event_id": "e-3", "message_id": "m-2"})
	tableOf(rec, "ledger:email", entry("e-1", "BOOKED", "m-1"), entry("e-3", "FLAGGED", "m-2"))
	for _, id := range []string{"e-1", "e-3"} {
		rec.Upstream = append(rec.Upstream, harness.UpstreamCall{Upstream: "email", Method: "POST", Path: "/messages", Request: `{"event_id":"` + id + `"}`, Forwarded: 1})
	}
	return rec
}

func TestEveryEventMailed(t *testing.T) {
	outbox := func(rec harness.Record, i int, column string, v any) {
		r := maps.Clone(rec.Rows["table:outbox"].Rows[i])
		r[column] = v
		rec.Rows["table:outbox"].Rows[i] = r
	}
	ledger := func(rec harness.Record) []harness.Row { return rec.Rows["ledger:email"].Rows }
	for _, tc := range []struct {
		name  string
		rules mailRules
		spoil func(*harness.Record)
		want  harness.Status
		word  string
	}{
		{"as it should be", mailRules{}, func(*harness.Record) {}, harness.Pass, "2 sent, 0 of them"},
		{"sent twice under its id", mailRules{}, func(r *harness.Record) { ledger(*r)[0]["deliveries"] = 2.0 }, harness.Pass, "1 of them more than once"},
		{"acknowledged and never sent", mailRules{}, func(r *harness.Record) { tableOf(*r, "ledger:email", ledger(*r)[1]) }, harness.Failed, "the provider never had it"},
		{"under a fresh id", mailRules{}, func(r *harness.Record) { ledger(*r)[0]["event_id"] = "e-9" }, harness.Failed, "no such event"},
		{"about an event that was lost", mailRules{forgets: true}, func(r *harness.Record) {
			tableOf(*r, "ledger:email", append(ledger(*r), harness.Row{"event_id": "e-9"})...)
		}, harness.Pass, "2 sent"},
		{"to somebody else", mailRules{}, func(r *harness.Record) { ledger(*r)[0]["to"] = "member-2" }, harness.Failed, "says something else"},
		{"not noted", mailRules{}, func(r *harness.Record) { outbox(*r, 0, "delivered_at", nil) }, harness.Failed, "not marked as delivered"},
		{"another message", mailRules{}, func(r *harness.Record) { ledger(*r)[0]["message_id"] = "m-7" }, harness.Failed, `"m-7"`},
		{"parked without need", mailRules{}, func(r *harness.Record) { outbox(*r, 0, "parked_at", "2026-01-01") }, harness.Failed, "it is parked"},
		{"owed to nobody", mailRules{}, func(r *harness.Record) {
			tableOf(*r, "ledger:email", append(ledger(*r), harness.Row{"event_id": "e-2"})...)
		}, harness.Failed, "nobody is owed"},
		{"refused and taken all the same", mailRules{refused: "FLAGGED", attempts: 3}, func(*harness.Record) {}, harness.Failed, "counts as delivered"},
		{"refused and parked", mailRules{refused: "FLAGGED", attempts: 1}, refuseFlagged, harness.Pass, "1 parked"},
		{"parked too early", mailRules{refused: "FLAGGED", attempts: 3}, refuseFlagged, harness.Failed, "sent 1 times before it was parked, want 3"},
		{"not read", mailRules{}, func(r *harness.Record) { delete(r.Rows, "ledger:email") }, harness.Unknown, "could not be read"},
		{"nothing", mailRules{}, func(r *harness.Record) {
			tableOf(*r, "table:outbox")
			tableOf(*r, "ledger:email")
		}, harness.Unknown, "no mail"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec := mailed()
			tc.spoil(&rec)
			wantStatus(t, everyEventMailed(tc.rules), rec, tc.want, tc.word)
		})
	}
}

// refuseFlagged is a record in which the FLAGGED mail was refused and parked.
func refuseFlagged(r *harness.Record) {
	flagged := r.Rows["table:outbox"].Rows[2]
	flagged["delivered_at"], flagged["parked_at"] = nil, "2026-01-01"
	tableOf(*r, "ledger:email", r.Rows["ledger:email"].Rows[0])
	tableOf(*r, "table:email_deliveries", r.Rows["table:email_deliveries"].Rows[0])
}

func TestParkedInTime(t *testing.T) {
	rec := mailed()
	wantStatus(t, parkedInTime("FLAGGED", 1), rec, harness.Unknown, "0 slots have a parked event")
	refuseFlagged(&rec)
	wantStatus(t, parkedInTime("FLAGGED", 1), rec, harness.Pass, "1 parked")
	rec.Upstream = append(rec.Upstream, rec.Upstream[1])
	wantStatus(t, parkedInTime("FLAGGED", 1), rec, harness.Failed, "it was sent 2 times, at most 1")

	rec = mailed()
	refuseFlagged(&rec)
	rows := rec.Rows["table:outbox"].Rows
	left := maps.Clone(rows[0]) // a later one, that nobody sent
	left["event_id"], left["seq"], left["delivered_at"] = "e-4", 5.0, nil
	tableOf(rec, "table:outbox", append(rows, left)...)
	wantStatus(t, parkedInTime("FLAGGED", 1), rec, harness.Pass, "1 parked") // it may be under way
	rec.History.Events = []harness.Event{{Kind: harness.EventNote, Subject: waitingSubject}}
	wantStatus(t, parkedInTime("FLAGGED", 1), rec, harness.Failed, "never sent, behind the parked FLAGGED")
	tableOf(rec, "table:outbox", rows...)
	wantStatus(t, parkedInTime("FLAGGED", 1), rec, harness.Unknown, "or be left: true")
	delete(rec.Rows, "ledger:email")
	wantStatus(t, parkedInTime("FLAGGED", 1), rec, harness.Unknown, "could not be read")
}

func TestMailsInOrder(t *testing.T) {
	rec := mailed()
	wantStatus(t, mailsInOrder(), rec, harness.Pass, "1")
	rows := rec.Rows["ledger:email"].Rows
	tableOf(rec, "ledger:email", rows[1], rows[0])
	wantStatus(t, mailsInOrder(), rec, harness.Failed, "arrived after")
	tableOf(rec, "ledger:email", rows[0])
	wantStatus(t, mailsInOrder(), rec, harness.Unknown, "no slot had two mails")
}

func TestSentTwice(t *testing.T) {
	rec := mailed()
	wantStatus(t, sentTwice(), rec, harness.Unknown, "no mail was struck")
	rec.History.Events = []harness.Event{{Kind: harness.EventNote, Subject: mailSubject, Attrs: map[string]string{"event": "e-1", "known": "false"}}}
	wantStatus(t, sentTwice(), rec, harness.Failed, "took it 1 times")
	rec.Rows["ledger:email"].Rows[0]["deliveries"] = 2.0
	wantStatus(t, sentTwice(), rec, harness.Pass, "2 deliveries")
	rec.Rows["ledger:email"].Rows[0]["deliveries"] = 3.0 // at least once has no upper bound
	wantStatus(t, sentTwice(), rec, harness.Pass, "3 deliveries")
	rec.History.Events[0].Attrs["known"] = "true"
	wantStatus(t, sentTwice(), rec, harness.Failed, "before the provider's answer")
}

// The rows of email_rows.sql, as a server without the mailer's care might
// leave them.
func TestEmailRows(t *testing.T) {
	conn := openRows(t)
	delivered := `update outbox set delivered_at = '2031-01-01';
insert into email_deliveries select event_id, 'message', '2031-01-01' from outbox where type in ('telescope.booked', 'telescope.cancelled', 'telescope.flagged');
`
	for name, tc := range map[string]struct {
		sql  string
		want int
	}{
		"as it should be":    {``, 0},
		"parked":             {`delete from email_deliveries where event_id = (select event_id from outbox where slot_id = 1 and seq = 2); update outbox set delivered_at = null, parked_at = '2031-01-01' where slot_id = 1 and seq = 2`, 0},
		"taken, not noted":   {`update outbox set delivered_at = null where slot_id = 1 and seq = 2`, 0}, // of a crash between the two
		"never sent":         {`delete from email_deliveries where event_id = (select event_id from outbox where slot_id = 1 and seq = 2)`, 1},
		"owed to nobody":     {`insert into email_deliveries select event_id, 'message', '2031-01-01' from outbox where slot_id = 1 and type = 'telescope.closed'`, 1},
		"under a fresh id":   {`update email_deliveries set event_id = gen_random_uuid() where event_id = (select event_id from outbox where slot_id = 1 and seq = 2)`, 2},
		"about nothing else": {`insert into email_deliveries values (gen_random_uuid(), 'message', '2031-01-01')`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if _, err := tx.Exec(t.Context(), goodRows()+delivered+tc.sql); err != nil {
				t.Fatal(err)
			}
			query, err := invariants.ReadFile("invariants/email_rows.sql")
			if err != nil {
				t.Fatal(err)
			}
			var n int
			if err := tx.QueryRow(t.Context(), "select count(*) from (\n"+string(query)+"\n) r").Scan(&n); err != nil || n != tc.want {
				t.Errorf("%d rows, %v; want %d", n, err, tc.want)
			}
		})
	}
}
