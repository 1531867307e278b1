package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/overbook/overbook/harness/proc"
)

// standbyName is what the standby calls itself on the primary.
const standbyName = "overbook-standby"

// A member is one cluster of a pair.
type member struct {
	*cluster
	port int      // 0 before the first start
	run  *running // its server, or how it ended; nil before the first start
}

// newMember makes its directory. The mark of its processes tells them from
// those of the other member: "OVERBOOK_RUN=abc/1234567".
func (i installation) newMember(o Options, birth string) (*member, error) {
	c, err := i.newCluster(o, "the "+birth+" PostgreSQL", "postgres-"+birth+".log")
	if err != nil {
		return nil, err
	}
	c.options.Durable = true // from here on it means the settings
	own := "pair-" + strings.TrimPrefix(filepath.Base(c.scratch.dir), scratchPrefix)
	if c.mark = o.MarkEnv + "/" + own; len(c.mark) > clusterNameLimit {
		c.mark = own
	}
	m := &member{cluster: c}
	m.set()
	return m, nil
}

// set makes these the settings of the next start, beside those that replication needs.
func (m *member) set(settings ...string) {
	keep := "wal_keep_size=128MB" // for a standby that is behind
	if majorIn(m.number) < 13 {
		keep = "wal_keep_segments=8"
	}
	m.settings = append([]string{"wal_level=replica", "hot_standby=on", "max_wal_senders=8", "wal_retrieve_retry_interval=1s", keep}, settings...)
}

func (m *member) url(database string) string { return loopbackURL(m.port, database) }

func (m *member) logFile() string { return filepath.Join(m.options.WorkDir, m.log) }

// conninfo is how a standby reaches this member.
func (m *member) conninfo() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=postgres application_name=%s sslmode=disable gssencmode=disable", m.port, standbyName)
}

// allowReplication lets standbys in over loopback, whatever initdb has put
// into the file for them.
func (m *member) allowReplication() (err error) {
	path := filepath.Join(m.data(), "pg_hba.conf")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return &Problem{What: "let the standby connect to the primary", Where: path, Err: err}
	}
	_, err = f.WriteString("\nhost replication postgres 127.0.0.1/32 trust\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return &Problem{What: "let the standby connect to the primary", Where: path, Err: err}
	}
	return nil
}

// copyOf fills the data directory with a base backup of the running primary,
// set up to stream from it.
func (m *member) copyOf(ctx context.Context, primary *member) error {
	problem := &Problem{What: "copy the primary for the standby", Where: filepath.Join(m.bin, "pg_basebackup"), Fix: "look at " + primary.logFile() + ", and check the free space of " + m.scratch.dir}
	args := []string{"-D", m.data(), "-d", primary.conninfo(), "-R", "-X", "stream", "--checkpoint=fast", "--no-sync", "--no-password"}
	if majorIn(m.number) >= 13 {
		args = append(args, "--no-manifest")
	}
	p, err := proc.Start(ctx, proc.Spec{Name: "pg_basebackup", Path: problem.Where, Args: args, Env: childEnv(m.options), Dir: "/", Credential: m.cred})
	if err != nil {
		problem.Err = err
		return problem
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("copy the primary for the standby: %w", context.Cause(ctx)), p.Kill())
	}
	if p.ExitText() != "exit status 0" {
		problem.Why = p.ExitText() + "; its last output:\n    " + strings.Join(p.Tail(30), "\n    ")
		return problem
	}
	return nil
}

// follow makes the member, which must not run, a standby of another one from
// its next start on.
func (m *member) follow(primary *member) error {
	path := filepath.Join(m.data(), "standby.signal")
	err := os.WriteFile(path, nil, 0o600)
	if err == nil && m.cred != nil {
		err = os.Chown(path, int(m.cred.Uid), int(m.cred.Gid))
	}
	if err != nil {
		return &Problem{What: "make the old primary a standby", Where: path, Err: err}
	}
	m.set("primary_conninfo=" + primary.conninfo())
	return nil
}

// close stops the server, if one runs, and removes what there is of it.
func (m *member) close(ctx context.Context) error {
	var errs []error
	if m.run != nil {
		m.run.closing.Store(true)
		errs = append(errs, m.run.process.Stop(ctx), m.clean(ctx, nil))
	}
	return errors.Join(append(errs, m.scratch.remove())...)
}
