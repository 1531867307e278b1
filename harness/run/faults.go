package run

import (
	"fmt"

	"github.com/overbook/overbook/harness"
)

func (e *env) Inject(f harness.Fault) harness.Injected {
	panic(fmt.Sprintf("scenario %s: %s: no wire for it yet", e.s.scenario.Name, f))
}

func (e *env) Postgres() harness.PostgresWire {
	panic(fmt.Sprintf("scenario %s asks for the Postgres wire, which its topology does not have", e.s.scenario.Name))
}

func (e *env) Pair() harness.Pair {
	panic(fmt.Sprintf("scenario %s asks for a pair of clusters, which its topology does not have", e.s.scenario.Name))
}
