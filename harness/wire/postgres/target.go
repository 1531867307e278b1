package pgwire

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
)

// A target is the database behind the wire.
type target struct {
	url              *url.URL
	network, address string
}

func parseTarget(text string) (*target, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err) // url.Parse's error has the text
	}
	query := u.Query()
	switch {
	case u.Scheme != "postgres" && u.Scheme != "postgresql":
		return nil, fmt.Errorf("database URL %s: want postgres://user@host:port/database", u.Redacted())
	case slices.Contains([]string{"require", "verify-ca", "verify-full"}, query.Get("sslmode")):
		return nil, fmt.Errorf("database URL %s: the wire reads the protocol and can't do so through TLS; want sslmode=disable", u.Redacted())
	}
	t := &target{url: u, network: "tcp"}
	host, port := u.Hostname(), u.Port()
	if h := query.Get("host"); h != "" {
		host = h
	}
	if p := query.Get("port"); p != "" {
		port = p
	}
	if port == "" {
		port = "5432"
	}
	switch {
	case host == "":
		return nil, fmt.Errorf("database URL %s names no host", u.Redacted())
	case filepath.IsAbs(host):
		t.network, t.address = "unix", filepath.Join(host, ".s.PGSQL."+port)
	default:
		t.address = net.JoinHostPort(host, port)
	}
	return t, nil
}

// through is the URL by which the target is reached at another address.
func (t *target) through(address string) string {
	u := *t.url
	query := u.Query()
	for _, name := range []string{"host", "port", "hostaddr", "sslrootcert", "sslcert", "sslkey", "sslnegotiation"} {
		query.Del(name)
	}
	query.Set("sslmode", "disable")
	u.Host, u.RawQuery = address, query.Encode()
	return u.String()
}
