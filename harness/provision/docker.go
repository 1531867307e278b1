package provision

import "context"

type container struct{ done chan struct{} }

func (c *container) died(string) error            { return nil }
func (c *container) remove(context.Context) error { return nil }

func dockerPostgres(context.Context, Options) (*Postgres, error) { return nil, absent("no Docker") }
func dockerWireMock(context.Context, Options) (*WireMock, error) { return nil, absent("no Docker") }
func dockerRedis(context.Context, Options) (*Redis, error)       { return nil, absent("no Docker") }

// DockerVersion says which Docker answers; the error says why none does.
func DockerVersion(ctx context.Context) (string, error) { return "", absent("no Docker") }
