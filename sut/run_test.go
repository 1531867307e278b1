package sut_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut"
	"github.com/overbook/overbook/sut/internal/pgtest"
)

var cluster *pgtest.Cluster

func TestMain(m *testing.M) {
	os.Exit(pgtest.Main(m, func(c *pgtest.Cluster) { cluster = c }))
}

func TestBadConfiguration(t *testing.T) {
	good := []string{"DATABASE_URL=postgres://x@127.0.0.1:1/x", "PYXIS_URL=http://127.0.0.1:1", "PAYMENTS_URL=http://127.0.0.1:1", "TICKETS_CALLBACK_SECRET=sixteen-or-more-letters", "CALENDAR_URL=http://127.0.0.1:1"}
	tests := []struct {
		name string
		args []string
		env  []string
		says []string
	}{
		{"nothing", nil, nil, []string{"--design"}},
		{"unknown design", []string{"--design", "cinema"}, good, []string{`"cinema"`, "library, telescope, tickets, calendar"}},
		{"help about an unknown design", []string{"--design", "cinema", "--help"}, good, []string{`"cinema"`, "library, telescope, tickets, calendar"}},
		{"no design name", []string{"--design"}, good, []string{"--design library"}},
		{"unknown argument", []string{"--fast"}, good, []string{`"--fast"`, "--help"}},
		{"required ones", []string{"--design", "library"}, nil, []string{`DATABASE_URL=""`, `PYXIS_URL=""`, "e.g. PYXIS_URL=http://"}},
		{"every bad one is named", []string{"--design=library"}, append(good, "POOL_SIZE=3", "LIBRARY_PATH=sideways", "LIBRARY_TICK=fast", "TEST_MODE=maybe", "LISTEN=8080", "LIBRARY_WAKE=often"), []string{`POOL_SIZE="3"`, "from 4 to 500", `LIBRARY_PATH="sideways"`, "direct or intent", `LIBRARY_TICK="fast"`, "e.g. LIBRARY_TICK=250ms", `TEST_MODE="maybe"`, `LISTEN="8080"`, "commit or tick"}},
		{"lease too short", []string{"--design", "library"}, append(good, "LIBRARY_LEASE=5s"), []string{"LIBRARY_LEASE", "LIBRARY_UPSTREAM_TIMEOUT", "TEST_MODE"}},
		{"telescope's bad ones", []string{"--design", "telescope"}, append(good, "EMAIL_URL=mail", "TELESCOPE_TIME_ZONE=Hawaii/Here", "TELESCOPE_TRIES=0", "TELESCOPE_RETENTION=7d"), []string{`EMAIL_URL="mail"`, `TELESCOPE_TIME_ZONE="Hawaii/Here"`, "e.g. TELESCOPE_TIME_ZONE=Pacific/Honolulu", `TELESCOPE_TRIES="0"`, "from 1 to 100", `TELESCOPE_RETENTION="7d"`}},
		{"a time zone of this machine", []string{"--design", "telescope"}, append(good, "TELESCOPE_TIME_ZONE=Local"), []string{`TELESCOPE_TIME_ZONE="Local"`}},
		{"telescope's that don't fit together", []string{"--design", "telescope"}, append(good, "TELESCOPE_LOCK_TIMEOUT=5s", "TELESCOPE_RETRY_WINDOW=200h"), []string{"TELESCOPE_LOCK_TIMEOUT", "less than TELESCOPE_STATEMENT_TIMEOUT", "TELESCOPE_RETRY_WINDOW", "at most TELESCOPE_RETENTION"}},
		{"tickets' required ones", []string{"--design", "tickets"}, good[:1], []string{`PAYMENTS_URL=""`, "e.g. PAYMENTS_URL=http://", `TICKETS_CALLBACK_SECRET=""`, "at least 16 characters"}},
		{"tickets' bad ones", []string{"--design", "tickets"}, append(good, "PAYMENTS_URL=bank", "TICKETS_CALLBACK_SECRET=fifteen-letters", "TICKETS_POLICY=keep", "TICKETS_HOLD=0s", "TICKETS_REFUND_PARK_AFTER=0"), []string{`PAYMENTS_URL="bank"`, "TICKETS_CALLBACK_SECRET (15 characters, not shown)", `TICKETS_POLICY="keep"`, "quarantine or release", `TICKETS_HOLD="0s"`, `TICKETS_REFUND_PARK_AFTER="0"`}},
		{"tickets' that don't fit together", []string{"--design", "tickets"}, append(good, "TICKETS_LOCK_TIMEOUT=5s", "TICKETS_RECONCILE_AFTER=5s", "TICKETS_HARD_TIMEOUT=4s"), []string{"TICKETS_LOCK_TIMEOUT", "less than TICKETS_STATEMENT_TIMEOUT", "TICKETS_RECONCILE_AFTER", "more than TICKETS_PAYMENT_TIMEOUT", "TICKETS_HARD_TIMEOUT", "more than TICKETS_RECONCILE_AFTER"}},
		{"calendar's required one", []string{"--design", "calendar"}, good[:1], []string{`CALENDAR_URL=""`, "e.g. CALENDAR_URL=http://"}},
		{"calendar's bad ones", []string{"--design", "calendar"}, append(good, "CALENDAR_URL=diary", "CALENDAR_PARK_AFTER=0", "CALENDAR_HORIZON=2y"), []string{`CALENDAR_URL="diary"`, `CALENDAR_PARK_AFTER="0"`, `CALENDAR_HORIZON="2y"`, "e.g. CALENDAR_HORIZON=17520h"}},
		{"calendar's that don't fit together", []string{"--design", "calendar"}, append(good, "CALENDAR_LOCK_TIMEOUT=5s", "CALENDAR_RETRY_WINDOW=200h", "CALENDAR_SYNC_CLAIM=20s", "CALENDAR_REFRESH_LEASE=4s"), []string{"CALENDAR_LOCK_TIMEOUT", "less than CALENDAR_STATEMENT_TIMEOUT", "CALENDAR_RETRY_WINDOW", "at most CALENDAR_RETENTION", "CALENDAR_SYNC_CLAIM", "more than ten CALENDAR_TIMEOUT", "CALENDAR_REFRESH_LEASE", "more than two CALENDAR_TIMEOUT"}},
		{"migrate without a database", []string{"migrate", "--design", "library"}, nil, []string{`DATABASE_URL=""`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := sut.Run(t.Context(), tt.args, tt.env, &stdout, &stderr); code != 4 {
				t.Errorf("exit code %d, want 4", code)
			}
			for _, s := range tt.says {
				if !strings.Contains(stderr.String(), s) {
					t.Errorf("does not say %q:\n%s", s, &stderr)
				}
			}
			if stdout.Len() != 0 {
				t.Errorf("standard output has %q", &stdout)
			}
			if strings.Contains(stderr.String(), "fifteen-letters") || strings.Contains(stderr.String(), "sixteen-or-more-letters") {
				t.Errorf("a secret is shown:\n%s", &stderr)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	common := []string{"DATABASE_URL", "SHUTDOWN_GRACE", "migrate", "library, telescope, tickets, calendar"}
	of := map[string]string{"library": "LIBRARY_BREAKER_PROBES", "telescope": "TELESCOPE_TIME_ZONE", "tickets": "TICKETS_CALLBACK_SECRET", "calendar": "CALENDAR_PARK_AFTER"}
	for _, only := range []string{"", "library", "telescope", "tickets", "calendar"} {
		args := []string{"--help"}
		if only != "" {
			args = append(args, "--design", only)
		}
		var stdout, stderr bytes.Buffer
		if code := sut.Run(t.Context(), args, nil, &stdout, &stderr); code != 0 || stderr.Len() != 0 {
			t.Errorf("%v: exit code %d, want 0\n%s", args, code, &stderr)
		}
		for _, s := range common {
			if !strings.Contains(stdout.String(), s) {
				t.Errorf("%v: does not mention %s", args, s)
			}
		}
		for design, variable := range of {
			if got, want := strings.Contains(stdout.String(), variable), only == "" || only == design; got != want {
				t.Errorf("%v: mentions %s: %v", args, variable, got)
			}
		}
	}
}

// A server is a Run in the background.
type server struct {
	url    string // "" when it ended before it was ready
	db     string // its database's URL
	code   chan int
	stderr *logs
}

// logs is what a running server writes to standard error.
type logs struct {
	mu    sync.Mutex
	text  bytes.Buffer
	wrote chan struct{} // holds one: what matters is that there is something new
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.wrote <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// says waits until the text was logged.
func (l *logs) says(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.wrote:
		case <-deadline:
			t.Fatalf("the server does not say %q:\n%s", text, l)
		}
	}
}

func start(t *testing.T, ctx context.Context, env ...string) *server { //nolint:revive // the context is the server's life
	t.Helper()
	return startDesign(t, ctx, "library", env...)
}

func startDesign(t *testing.T, ctx context.Context, design string, env ...string) *server { //nolint:revive // likewise
	t.Helper()
	url := cluster.Database(t)
	env = append([]string{"DATABASE_URL=" + url, "POOL_SIZE=6"}, env...)
	var stderr bytes.Buffer
	if code := sut.Run(t.Context(), []string{"migrate", "--design", design}, env, io.Discard, &stderr); code != 0 {
		t.Fatalf("migrate: exit code %d\n%s", code, &stderr)
	}
	s := &server{db: url, code: make(chan int, 1), stderr: &logs{wrote: make(chan struct{}, 1)}}
	out, in := io.Pipe()
	go func() {
		s.code <- sut.Run(ctx, []string{"--design", design}, env, in, s.stderr)
		_ = in.Close()
	}()
	line, _ := bufio.NewReader(out).ReadString('\n')
	s.url = strings.TrimPrefix(strings.TrimSpace(line), "listening on ")
	return s
}

func (s *server) ended(t *testing.T) int {
	t.Helper()
	select {
	case code := <-s.code:
		return code
	case <-time.After(30 * time.Second):
		t.Fatal("the server does not end")
		return -1
	}
}

func TestServesAndStops(t *testing.T) {
	for _, tt := range []struct{ design, how string }{{"library", "context"}, {"library", "signal"}, {"telescope", "context"}, {"telescope", "signal"}, {"tickets", "context"}, {"tickets", "signal"}, {"calendar", "context"}, {"calendar", "signal"}} {
		t.Run(tt.design+" "+tt.how, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := startDesign(t, ctx, tt.design, "PYXIS_URL=http://127.0.0.1:1", "PAYMENTS_URL=http://127.0.0.1:1", "TICKETS_CALLBACK_SECRET=sixteen-or-more-letters", "CALENDAR_URL=http://127.0.0.1:1")
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/healthz", nil)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("healthz %d", resp.StatusCode)
			}
			if tt.how == "context" {
				cancel()
			} else if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if code := s.ended(t); code != 0 {
				t.Errorf("exit code %d, want 0\n%s", code, s.stderr)
			}
			if strings.Contains(s.stderr.String(), "sixteen-or-more-letters") {
				t.Errorf("the log has a secret:\n%s", s.stderr)
			}
		})
	}
}

// TestInTestMode: what is only not sensible, tests may have.
func TestInTestMode(t *testing.T) {
	for design, env := range map[string][]string{
		"tickets":  {"PAYMENTS_URL=http://127.0.0.1:1", "TICKETS_CALLBACK_SECRET=sixteen-or-more-letters", "TICKETS_RECONCILE_AFTER=2s", "TICKETS_HARD_TIMEOUT=1s"},
		"calendar": {"CALENDAR_URL=http://127.0.0.1:1", "CALENDAR_SYNC_CLAIM=2s", "CALENDAR_REFRESH_LEASE=1s"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		s := startDesign(t, ctx, design, append(env, "TEST_MODE=true")...)
		if s.url == "" {
			t.Errorf("%s did not start:\n%s", design, s.stderr)
		}
		cancel()
		if code := s.ended(t); code != 0 {
			t.Errorf("%s: exit code %d, want 0\n%s", design, code, s.stderr)
		}
	}
}

// TestStopLetsCallsEnd: a booking that is under way when SIGTERM comes is
// answered, and then the process ends well.
func TestStopLetsCallsEnd(t *testing.T) {
	s := startDesign(t, t.Context(), "telescope", "TEST_MODE=true", "CLOCK_OFFSET=-1h")
	send := func(path, who, body string) (int, string) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+who)
		req.Header.Set("Idempotency-Key", "k")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	if code, text := send("/telescope/maintenance-imports", "staff-1", `{"slots":[{"slot_id":1,"starts_at":"2999-12-24T08:00:00Z","state":"open"}]}`); code != http.StatusOK {
		t.Fatalf("import: %d %s", code, text)
	}
	other, err := pgx.Connect(t.Context(), s.db)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(context.Background()) }()
	if _, err := other.Exec(t.Context(), "begin; select 1 from observing_slots for update"); err != nil {
		t.Fatal(err)
	}
	var code int
	var text string
	var booking sync.WaitGroup
	booking.Go(func() { code, text = send("/telescope/slots/1/reservations", "member-1", "") })
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for waiting, deadline := 0, time.After(30*time.Second); waiting == 0; {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatal("the booking does not wait for the slot")
		}
		if err := other.QueryRow(t.Context(), "select count(*) from pg_locks where not granted").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.stderr.says(t, "stopping")
	if _, err := other.Exec(t.Context(), "commit"); err != nil {
		t.Fatal(err)
	}
	booking.Wait()
	if code != http.StatusCreated || !strings.Contains(text, `"state":"active"`) {
		t.Errorf("the booking was answered %d %s", code, text)
	}
	if code := s.ended(t); code != 0 {
		t.Errorf("exit code %d, want 0\n%s", code, s.stderr)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	arrived, hold := make(chan struct{}), make(chan struct{})
	var once sync.Once
	pyxis := http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		once.Do(func() { close(arrived) })
		<-hold
	}), ReadHeaderTimeout: time.Minute}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = pyxis.Serve(l) }()
	defer func() { close(hold); _ = pyxis.Close() }()
	s := start(t, t.Context(), "PYXIS_URL=http://"+l.Addr().String(), "SHUTDOWN_GRACE=25s", "LIBRARY_UPSTREAM_TIMEOUT=20s", "LIBRARY_LEASE=21s")
	get, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/library/seats", nil)
	get.Header.Set("Authorization", "Bearer student-1")
	go func() {
		if resp, err := http.DefaultClient.Do(get); err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-arrived
	for range 2 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		s.stderr.says(t, "stopping") // the first was heard: two signals at once are one
	}
	began := time.Now()
	if code := s.ended(t); code != 1 || time.Since(began) > 10*time.Second {
		t.Errorf("exit code %d after %v, want 1 at once", code, time.Since(began))
	}
}

func TestPortTaken(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	s := start(t, t.Context(), "PYXIS_URL=http://127.0.0.1:1", fmt.Sprintf("LISTEN=%s", l.Addr()))
	if code := s.ended(t); code != 1 || s.url != "" || !strings.Contains(s.stderr.String(), "LISTEN") {
		t.Errorf("exit code %d, ready line %q, log:\n%s", code, s.url, s.stderr)
	}
}

func TestDatabaseRefused(t *testing.T) {
	env := []string{"DATABASE_URL=postgres://x@127.0.0.1:1/x?connect_timeout=2", "PYXIS_URL=http://127.0.0.1:1", "PAYMENTS_URL=http://127.0.0.1:1", "TICKETS_CALLBACK_SECRET=sixteen-or-more-letters", "CALENDAR_URL=http://127.0.0.1:1"}
	for _, design := range []string{"library", "telescope", "tickets", "calendar"} {
		for _, args := range [][]string{{"--design", design}, {"migrate", "--design", design}} {
			var stderr bytes.Buffer
			if code := sut.Run(t.Context(), args, env, io.Discard, &stderr); code != 1 || !strings.Contains(stderr.String(), "database") {
				t.Errorf("%v: exit code %d, log:\n%s", args, code, &stderr)
			}
		}
	}
}
