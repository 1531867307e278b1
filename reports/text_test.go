package reports_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/reports"
)

func text(t rapid.TB, s harness.Suite, o reports.TextOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := reports.Text(&b, s, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestLastLineCountsRight holds the last line against a count of its own:
// a pass needs a pass of the scenario, at least one check, and all checks passed.
func TestLastLineCountsRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySuite(t)
		passed := 0
		for _, r := range s.Scenarios {
			good := r.Verdict == harness.Pass && len(r.Checks) > 0
			for _, v := range r.Checks {
				good = good && v.Status == harness.Pass
			}
			if good {
				passed++
			}
		}
		lines := strings.Split(strings.TrimSuffix(text(t, s, reports.TextOptions{}), "\n"), "\n")
		want := fmt.Sprintf("%d passed, %d failed, 0 skipped", passed, len(s.Scenarios)-passed)
		if got := lines[len(lines)-1]; got != want {
			t.Fatalf("last line is %q, want %q", got, want)
		}
	})
}

func TestTextWithoutColourHasNoControlCharacters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySuite(t)
		records := map[string]harness.Record{}
		for _, r := range s.Scenarios {
			records[r.Name] = anyRecord(t)
		}
		for _, r := range text(t, s, reports.TextOptions{Verbose: true, Records: records}) {
			if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
				t.Fatalf("the text holds %U", r)
			}
		}
	})
}

func TestLineKeepsToTheWidth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(20, 120).Draw(t, "width")
		line := reports.Line(anyResult(t), reports.TextOptions{Width: width})
		if n := utf8.RuneCountInString(line); n > width || strings.Contains(line, "\n") {
			t.Fatalf("%d columns, want at most %d on one line: %q", n, width, line)
		}
	})
}

func TestColourChangesNothingButColour(t *testing.T) {
	plain := text(t, page().Suite, reports.TextOptions{})
	coloured := text(t, page().Suite, reports.TextOptions{Color: true})
	if plain == coloured {
		t.Fatal("no colour at all")
	}
	stripped := coloured
	for _, code := range []string{"\x1b[0m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"} {
		stripped = strings.ReplaceAll(stripped, code, "")
	}
	if stripped != plain {
		t.Error("without its colours the text differs from the plain one")
	}
}

func TestBurstWitnessLine(t *testing.T) {
	b := harness.BurstReport{
		Name: "race", Technique: "h1-last-header-byte/io_uring", Requests: 100, Ready: 100, Sent: 100, Answered: 100, Spread: 84 * time.Microsecond, MaxInFlight: 100,
	}
	r, _ := passing()
	r.Bursts = []harness.BurstReport{b}
	want := "burst: 100 requests, h1-last-header-byte/io_uring, spread 84 us, 100 in flight at once\n"
	if got := text(t, harness.Suite{Scenarios: []harness.Result{r}}, reports.TextOptions{Verbose: true}); !strings.Contains(got, want) {
		t.Errorf("want %q in:\n%s", want, got)
	}
	b.Answered, b.Early = 98, 2
	r.Bursts = []harness.BurstReport{b}
	want = "100 in flight at once, only 98 answered, 2 answered BEFORE the release\n"
	if got := text(t, harness.Suite{Scenarios: []harness.Result{r}}, reports.TextOptions{Verbose: true}); !strings.Contains(got, want) {
		t.Errorf("want %q in:\n%s", want, got)
	}
}

func TestManyBurstsAreOneLineAndTheBadOnesNamed(t *testing.T) {
	r, _ := passing()
	r.Bursts = nil
	for i := range 50 {
		r.Bursts = append(r.Bursts, harness.BurstReport{
			Name: fmt.Sprintf("round-%d", i+1), Technique: "h2-single-packet", Requests: 100, Ready: 100, Sent: 100, Answered: 100,
			Spread: time.Duration(50+i) * time.Microsecond, MaxInFlight: 100 - i%4,
		})
	}
	r.Bursts[6].Answered = 99
	got := text(t, harness.Suite{Scenarios: []harness.Result{r}}, reports.TextOptions{Verbose: true})
	for _, want := range []string{
		"50 bursts: h2-single-packet, spread 50 us to 99 us (median 74 us), at least 97 in flight at once, 1 not as planned",
		"burst round-7: 100 requests", "only 99 answered",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in:\n%s", want, got)
		}
	}
	if n := strings.Count(got, "burst round-"); n != 1 {
		t.Errorf("%d bursts are named, want the one that went wrong", n)
	}
}

// TestInterleavingIsShownOnlyWhenAWireSawIt has the three cases.
func TestInterleavingIsShownOnlyWhenAWireSawIt(t *testing.T) {
	r, rec := failing()
	s := harness.Suite{Scenarios: []harness.Result{r}}
	seen := text(t, s, reports.TextOptions{Records: map[string]harness.Record{r.RunDir: rec}})
	if !strings.Contains(seen, "interleaving, as the upstream wire saw it, from the release at +1800.000 ms of the run:\n") {
		t.Errorf("no interleaving in:\n%s", seen)
	}
	rec.Upstream = nil
	blind := text(t, s, reports.TextOptions{Records: map[string]harness.Record{r.Name: rec}})
	if !strings.Contains(blind, "interleaving: none recorded, no wire saw these operations") {
		t.Errorf("it does not say that no wire saw it:\n%s", blind)
	}
	without := text(t, s, reports.TextOptions{})
	if !strings.Contains(without, "the run's record was not given") {
		t.Errorf("it does not say that nobody looked:\n%s", without)
	}
}

// TestAPassSaysWhatWasEnumerated: in every form of the text report. Where the
// scenario's own line was printed before, it is named.
func TestAPassSaysWhatWasEnumerated(t *testing.T) {
	p := crashPage()
	p.Suite.Scenarios = p.Suite.Scenarios[:1]
	row := "         1  drop   no answer     no                      201        before select slot_id"
	for _, c := range []struct {
		name  string
		o     reports.TextOptions
		line  string
		table int
	}{
		{"brief", reports.TextOptions{Records: p.Records}, "\n  crash points of a booking: 16 of 16\n\n1 passed", 0},
		{"streamed", reports.TextOptions{Records: p.Records, Streamed: true}, "  telescope/booking-crash  crash points of a booking: 16 of 16\n\n1 passed", 0},
		{"verbose", reports.TextOptions{Records: p.Records, Verbose: true}, "  crash points of a booking: 16 of 16\n    number  fault  first answer", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := text(t, p.Suite, c.o)
			if !strings.Contains(got, c.line) || strings.Count(got, "crash points of a") != 1 || strings.Count(got, row) != c.table {
				t.Errorf("want once %q and %d times %q in:\n%s", c.line, c.table, row, got)
			}
		})
	}
}

// TestWhatWasToldAboveIsNotToldAgain: two checks about the same operations
// show them once, with what became of the server between two moments.
func TestWhatWasToldAboveIsNotToldAgain(t *testing.T) {
	r, rec := failing()
	ops := r.Checks[1].Evidence[0].Ops
	r.Checks[2].Evidence[0].Ops = append(append([]string{}, ops...), ops...)
	rec.History.Events = append(rec.History.Events, harness.Event{
		At: rec.History.Bursts[0].Released + 100*time.Millisecond, Kind: harness.EventProcess, Subject: "sut-1", Text: "ready: sut-1 is ready",
	})
	got := text(t, harness.Suite{Scenarios: []harness.Result{r}}, reports.TextOptions{Records: map[string]harness.Record{r.Name: rec}})
	for want, n := range map[string]int{
		"interleaving, as the upstream wire saw it": 1, "operations and interleaving: those of L-I3, above": 1,
		"+100.000 ms               sut-1          ready: sut-1 is ready\n": 1, "confirm-017  client 17  ok ": 1,
	} {
		if strings.Count(got, want) != n {
			t.Errorf("want %d times %q in:\n%s", n, want, got)
		}
	}
}

// TestRowsThatWereCutAreWrittenInFull: a cell may hold the very thing that
// went wrong.
func TestRowsThatWereCutAreWrittenInFull(t *testing.T) {
	r, rec := failing()
	history := "REQUESTED by sut-1 -> RESERVING by sut-1 -> SUCCEEDED by sut-1 -> FAILED_RACE by sut-2"
	rows := rec.Rows["L-I3"]
	rows.Rows = []harness.Row{{"history": history, "ops": "confirm-017", "seat": nil}}
	rec.Rows["L-I3"] = rows
	r.Checks[1].Evidence[0].Text = "history                                   seat\nREQUESTED by sut-1 -> RESERVING by sut-…  null"
	got := text(t, harness.Suite{Scenarios: []harness.Result{r}}, reports.TextOptions{Records: map[string]harness.Record{r.Name: rec}})
	if want := "           history     " + history + "\n           seat        null\n           operations, timed"; !strings.Contains(got, want) {
		t.Errorf("want %q in:\n%s", want, got)
	}
}
