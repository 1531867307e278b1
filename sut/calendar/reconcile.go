package calendar

import "context"

// reconciler looks at what others wrote into the calendars.
type reconciler struct {
	st       *store
	provider *provider
	cfg      Config
	meters   *meters
}

func newReconciler(st *store, p *provider, cfg Config, m *meters) *reconciler {
	return &reconciler{st: st, provider: p, cfg: cfg, meters: m}
}

func (r *reconciler) run(context.Context) { r.cfg.Log.Error("the reconciler is not built yet") }
