package calendar

import "context"

// synchroniser brings the provider to what the appointments' rows say.
type synchroniser struct {
	st       *store
	provider *provider
	cfg      Config
	meters   *meters
}

func newSynchroniser(st *store, p *provider, cfg Config, m *meters) *synchroniser {
	return &synchroniser{st: st, provider: p, cfg: cfg, meters: m}
}

func (y *synchroniser) run(context.Context) { y.cfg.Log.Error("the synchroniser is not built yet") }
